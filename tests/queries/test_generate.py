"""``phrase-rescore generate``: phrases in, hypotheses out."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MakeModel, Run

from phrase_rescore.rnn.checkpoint import load, save

SOURCES = [b"the house", b"old", b"a\xff zzz is", "café".encode()]
STDIN = b"".join(source + b"\n" for source in SOURCES)
Rows = list[list[bytes]]


def columns(out: bytes) -> Rows:
    return [line.split(b"\t") for line in out.split(b"\n")[:-1]]


@pytest.fixture(scope="module")
def proposed(run: Run, model_dir: str) -> Rows:
    return columns(run("generate", "-m", model_dir, "-n", 6, stdin=STDIN).out)


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


def test_an_inverse_model_proposes_sources(run: Run, model_dir: str, proposed: Rows, tmp_path: Path) -> None:
    forward = load(model_dir)
    inverse = tmp_path / "inverse"
    inverse.mkdir()
    save(replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True), str(inverse))
    turned = columns(run("generate", "-m", inverse, "-n", 6, stdin=STDIN).out)
    assert turned == [[row[1], row[0], *row[2:]] for row in proposed]
    scored = run("score", "-m", inverse, stdin=b"".join(b"%b\t%b\n" % tuple(row[:2]) for row in turned))
    assert [float(row[0]) for row in columns(scored.out)] == pytest.approx([float(row[2]) for row in proposed], abs=1e-4)


def test_factors(run: Run, model_dir: str, proposed: Rows, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save(replace(load(model_dir), factors=(1, 0)), str(tmp_path / "model"))
    args = ("generate", "-m", tmp_path / "model", "-n", 6)
    done = run(*args, stdin=b"A|old\nold\n")
    assert done.status == 1
    assert "error: <stdin>:2: source word 'old' has no factor 1; " in done.last_line
    assert [row[:2] for row in columns(run(*args, stdin=b"A|old\n").out)] == [[b"A|old", row[1]] for row in proposed[6:12]]


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


CONTRADICTIONS = {
    "beam": (["--random", "--beam", 3], "--beam finds the most probable hypotheses, --random draws them; give one"),
    "temperature": (["--temperature", 2], "--temperature and --top-k are for hypotheses drawn at random; add --random"),
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
