"""N-best lists: any bytes are refused in one line, or come back as they were but for the feature added.

The same bytes are also read as scores, as an output, and as a bitext with their lines in another order.
"""

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import RescoreError
    from phrase_rescore.evaluation.corpora import segments_of
    from phrase_rescore.files.inputs import natural_log
    from phrase_rescore.moses.hypotheses import Entry, read_entries
    from phrase_rescore.moses.parallel import Sides
    from phrase_rescore.moses.text import Sentences, look, marks
    from phrase_rescore.rescoring.run import total_by

import math

from harness import fuzz, told

SEEDS = [
    b"0 ||| la maison  ||| Distortion0= 0 LM0= -60.27 TM0= -0.29 -11.45 ||| -6.57 ||| 0-1=0-1\n",
    b"0 ||| la |0-0| maison |1-1| ||| LM0= -1 TM0_sparse= 2 ||| -1\r\n0 ||| a ||| LM0= -1 X= 1 2 ||| -2 ||| 0=0 ||| 0-0",
    b"3|||a|||X= 1|||1\n4 ||| ||| ||| \n",
    b"0.5\n-3.25\n1e-9\n",
    b"<s> a b . </s>\nun@@ do |0-1| x&apos; |2-2|\n",
]
TOKENS = (b" ||| ", b"|||", b"= ", b" X= 1 ", b" LM0= ", b"\n", b"-1e-5", b"0-1=0-1 ", b" |0-1| ")


def attempt(entry: Entry) -> None:
    for read in (Entry.hypothesis, Entry.derivation, Entry.total):
        try:
            read(entry)
        except RescoreError as error:
            told(error)
    try:
        features = entry.features()
        weights = {label: [1.0] * len(values) for label, values in features.items()}
        total = total_by(features, weights)
    except RescoreError as error:
        told(error)
        return
    assert math.isnan(total) or math.isinf(total) or abs(total) <= sum(abs(v) for vs in features.values() for v in vs) + 1e-9
    if b"X" in features:
        return
    added = entry.with_feature(b"X", [-31.4, 2], False)
    assert added.features() == features | {b"X": [-31.4, 2.0]} or any(v != v for vs in features.values() for v in vs)
    at = entry.at
    assert added.fields[:at] + added.fields[at + 1 :] == entry.fields[:at] + entry.fields[at + 1 :]
    assert added.with_feature(b"X", [-31.4, 2], True).fields == added.fields
    without = added.fields[2].replace(b"X= -31.4 2", b"", 1)
    assert without.split() == entry.fields[2].split()


def scores(rows: list[bytes]) -> None:
    for number, row in enumerate(rows, 1):
        assert natural_log("scores", number, row, True) <= 1e-6
        assert natural_log("scores", number, row, False) <= 1e-6


def output(rows: list[bytes]) -> None:
    segments = segments_of("out", rows)
    assert len(segments) == len(rows)
    assert marks(segments) is not None
    assert look(segments) is not None


def bitext(rows: list[bytes]) -> None:
    sides, read, warned = Sides(True), Sentences(), list[str]()
    text = [b" ".join(read(row)) for row in rows] * (600 // max(1, len(rows)))
    sides.add(text, text[7:] + text[:7])
    sides.check("bitext", warned.append)
    assert all(map(str.isprintable, [*warned, *read.warnings()]))


def check(data: bytes) -> None:
    rows = data.splitlines(keepends=True) if b"\r" not in data else [row + b"\n" for row in data.split(b"\n")]
    try:
        for entry in read_entries(rows, "list"):
            assert entry.line() == rows[entry.number - 1]
            attempt(entry)
    except RescoreError as error:
        told(error)
    for use in (scores, output, bitext):
        try:
            use(rows)
        except RescoreError as error:
            told(error)


if __name__ == "__main__":
    fuzz(check, SEEDS, 1024, TOKENS)
