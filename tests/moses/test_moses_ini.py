"""``moses-ini``: what changes in an ini, what is told beside it, and every refusal."""

import bz2
import difflib
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Run
from hypothesis import given
from hypothesis import strategies as st
from row_edits import with_scores
from small_models import small_lm

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.columns import RANGE_ROWS, ColumnFormat, ScoreColumn, TableColumns, format_sidecar
from phrase_rescore.moses.ini import Ini
from phrase_rescore.moses.rewrite_ini import hints, new_weights, with_table
from phrase_rescore.moses.table import parse_row

SCORE, COUNT = ScoreColumn(5, 1e-9, 0.5), ScoreColumn(6, 1, 7.389056)
FEATURE = "PhraseDictionaryMemory name=TranslationModel0 num-features=4 path=old.gz input-factor=0 output-factor=0"
INI = f"""\
[input-factors]
0
[feature]
WordPenalty
{FEATURE}
KENLM name=LM0 factor=0 path=lm.blm order=5
[weight]
LM0= 0.5
TranslationModel0= 0.2 0.2 0.2 0.2
WordPenalty0= -1
"""
ROWS = """\
a ||| x ||| 0.5 0.25 1 0.1 0.125 1 ||| 0-0 ||| 1 1 1 ||| |||
a ||| y ||| 0.5 0.25 1 0 0.0625 7.389056 ||| 0-0 ||| 1 1 1 ||| |||
"""


def describe(table: Path) -> None:
    """Write the sidecar of a table whose columns 5 and 6 are new."""
    columns = ColumnFormat().described(5, [("model", "target")], ())
    Path(f"{table}.columns.json").write_text(format_sidecar(columns))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "new.gz"
    path.write_bytes(gzip.compress(ROWS.encode()))
    describe(path)
    return path


def changed(before: bytes, after: bytes) -> list[str]:
    """The lines that differ, old and new ones in turn."""
    lines = difflib.ndiff(before.decode().splitlines(keepends=True), after.decode().splitlines(keepends=True))
    return [line.removesuffix("\n") for line in lines if line[0] in "+-"]


