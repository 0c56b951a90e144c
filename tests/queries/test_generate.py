"""``phrase-rescore generate``: phrases in, hypotheses out."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Run

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
    for extra in ([], ["--random"], ["--unk", "--beam", 3]):
        done = run("generate", "-m", model_dir, "-n", 6, *extra, stdin=STDIN)
        assert done.status == 0, done.err
        found = columns(done.out)
        assert [row[0] for row in found] == [source for source in SOURCES for _ in range(6)]
        scored = columns(run("score", "-m", model_dir, stdin=b"".join(b"%b\t%b\n" % tuple(row[:2]) for row in found)).out)
        assert [float(row[2]) for row in found] == pytest.approx([float(row[0]) for row in scored], abs=1e-4)
        if "--unk" not in extra:  # the model of these tests has a word that is spelt UNK
            assert [row[3] for row in found] == [row[1] for row in scored]
    assert [float(row[2]) for row in proposed[:6]] == sorted((float(row[2]) for row in proposed[:6]), reverse=True)
    assert "4 phrases, 24 proposals" in done.err
    assert run("generate", "-m", model_dir, "-q", stdin=STDIN).err == ""


@pytest.mark.slow
def test_random_proposals_depend_on_seed_and_phrase_alone(run: Run, model_dir: str) -> None:
    def drawn(seed: int, lines: list[bytes]) -> set[tuple[bytes, bytes]]:
        args = ("generate", "-m", model_dir, "-n", 5, "--random", "--seed", seed)
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


def test_options_that_contradict_each_other(run: Run, model_dir: str) -> None:
    done = run("generate", "-m", model_dir, "--random", "--beam", 3, stdin=STDIN)
    assert (done.status, done.out) == (2, b"")
    assert "--random" in done.last_line
    assert "--beam" in done.last_line
