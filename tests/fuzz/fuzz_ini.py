"""moses.ini: any bytes are refused, or made for another table in the lines that this needs."""

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import InputError
    from phrase_rescore.moses.columns import ScoreColumn
    from phrase_rescore.moses.ini import Ini
    from phrase_rescore.moses.rewrite_ini import hints, with_table

from harness import fuzz, told

COLUMNS = [ScoreColumn(5, 1e-9, 0.5), ScoreColumn(6, 1, 7.389056)]
WEIGHTS = [b"0.01", b"-0.01"]
FEATURE = b"PhraseDictionaryMemory name=TranslationModel0 num-features=2 path=old.gz input-factor=0 output-factor=0"
WEIGHT = b"[weight]\nTranslationModel0= 0.2 0.2\nWordPenalty0= -1\n"
SEEDS = [
    b"[input-factors]\n0\n[feature]\nWordPenalty\n" + FEATURE + b"\n" + WEIGHT,
    b"[feature]\r\n" + FEATURE + b" tuneable-components=1,0 # a comment\r\n" + WEIGHT.replace(b"\n", b"\r\n"),
    b"[weight]\nProbingPT0=  1\n\n[feature] x\nProbingPT\tpath=a path2=b\n",
    b"[feature]\nPhraseDictionaryCompact\nRuleTable name= path=\n[weight]\nRuleTable0= 1\nPhraseDictionaryCompact0= 1",
    b"[ttable-file]\n0 0 0 5 table\n",
    b"[mapping]\n0 T 1\n[feature]\n" + FEATURE + b"\nPhraseDictionaryGroup members=TranslationModel0\n" + WEIGHT,
    b"[feature]\n" + FEATURE + b"\n" + WEIGHT + b"[weight-overwrite]\nTranslationModel0= 1 1\n",
]
TOKENS = (
    b"[feature]\n", b"[weight]\n", b"\n", b"# ", b"=", b" path=", b" num-features=", b" tuneable-components=1,0", b" name=a",
)  # fmt: skip


def check(ini: bytes) -> None:
    try:
        feature = Ini(ini).find_table()
        weights = Ini(ini).weight_line(feature)
    except InputError as error:
        told(error, 5000)  # it lists the tables
        return
    n = feature.n_columns + len(WEIGHTS)
    new = with_table(ini, feature, weights, b"new.gz", WEIGHTS)
    again = Ini(new).find_table()
    assert (again.name, again.n_columns, again.path) == (feature.name, n, b"new.gz")
    old_lines, new_lines = ini.split(b"\n"), new.split(b"\n")
    assert len(old_lines) == len(new_lines)
    changed = {i for i, (old, now) in enumerate(zip(old_lines, new_lines, strict=True), 1) if old != now}
    assert changed == {feature.line.number, weights.number}, changed
    assert with_table(new, again, Ini(new).weight_line(again), b"new.gz", []) == new
    try:
        Ini(ini).check_used(feature)
    except InputError as error:
        told(error)
    for found in (feature, again):
        for line in hints(found, COLUMNS):
            assert line.isprintable(), line


if __name__ == "__main__":
    fuzz(check, SEEDS, 1024, TOKENS)
