"""The shortlists of a training on pairs: counted, or given and judged by the pairs."""

from pathlib import Path

import pytest
from small_trainings import trained

from phrase_rescore.errors import OptionError
from phrase_rescore.training.config import Observer


def write_vocabularies(folder: Path, source: str, target: str) -> dict[str, str]:
    """Words with blanks between to files, and the settings that name them."""
    for side, words in (("source", source), ("target", target)):
        (folder / f"{side}.vocab").write_text("".join(f"{word}\t1\n" for word in words.split()))
    return {f"{side}_vocab": str(folder / f"{side}.vocab") for side in ("source", "target")}


def test_what_is_said_of_unknown_words(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"s{i} x\tt{i}\n" for i in range(40)))
    said, warned = list[str](), list[str]()
    trained(tmp_path, observer=Observer(said.append, warned.append), max_steps=1)
    assert any("source: 40 of 41 words" in line and "1 rarest" in line for line in said)
    given = write_vocabularies(tmp_path, " ".join(["x", *(f"s{i}" for i in range(40))]), " ".join(f"t{i}" for i in range(40)))
    checkpoint = trained(tmp_path, "full", Observer(warn=warned.append), max_steps=1, **given)
    assert checkpoint.unk_shares == (0.0, 0.0)
    assert sum("UNK" in line for line in warned) == 2


NUMBERED = " ".join(f"c{i}" for i in range(10))


@pytest.mark.parametrize(("words", "share"), [(f"a b {NUMBERED}", ""), (f"a b {NUMBERED[:-9]}", ""), ("a b", "66.7%")])
def test_given_vocabularies_are_judged_by_the_pairs(tmp_path: Path, words: str, share: str) -> None:
    """When the prepared pairs are found again, too."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a b c{i}\tx\n" for i in range(10)))
    given = {"pairs_dir": str(tmp_path / "pairs"), **write_vocabularies(tmp_path, words, "x z")}
    heard: list[str] = []
    for name in ("model", "again"):
        trained(tmp_path, name, Observer(warn=heard.append), max_steps=1, **given)
    warned = [line for line in heard if "--source-vocab" in line]
    assert len(warned) == (2 if share else 0)
    assert all(share in line for line in warned)


def test_a_vocabulary_of_less_than_half_of_the_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"a b c{i}\tx\n" for i in range(10)))
    given = write_vocabularies(tmp_path, "a", "x z")
    for _ in range(2):
        with pytest.raises(OptionError, match=r"--source-vocab .*/source.vocab has 33.3%"):
            trained(tmp_path, max_steps=1, **given)
    (tmp_path / "pairs.tsv").write_text("a b\tx\n")
    trained(tmp_path, max_steps=1, **given)
