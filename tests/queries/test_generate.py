"""``phrase-rescore generate``: phrases in, hypotheses out in two formats, with and without a table beside them."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MakeModel, Run

from phrase_rescore.data.sampling import sample_phrases
from phrase_rescore.rnn.checkpoint import load, save

SOURCES = [b"the house", b"old", b"a\xff zzz is", "café".encode()]
STDIN = b"".join(source + b"\n" for source in SOURCES)
Rows = list[list[bytes]]


def columns(out: bytes) -> Rows:
    return [line.split(b"\t") for line in out.split(b"\n")[:-1]]


@pytest.fixture(scope="module")
def proposed(run: Run, model_dir: str) -> Rows:
    return columns(run("generate", "-m", model_dir, "-n", 6, stdin=STDIN).out)


def table_of(
    pairs: list[tuple[bytes, bytes]], tail: bytes = b" ||| 0-0 ||| 3 2 1 ||| |||", scores: bytes = b"0.5 0.25"
) -> bytes:
    return b"".join(sorted(b"%b ||| %b ||| %b%b\n" % (src, tgt, scores, tail) for src, tgt in pairs))


def test_log_p_and_unknown_words_are_those_of_score(run: Run, model_dir: str, proposed: Rows) -> None:
    for extra in ([], ["--random", "--temperature", 2], ["--unk", "--beam", 3]):
        done = run("generate", "-m", model_dir, "-n", 6, *extra, stdin=STDIN)
        assert done.status == 0, done.err
        found = columns(done.out)
        assert [row[0] for row in found] == [source for source in SOURCES for _ in range(6)]
        scored = columns(run("score", "-m", model_dir, stdin=b"".join(b"%b\t%b\n" % tuple(row[:2]) for row in found)).out)
        assert [float(row[2]) for row in found] == pytest.approx([float(row[0]) for row in scored], abs=1e-4)
        if "--unk" not in extra:  # the model of these tests has a word that is spelt UNK
            assert [row[3] for row in found] == [row[1] for row in scored]
    assert [float(row[2]) for row in proposed[:6]] == sorted((float(row[2]) for row in proposed[:6]), reverse=True)
    assert "4 phrases, 24 hypotheses, " in done.err
    assert run("generate", "-m", model_dir, "-q", stdin=STDIN).err == ""


@pytest.mark.slow
def test_random_proposals_depend_on_seed_and_phrase_alone(run: Run, model_dir: str) -> None:
    def drawn(seed: int, lines: list[bytes]) -> set[tuple[bytes, bytes]]:
        args = ("generate", "-m", model_dir, "-n", 5, "--random", "--top-k", 4, "--seed", seed)
        return {(row[0], row[1]) for row in columns(run(*args, stdin=b"".join(line + b"\n" for line in lines)).out)}

    assert drawn(1, SOURCES) == drawn(1, SOURCES[::-1]) == set().union(*(drawn(1, [source]) for source in SOURCES))
    assert drawn(1, SOURCES) != drawn(2, SOURCES)


def test_json_keeps_every_byte(run: Run, model_dir: str, proposed: Rows, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(table_of([(row[0], row[1]) for row in proposed[::2]]))
    done = run("generate", "-m", model_dir, "-n", 6, "--format", "jsonl", "--table", tmp_path / "table", stdin=STDIN)
    found = [json.loads(line) for line in done.out.decode().splitlines()]  # is UTF-8 and JSON

    def as_bytes(text: str) -> bytes:
        return text.encode("utf-8", "surrogateescape")

    listed = [
        [as_bytes(one["source"]), as_bytes(p["target"]), p["log_p"], p["unknown"], p["in_table"]]
        for one in found
        for p in one["proposals"]
    ]
    assert listed == [[row[0], row[1], float(row[2]), int(row[3]), i % 2 == 0] for i, row in enumerate(proposed)]
    assert "café".encode() in done.out
    assert b'"a\\udcff zzz is"' in done.out


def test_what_the_table_has_is_marked_or_left_out(run: Run, model_dir: str, proposed: Rows, tmp_path: Path) -> None:
    table = tmp_path / "table.gz"
    others = [(b"house", row[1]) for row in proposed]
    table.write_bytes(gzip.compress(table_of([*others, *((row[0], row[1]) for row in proposed[::5])])))
    args = ("generate", "-m", model_dir, "-n", 6, "--table", table)
    marked = run(*args, stdin=STDIN)
    assert columns(marked.out) == [[*row, b"1" if i % 5 == 0 else b"0"] for i, row in enumerate(proposed)]
    assert f"the first hypothesis is in {table}: 1 of 4 (25.0%); of all hypotheses 5" in marked.err
    new = run(*args, "--only-new", stdin=STDIN)
    assert columns(new.out) == [[*row, b"0"] for i, row in enumerate(proposed) if i % 5]
    assert "4 phrases, 19 hypotheses" in new.err
    assert "1 of 4 (25.0%); of all hypotheses 5, left out" in new.err


def test_a_sample_of_a_table_s_phrases(run: Run, model_dir: str, tmp_path: Path) -> None:
    pairs = [(b"the %d" % (i % 40), b"das %d" % i) for i in range(400)]
    table = tmp_path / "table"
    table.write_bytes(table_of(pairs))

    def taken(n: int, seed: int, stdin: bytes = b"") -> list[bytes]:
        name = "-" if stdin else table
        done = run("generate", "-m", model_dir, "-n", 1, "--from-table", n, name, "--seed", seed, stdin=stdin)
        assert done.status == 0, done.err
        return [row[0] for row in columns(done.out)]

    some = taken(10, 1)
    assert len(set(some)) == 10
    assert some == sorted(some, key=lambda source: source + b" |||"), "in the table's order"
    assert some == taken(10, 1) == taken(10, 1, table.read_bytes())
    assert set(some) < set(taken(20, 1))
    assert some != taken(10, 2)
    done = run("generate", "-m", model_dir, "-n", 1, "--from-table", 50, table)
    assert f"{table} has only 40 distinct source phrases" in done.err
    assert len(columns(done.out)) == 40


def test_every_distinct_phrase_is_as_likely_to_be_taken() -> None:
    """However often it stands in the table, and wherever: χ² of 30 phrases over 2,000 seeds."""
    phrases = [b"%d" % i for i in range(30)]
    blocks = [phrases[:20] * 3, phrases[10:] + [b"0"] * 50, [b"29"]]
    counts = dict.fromkeys(phrases, 0)
    for seed in range(2000):
        taken = sample_phrases(blocks, 6, seed)
        assert len(set(taken)) == 6
        for phrase in taken:
            counts[phrase] += 1
    mean = 2000 * 6 / 30
    chi2 = sum((count - mean) ** 2 / mean for count in counts.values()) / (1 - 6 / 30)  # without replacement
    assert chi2 < 52.3, "less probable than 0.5 % with 29 degrees of freedom"


def test_an_inverse_model_proposes_sources(run: Run, model_dir: str, proposed: Rows, tmp_path: Path) -> None:
    forward = load(model_dir)
    inverse = tmp_path / "inverse"
    inverse.mkdir()
    save(replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True), str(inverse))
    table = tmp_path / "turned"
    table.write_bytes(table_of([(row[1], row[0]) for row in proposed[::3]]))
    args = ("generate", "-m", inverse, "-n", 6)
    marked = columns(run(*args, "--table", table, stdin=STDIN).out)
    assert marked == [[row[1], row[0], *row[2:], b"0" if i % 3 else b"1"] for i, row in enumerate(proposed)]
    scored = run("score", "-m", inverse, stdin=b"".join(b"%b\t%b\n" % tuple(row[:2]) for row in marked))
    assert [float(row[0]) for row in columns(scored.out)] == pytest.approx([float(row[2]) for row in proposed], abs=1e-4)
    first = json.loads(run(*args, "--format", "jsonl", stdin=STDIN).out.splitlines()[0])
    assert (first["target"], first["proposals"][0]["source"].encode()) == ("the house", proposed[0][1])
    taken = columns(run(*args, "--from-table", 2, table).out)
    assert {row[1] for row in taken} <= set(SOURCES)


def test_factors(run: Run, model_dir: str, proposed: Rows, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save(replace(load(model_dir), factors=(1, 0)), str(tmp_path / "model"))
    table = tmp_path / "table"
    table.write_bytes(table_of([(b"B|old", proposed[6][1].replace(b" ", b"|Y ") + b"|X")]))
    args = ("generate", "-m", tmp_path / "model", "-n", 6)
    done = run(*args, "--table", table, stdin=b"A|old\nold\n")
    assert done.status == 1, "all phrases are read before"
    assert "error: <stdin>:2: source word 'old' has no factor 1; " in done.last_line
    done = run(*args, "--table", table, stdin=b"A|old\n")
    found = columns(done.out)
    assert [(row[0], row[1], row[4]) for row in found] == [
        (b"A|old", row[1], b"0" if i else b"1") for i, row in enumerate(proposed[6:12])
    ]
    plain = run(*args, "--from-table", 1, tmp_path / "table")
    assert columns(plain.out)[0][0] == b"B|old"
    table.write_bytes(table_of([(b"old", b"y")]))
    assert f"error: {table}: source word 'old' has no factor 1" in run(*args, "--from-table", 1, table).last_line


@pytest.mark.parametrize(("line", "told"), [
    (b"", "the line is empty; write one source phrase a line"),
    (b"the ||| das", "'the ||| das' is more than a source phrase; write one phrase a line and nothing else"),
])  # fmt: skip
def test_a_bad_line_is_named_after_the_proposals_before_it(run, model_dir, proposed, line, told) -> None:
    done = run("generate", "-m", model_dir, "-n", 6, stdin=STDIN + line + b"\nthe\n")
    assert done.status == 1
    assert columns(done.out) == proposed
    assert f"error: <stdin>:5: {told}" in done.last_line


@pytest.mark.parametrize("phrase", [
    b"\0", b"\xff\xfe", "\u2028 \u00a0".encode(), b"\x0b", b"</s>", b"UNK", b"|", b"a|b", b"x" * 100_000, b"y " * 1000,
], ids=lambda phrase: str(phrase)[:20])  # fmt: skip
def test_hostile_phrases_are_phrases(run: Run, model_dir: str, phrase: bytes) -> None:
    done = run("generate", "-m", model_dir, "-n", 2, stdin=phrase + b"\n" + phrase)
    assert done.status == 0, done.err
    assert [row[0] for row in columns(done.out)] == [b" ".join(phrase.split(b" ")).strip(b" ")] * 4


def test_a_bad_table_is_named(run: Run, model_dir: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_bytes(table_of([(b"x", b"y")]) + b"x ||| y\n")
    for args in (["--table", table], ["--from-table", 3, table]):
        done = run("generate", "-m", model_dir, *args, stdin=STDIN)
        assert (done.status, done.out) == (1, b"")
        assert f"error: {table}:2: 2 fields in 'x ||| y'; " in done.last_line


CONTRADICTIONS = {
    "beam": (["--random", "--beam", 3], "--beam finds the most probable hypotheses, --random draws them; give one"),
    "temperature": (["--temperature", 2], "--temperature and --top-k are for hypotheses drawn at random; add --random"),
    "only-new": (["--only-new"], "--only-new needs --table TABLE"),
    "tokenize": (["--from-table", 3, __file__, "--tokenize", "en"], "--tokenize and --flush are for lines of standard input"),
    "flush": (["--flush", "--table", __file__], "--flush answers at once, but --table needs all phrases first"),
    "lowercase": (["--lowercase"], "--lowercase is for typed text; name the language with --tokenize LANG"),
    "stdin": (["--table", "-"], "--table -: phrases are read from standard input; name a file"),
}


@pytest.mark.parametrize(("args", "told"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_options_that_contradict_each_other(run: Run, model_dir: str, args: list[object], told: str) -> None:
    done = run("generate", "-m", model_dir, *args, stdin=STDIN)
    assert (done.status, done.out) == (2, b"")
    assert done.last_line.startswith(f"phrase-rescore: error: {told}")


def test_a_model_that_never_saw_unknown_words(run: Run, make_model: MakeModel) -> None:
    forward = make_model(unk_shares=(0.1, 0.0))
    assert "warning" not in run("generate", "-m", forward, stdin=b"the\n").err
    warning = "warning: no target word was unknown in training: proposals with such a word mean nothing"
    assert warning in run("generate", "-m", forward, "--unk", stdin=b"the\n").err
    assert "no source word was" in run("generate", "-m", make_model(unk_shares=(0.0, 0.1)), stdin=b"the\n").err
