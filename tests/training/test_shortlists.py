"""The shortlists of a training on pairs: counted, or given and judged by the pairs."""

from pathlib import Path

import pytest
from small_trainings import Training

from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.training.config import Observer


def trained(folder: Path, name: str = "model", observer: Observer | None = None, **settings: object) -> Checkpoint:
    """Trains on ``pairs.tsv`` of the folder into ``name`` beside it, for a step."""
    return Training((str(folder / "pairs.tsv"),), str(folder / name)).but(max_steps=1, **settings).run(observer)


def write_vocabularies(folder: Path, source: str, target: str) -> dict[str, str]:
    """Words with blanks between to files, and the settings that name them."""
    for side, words in (("source", source), ("target", target)):
        (folder / f"{side}.vocab").write_text("".join(f"{word}\t1\n" for word in words.split()))
    return {f"{side}_vocab": str(folder / f"{side}.vocab") for side in ("source", "target")}


def test_what_is_said_of_unknown_words(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"s{i} x\tt{i}\n" for i in range(40)))
    said, warned = list[str](), list[str]()
    trained(tmp_path, observer=Observer(said.append, warned.append))
    assert any("source: 40 of 41 words" in line and "1 rarest" in line for line in said)
    given = write_vocabularies(tmp_path, " ".join(["x", *(f"s{i}" for i in range(40))]), " ".join(f"t{i}" for i in range(40)))
    checkpoint = trained(tmp_path, "full", Observer(warn=warned.append), **given)
    assert checkpoint.unk_shares == (0.0, 0.0)
    assert sum("UNK" in line for line in warned) == 2


def test_words_counted_over_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\tc d\nb\td\n")
    (tmp_path / "corpus.src").write_text("a a z z z\n")
    (tmp_path / "corpus.tgt").write_text("d d d c q\n")
    corpus = (str(tmp_path / "corpus.src"), str(tmp_path / "corpus.tgt"))
    trained(tmp_path, "m", shortlist=2, vocab_corpus=corpus, allow_poor_coverage=True)
    assert (tmp_path / "m" / "target.vocab").read_bytes() == b"d\t3\nc\t1\n"


def test_a_corpus_of_other_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\tc d\n")
    (tmp_path / "other").write_text("q r\n")
    with pytest.raises(OptionError, match="--vocab-corpus: the source shortlist has 0.0%"):
        trained(tmp_path, vocab_corpus=(str(tmp_path / "other"), str(tmp_path / "other")))


NUMBERED = " ".join(f"c{i}" for i in range(10))


@pytest.mark.parametrize(("words", "share"), [(f"a b {NUMBERED}", ""), (f"a b {NUMBERED[:-9]}", ""), ("a b", "66.7%")])
def test_given_vocabularies_are_judged_by_the_pairs(tmp_path: Path, words: str, share: str) -> None:
    """With the words that lack, commonest first; and without them when the prepared pairs are found again."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a b c{i}\tx\n" for i in range(10)))
    given = {"pairs_dir": str(tmp_path / "pairs"), **write_vocabularies(tmp_path, words, "x z")}
    heard: list[str] = []
    for name in ("model", "again"):
        trained(tmp_path, name, Observer(warn=heard.append), **given)
    warned = [line for line in heard if "--source-vocab" in line]
    assert len(warned) == (2 if share else 0)
    if share:
        assert all(share in line for line in warned)
        assert ["'c0' 1, 'c1' 1" in line for line in warned] == [True, False]


def test_a_vocabulary_of_less_than_half_of_the_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"a b c{i}\tx\n" for i in range(10)))
    given = {"pairs_dir": str(tmp_path / "pairs"), **write_vocabularies(tmp_path, "a", "x z")}
    with pytest.raises(OptionError, match=r"--source-vocab .*/source.vocab has 33.3% .*'b' 10.*--allow-poor-coverage"):
        trained(tmp_path, **given)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.tsv", "source.vocab", "target.vocab"]
    trained(tmp_path, **given, allow_poor_coverage=True)
    with pytest.raises(OptionError, match="33.3%"):
        trained(tmp_path, "again", **given)


@pytest.mark.parametrize(("row", "source", "target", "cause"), [
    ("a b\tx y", "x y", "a b", "swapped"),
    ("a b\tx y", "A B", "x y", "letter case"),
    ("a b\tx y", "a|N b|V", "x y", "the vocabulary's text had factors"),
    ("a|N b|V\tx|N y|V", "a b", "x y", "the input has factors"),
])  # fmt: skip
def test_why_a_given_vocabulary_does_not_fit(tmp_path: Path, row: str, source: str, target: str, cause: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{row}\n")
    given = write_vocabularies(tmp_path, source, target)
    with pytest.raises(OptionError, match=f"likely cause: .*{cause}"):
        trained(tmp_path, **given)
    if "|" in row:
        trained(tmp_path, **given, factors=(0, 0))