@pytest.fixture(scope="module")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The shared ini, and 1,000 rows of the shared table with two columns more."""
    path = tmp_path_factory.mktemp("real") / "phrase-table.rnn.gz"
    with open_input(str(shared_data / "phrase-table.20k.gz")) as stream:
        rows = [parse_row(next(stream).removesuffix(b"\n")) for _ in range(1000)]
    columns = [b" 0.%03d %s" % (i % 999 + 1, b"2.718282" if i % 7 == 0 else b"1") for i in range(1000)]
    path.write_bytes(
        gzip.compress(b"".join(with_scores(row.fields, 0, new) + b"\n" for row, new in zip(rows, columns, strict=True)))
    )
    describe(path)
    return shared_data / "moses.ini", path


OLD_LINES = (
    "- PhraseDictionaryMemory name=TranslationModel0 num-features=4 path=phrase-table.gz input-factor=0 output-factor=0 ",
    "- TranslationModel0= 0.290983 0.0272824 0.0783934 0.0424418",
)


@pytest.mark.parametrize(
    ("options", "weights"), [([], "0.04 0"), (["--weights", "zero"], "0 0"), (["--weights", "-.05,2e-3"], "-.05 2e-3")]
)
def test_two_lines_of_the_real_ini_change(run: Run, real: tuple[Path, Path], options: list[str], weights: str) -> None:
    ini, table = real
    result = run("moses-ini", ini, "--table", table, *options)
    assert result.status == 0, result.err
    assert changed(ini.read_bytes(), result.out) == [
        OLD_LINES[0],
        "+ " + OLD_LINES[0][2:].replace("features=4", "features=6").replace("phrase-table.gz", str(table)),
        OLD_LINES[1],
        f"+ {OLD_LINES[1][2:]} {weights}",
    ]
    said = [line.removeprefix("phrase-rescore: ") for line in result.err.splitlines()]
    parts = [
        f"TranslationModel0: num-features 4 -> 6, new weights {weights}, path phrase-table.gz -> {table}",
        "mert-moses.pl: --range=TranslationModel0:0..1,0..1,0..1,0..1,0..1,-1..1",
        "to binarize: processPhraseTableMin -nscores 6 -rankscore 2, ",
    ]
    assert [line.startswith(part) for line, part in zip(said, parts, strict=True)] == [True] * len(parts), said


def test_done_twice_there_is_nothing_to_do(run: Run, real: tuple[Path, Path], tmp_path: Path) -> None:
    ini, table = real
    once = tmp_path / "once.ini"
    assert run("moses-ini", ini, "--table", table, "-o", once, "-q") == (0, b"", "")
    message = "phrase-rescore: nothing to do: TranslationModel0 has 6 columns and this path already\n"
    assert run("moses-ini", once, "--table", table) == (0, once.read_bytes(), message)
    assert run("moses-ini", once, "--table", table, "-q") == (0, once.read_bytes(), "")
    moved = run("moses-ini", once, "--table", table, "--path", "/else.gz")
    assert f"TranslationModel0: path {table} -> /else.gz\n" in moved.err


def test_the_ini_itself_is_replaced(run: Run, table: Path, tmp_path: Path) -> None:
    ini = tmp_path / "moses.ini"
    ini.write_text(INI)
    assert run("moses-ini", ini, "--table", table, "-o", ini, "--overwrite", "-q") == (0, b"", "")
    assert ini.read_text() == INI.replace("features=4", "features=6").replace("old.gz", str(table)).replace(
        "0.2 0.2\n", "0.2 0.2 0.04 0\n"
    )


def test_ini_and_table_from_standard_input(run: Run, table: Path, tmp_path: Path) -> None:
    to = "--path", "/p.gz", "-q"
    from_ini = run("moses-ini", "-", "--table", table, *to, stdin=INI.encode())
    ini = tmp_path / "moses.ini"
    ini.write_text(INI)
    from_table = run("moses-ini", ini, "--table", "-", "--columns", 2, *to, stdin=ROWS.encode())
    assert from_ini == from_table
    assert b" num-features=6 path=/p.gz " in from_ini.out
    os.mkfifo(pipe := tmp_path / "pipe")  # its name would lead Moses nowhere
    for name in ("-", pipe):
        refused = run("moses-ini", ini, "--table", name, "--columns", 2, stdin=ROWS.encode())
        assert (refused.status, f"--table {name} " in refused.last_line, "--path" in refused.last_line) == (2, True, True)


def test_a_binarized_table_goes_by_its_text(run: Run, table: Path) -> None:
    ini = INI.replace("Memory", "Compact").encode()
    result = run("moses-ini", "-", "--table", table, "--path", "/bin/new.minphr", "-q", stdin=ini)
    assert (result.status, result.err) == (0, "")
    line = b"PhraseDictionaryCompact name=TranslationModel0 num-features=6 path=/bin/new.minphr input-factor=0"
    assert line in result.out


def patched(ini: str, name: str | None = None, columns: int = 6) -> str:
    data = ini.encode()
    feature = Ini(data).find_table(None if name is None else name.encode())
    weights = Ini(data).weight_line(feature)
    return with_table(data, feature, weights, b"NEW", [b"W"] * (columns - feature.n_columns)).decode()


@pytest.mark.parametrize(("before", "after"), [
    ("X name=TM num-features=4 path=a", "X name=TM num-features=6 path=NEW"),
    ("X path=a=b  \tnum-features=4 name=TM # path=c", "X path=NEW  \tnum-features=6 name=TM # path=c"),
    ("  X\tname=TM\tnum-features=04\tpath=NEW table-limit=20 \r", "  X\tname=TM\tnum-features=6\tpath=NEW table-limit=20 \r"),
    ("X name=TM num-features=4", "X name=TM num-features=6 path=NEW"),
    (
        "X name=TM num-features=4 tuneable-components=1,1,0,1",
        "X name=TM num-features=6 tuneable-components=1,1,0,1,1,1 path=NEW",
    ),
    ("X name=TM num-features=6 path=NEW", "X name=TM num-features=6 path=NEW"),
])  # fmt: skip
def test_feature_lines(before: str, after: str) -> None:
    frame = "[feature]\n{}\n[weight]\nTM= {}"
    n = 6 if "=6" in before else 4
    text = frame.format(before, " ".join(["1"] * n)).replace("X", "PhraseDictionaryMemory")
    expected = frame.format(after, " ".join(["1"] * n + ["W"] * (6 - n))).replace("X", "PhraseDictionaryMemory")
    assert patched(text) == expected


def test_num_features_is_1_where_the_line_has_none() -> None:
    ini = "[feature]\nPhraseDictionaryMemory name=TM path=\n[weight]\nTM= 1\n"
    assert patched(ini, columns=3) == ini.replace("path=", "path=NEW num-features=3").replace("TM= 1", "TM= 1 W W")


def test_sections_may_come_in_any_order_and_more_than_once() -> None:
    other = f"[ feature]\n{FEATURE}1\n[feature]\n[]\n{FEATURE}2\n"
    weights = "TranslationModel0= 1\n#TranslationModel0= 2\nTranslationModel0= 1 2 3 4"
    ini = f"TM= 1\n[weight] of all\n{weights}\n{other}[feature]\n[no header\n{FEATURE}\n[weight]\n"
    expected = ini.replace("3 4", "3 4 W W")
    at = expected.rindex("PhraseDictionary")
    assert patched(ini) == expected[:at] + expected[at:].replace("=4", "=6").replace("old.gz", "NEW")


def test_the_named_one_of_several() -> None:
    second = (
        "ProbingPT num-features=2 path=bin\nProbingPT num-features=3 path=bin2\nPhraseDictionaryMemory path=x/glue-grammar.gz"
    )
    ini = INI.replace("KENLM", f"{second}\nKENLM") + "ProbingPT0= 7 7\nProbingPT1= 8 8 8\n"
    assert patched(ini, "ProbingPT1", 4) == (
        ini.replace("num-features=3 path=bin2", "num-features=4 path=NEW").replace("8 8 8", "8 8 8 W")
    )


def test_a_glue_grammar_is_no_choice() -> None:
    glue = "PhraseDictionaryMemory name=TranslationModel1 num-features=1 path=model/glue-grammar tuneable=false"
    assert patched(INI.replace("KENLM", f"{glue}\nKENLM")).count("NEW") == 1


NOISE = st.binary(max_size=20).map(lambda data: data.translate(None, b"\n[="))  # no header, no other weights of TM
LINES = st.lists(NOISE, max_size=4).map(lambda lines: b"".join(line + b"\n" for line in lines))
FEATURES = LINES.map(lambda lines: lines.translate(None, b" \t"))  # without arguments, so that no key stands there twice
BLANK = st.text(" \t", min_size=1, max_size=3).map(str.encode)
MARGIN = st.text(" \t\r", max_size=3).map(str.encode)
TAIL = st.one_of(st.just(b""), MARGIN, NOISE.map(lambda data: b" #" + data))


@given(st.data())
def test_no_other_byte_changes(data: st.DataObject) -> None:
    """Any lines around them, any blanks and comments in them, and without a last newline."""
    blank = [data.draw(BLANK) for _ in range(7)]
    margin = [data.draw(MARGIN) for _ in range(2)]
    tails = [data.draw(TAIL) for _ in range(2)]
    noise = [data.draw(lines) for lines in (FEATURES, FEATURES, LINES, LINES, LINES)]
    newline = data.draw(st.sampled_from([b"", b"\n"]))
    words = data.draw(st.permutations([b"name=TM", b"num-features=2", b"path=a", b"table-limit=3"]))
    feature_first = data.draw(st.booleans())

    def ini(numbers: bytes, path: bytes, more: bytes) -> bytes:
        new = [word.replace(b"=2", b"=" + numbers).replace(b"=a", b"=" + path) for word in words]
        line = b"PhraseDictionaryMemory" + b"".join(b + word for b, word in zip(blank, new, strict=False))
        feature = b"[feature]\n" + noise[0] + margin[0] + line + tails[0] + b"\n" + noise[1]
        weights = margin[1] + b"TM=" + blank[4] + b"0.5" + blank[5] + b"-1" + more + tails[1]
        weight = b"[weight]\n" + noise[2] + weights + b"\n" + noise[3]
        parts = [feature, weight] if feature_first else [weight, feature]
        whole = noise[4] + b"".join(parts)
        return whole if newline else whole.removesuffix(b"\n")

    before = ini(b"2", b"a", b"")
    found = Ini(before).find_table(b"TM")  # noise may be another table, too
    weights = Ini(before).weight_line(found)
    assert with_table(before, found, weights, b"b/c.gz", [b"0.04", b"0"]) == ini(b"4", b"b/c.gz", b" 0.04 0")
    assert with_table(before, found, weights, b"a", []) == before


TWO = INI.replace("KENLM", f"{FEATURE.replace('Model0', 'Model1').replace('old', 'b')}\nKENLM")
BOTH = ("--feature TranslationModel0 (line 5, path=old.gz)", "--feature TranslationModel1 (line 6, path=b.gz)")
REFUSALS = {  # an ini, options, the line that is named (0: none), what else is
    "old style": ("[ttable-file]\n# impl\n0 0 0 5 table.gz\n[weight-t]\n0.2\n", [], 3, ("convert-moses-ini-to-v2.perl",)),
    "no ini": ("a ||| b ||| 1\n", [], 0, ("no phrase table",)),
    "no table": (INI.replace(FEATURE, "Mmsapt name=PT0"), [], 0, ("PhraseDictionaryMemory", "ProbingPT")),
    "two tables": (TWO, [], 0, ("2 phrase tables;", *BOTH)),
    "no such feature": (INI, ["--feature", "TranslationModel7"], 0, ("0 phrase tables of the name TranslationModel7", BOTH[0])),
    "no table by that name": (TWO, ["--feature", "LM0"], 0, ("LM0", *BOTH)),
    "two of a name": (TWO.replace("Model1", "Model0"), ["--feature", "TranslationModel0"], 0, ("2 phrase tables of the name",)),
    "too large": (INI + "#" * (1 << 24), [], 0, ("16 MiB",)),
    "key twice": (INI.replace("path=old.gz", "path=a path=b"), [], 5, ("path=",)),
    "no value": (INI.replace("path=old.gz", "path"), [], 5, ("'path'", "key=value")),
    "no number": (INI.replace("num-features=4", "num-features=four"), [], 5, ("num-features=four",)),
    "no weights": (INI.replace("TranslationModel0= ", "TranslationModel1= "), [], 0, ("[weight]", "4 weights")),
    "glued weights": (INI.replace("TranslationModel0= ", "TranslationModel0 ="), [], 0, ("'TranslationModel0= w …'",)),
    "too few weights": (INI.replace("0.2 0.2\n", "0.2\n"), [], 9, ("3 weights", "num-features=4 (line 5)")),
}


@pytest.mark.parametrize(("ini", "options", "line", "named"), REFUSALS.values(), ids=REFUSALS)
def test_inis_that_are_refused(run: Run, table: Path, ini: str, options: list[str], line: int, named: Sequence[str]) -> None:
    refused = run("moses-ini", "-", "--table", table, *options, stdin=ini.encode())
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, b"", 1)
    assert refused.err.startswith(f"phrase-rescore: error: <stdin>:{f'{line}:' if line else ''} ")
    assert [word for word in named if word not in refused.err] == []


USAGE = {  # options ({table}: the table), an ini, what is named
    "a stream without a name": ("--table -", INI, ("--table -", "--path")),
    "two streams": ("--table - --path p", INI, ("standard input",)),
    "a blank in a path": ("--table {table} --path /a\u00a0b", INI, ("--path",)),
    "a comment in a path": ("--table {table} --path a#b", INI, ("a#b'",)),
    "weights": ("--table {table} --weights tiny", INI, ("--weights", "tiny")),
    "too few weights": ("--table {table} --weights 0.1", INI, ("--weights 0.1", "2 new columns")),
    "a binarized table": ("--table {table}", INI.replace("PhraseDictionaryMemory", "ProbingPT"), ("ProbingPT", "--path")),
    "nothing": ("", INI, ("--table", "--lm")),
    **{f"{option} without a table": (f"--lm {{table}} {option} 1", INI, (option, "--table"))
       for option in ("--path", "--columns", "--feature")},
    "two weights of a language model": ("--lm {table} --weights 1,2", INI, ("--weights 1,2",)),
}  # fmt: skip


@pytest.mark.parametrize(("options", "ini", "named"), USAGE.values(), ids=USAGE)
def test_usage(run: Run, table: Path, options: str, ini: str, named: Sequence[str]) -> None:
    words = [word.format(table=table).replace("\u00a0", " ") for word in options.split(" ") if word]
    refused = run("moses-ini", "-", *words, stdin=ini.encode())
    assert (refused.status, refused.out) == (2, b"")
    assert [word for word in named if word not in refused.last_line] == []


ROW = b"a ||| b ||| 0.5 1 1\n"
NO_GZIP = ("gzip",)
BAD_TABLES = {  # its bytes, the line that is named, what else is
    "empty": (b"", 0, ("empty",)),
    "too few columns": (ROW, 0, ("3 score columns", "num-features=4")),
    "a row with less": (ROWS.encode().replace(b"7.389056", b""), 2, ("5 scores",)),
    "a negative score": (ROWS.encode().replace(b"0.0625 7.389056", b"-2.77 2"), 2, ("'-2.77'", "--scale log")),
    "gzip by another name": (gzip.compress(ROWS.encode()), 0, NO_GZIP),
    "bzip2": (bz2.compress(ROWS.encode()), 0, NO_GZIP),
}


@pytest.mark.parametrize(("data", "line", "named"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_tables_that_are_refused(run: Run, tmp_path: Path, data: bytes, line: int, named: Sequence[str]) -> None:
    path = tmp_path / ("new.gz" if data.startswith(b"BZ") else "new")
    path.write_bytes(data)
    refused = run("moses-ini", "-", "--table", path, stdin=INI.encode())
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, b"", 1)
    assert refused.err.startswith(f"phrase-rescore: error: {path}:{f'{line}:' if line else ''} ")
    assert [word for word in named if word not in refused.err] == []
    if named is NO_GZIP:  # which Moses need not load
        words = ("--path", "made.bin", "--columns", 2)
        assert run("moses-ini", "-", "--table", path, *words, stdin=INI.encode()).status == 0


def columns_of(table: Path) -> tuple[ScoreColumn, ...]:
    return TableColumns.read(str(table), RANGE_ROWS).columns


def test_columns_by_their_values(table: Path) -> None:
    columns = columns_of(table)
    ranges = [(column.low, column.high) for column in columns]
    assert ranges == [(0.5, 0.5), (0.25, 0.25), (1, 1), (0, 0.1), (0.0625, 0.125), (1, 7.389056)]
    assert [column.is_count(new=False) for column in columns] == [False] * 5 + [True]
    assert [column.is_count(new=True) for column in columns] == [False, False, True, False, False, True]


def test_columns_by_their_sidecar(table: Path) -> None:
    """A count that is never above 0 in the first rows, and a column that looks like one."""
    table.write_bytes(gzip.compress(b"a ||| b ||| 0.5 0.5 0.5 0.5 1 1 2\n"))
    columns = columns_of(table)
    assert [column.added and column.added.kind for column in columns] == [None] * 4 + ["score", "count", None]
    assert new_weights("small", columns[4:]) == [b"0.04", b"0", b"0"]


@pytest.mark.slow
def test_only_the_first_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table"
    row = b"a ||| b ||| 0.5 0.25\n"
    path.write_bytes(row * 10_000 + b"a ||| b ||| -1\n")
    assert [(column.low, column.high) for column in columns_of(path)] == [(0.5, 0.5), (0.25, 0.25)]
    path.write_bytes(row * 9_999 + b"a ||| b ||| -1\n")
    with pytest.raises(InputError, match="table:10000: 1 score where the first row has 2"):
        columns_of(path)


@pytest.mark.parametrize(("more", "columns", "ranges"), [
    ("num-features=2", [SCORE, SCORE, ScoreColumn(3, 1, 1)], "0..1,0..1,-1..1"),
    ("num-features=6", [*[SCORE] * 5, COUNT, SCORE, ScoreColumn(8, 1, 1)], "0..1,0..1,0..1,0..1,0..1,-1..1,0..1,-1..1"),
    ("num-features=4 tuneable-components=1,0,False,true", [*[SCORE] * 5, COUNT], "0..1,0..1,0..1,-1..1"),
])  # fmt: skip
def test_options_for_other_programs(more: str, columns: list[ScoreColumn], ranges: str) -> None:
    """A second model's columns, factors; ranges leave out what cannot be tuned."""
    line = f"PhraseDictionaryMemory name=TM path=a input-factor=0,2 output-factor=0,1,2 {more}"
    said = "\n".join(hints(Ini(f"[feature]\n{line}\n".encode()).find_table(), columns))
    n, rank = len(columns), 1 if "=2" in more else 2
    assert f"--range=TM:{ranges}\n" in said
    for fact in (f"-nscores {n} -rankscore {rank},", f"CreateOnDiskPt 2 3 {n} 100 {rank}", f"--num-scores {n},"):
        assert fact in said


NEURAL = [
    b"[feature]\nKENLM name=LM0 order=5 path=a\n\n[weight]\nLM0= 0.5\n",
    b"[feature]\r\nKENLM name=LM0 order=5 path=a # x\r\n[weight]\r\nLM0= 0.5\r\n[threads]\r\n2",
    b"[weight]\nLM0= 0.5\nCSLM0= 0.1\n[feature]\nNeuralLM name=CSLM0 order=4 path=b\nKENLM name=LM0 order=5 path=a",
]


@pytest.mark.parametrize("ini", NEURAL)
def test_a_neural_language_model_is_two_lines_more(run, tmp_path, ini):
    small_lm(tmp_path / "lm")
    assert run("export-lm", "-m", tmp_path / "lm", "-o", tmp_path / "lm.nplm", "-q").status == 0
    result = run("moses-ini", "-", "--lm", tmp_path / "lm.nplm", stdin=ini)
    assert result.status == 0, result.err
    name = b"CSLM1" if b"CSLM0" in ini else b"CSLM0"
    added = [b"NeuralLM factor=0 name=%b order=4 path=%b/lm.nplm" % (name, bytes(tmp_path)), b"%b= 0.1" % name]
    lines = result.out.replace(b"\r\n", b"\n").split(b"\n")
    for line in added:
        assert lines.count(line) == 1
        lines.remove(line)
    assert [line for line in lines if line] == [line for line in ini.replace(b"\r\n", b"\n").split(b"\n") if line]
    sections = {line.section: line.text for line in Ini(result.out).lines if name in line.text}
    assert sections == {b"feature": added[0], b"weight": added[1]}
    assert (b"\r\n" in result.out) == (b"\r\n" in ini)
    assert f"{name.decode()}: a feature NeuralLM of" in result.err
    for weight in ("zero", "-.3"):
        written = run("moses-ini", "-", "--lm", tmp_path / "lm.nplm", "--weights", weight, stdin=ini).out
        assert written == result.out.replace(added[1], b"%b= %b" % (name, weight.replace("zero", "0").encode()))
    again = run("moses-ini", "-", "--lm", tmp_path / "." / "lm.nplm", stdin=result.out)
    assert (again.status, again.out) == (1, b"")
    assert f": {name.decode()} has this language model already; name another with --lm" in again.err


def test_what_is_no_neural_language_model(run, tmp_path):
    (tmp_path / "x").write_bytes(b"\\config\nversion 1\n")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("x", "empty"):
        result = run("moses-ini", "-", "--lm", tmp_path / name, stdin=NEURAL[0])
        assert (result.status, result.out) == (1, b"")
        assert "not a model of NPLM; pass the file that export-lm wrote" in result.last_line
    small_lm(tmp_path / "lm")
    assert run("export-lm", "-m", tmp_path / "lm", "-o", tmp_path / "lm.nplm", "-q").status == 0
    for ini in (b"", b"[weight]\nLM0= 1\n", NEURAL[0].partition(b"[weight]")[0]):
        result = run("moses-ini", "-", "--lm", tmp_path / "lm.nplm", stdin=ini)
        assert result.status == 1
        assert "no [" in result.last_line
