"""What is read as training text: marks are left out; wrong pairs of files are seen before the first step."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from small_trainings import write_language

from phrase_rescore import api
from phrase_rescore.errors import InputError
from phrase_rescore.training.config import Observer

BOM = b"\xef\xbb\xbf"
TINY = {"hidden": 8, "embedding": 4, "max_steps": 1, "threads": 1}
WORDS = [b"w%d" % (i * i % 31) for i in range(300)]
Write = Callable[..., Path]


def trained(kind: str, inputs: list[Path], model: Path, **more: object) -> list[str]:
    """Train a model of a kind; return the warnings."""
    warned = list[str]()
    getattr(api, kind)(inputs, model, observer=Observer(warn=warned.append), **TINY | more)
    return [line for line in warned if "left out" in line or "swapped" in line or "start from" in line or "equal" in line]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, lines: list[bytes], end: bytes = b"\n") -> Path:
        (tmp_path / name).write_bytes(b"".join(line + end for line in lines))
        return tmp_path / name

    return written


def words_of(model: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model.iterdir() if path.suffix == ".vocab"}


@pytest.mark.parametrize("kind", ["train", "train_lm", "train_nmt"])
def test_marks_and_ends_of_lines_are_not_words(tmp_path: Path, write: Write, kind: str) -> None:
    plain = {"src": WORDS, "tgt": [word[::-1] for word in WORDS]}
    marked = {side: [b"<s> %b </s>" % line for line in lines] for side, lines in plain.items()}
    files = {}
    for name, texts, end in (("plain", plain, b"\n"), ("marked", marked, b"\r\n")):
        start = BOM if name == "marked" else b""
        rows = {"tsv": [b"\t".join(pair) for pair in zip(*texts.values(), strict=True)], **texts}
        files[name] = {file: write(f"{name}.{file}", [start + lines[0], *lines[1:]], end) for file, lines in rows.items()}
    wanted = {"train": ["tsv"], "train_lm": ["src"], "train_nmt": ["src", "tgt"]}[kind]
    warned = {name: trained(kind, [of[file] for file in wanted], tmp_path / name) for name, of in files.items()}
    assert words_of(tmp_path / "plain") == words_of(tmp_path / "marked")
    assert warned["plain"] == []
    boms = len(wanted)
    assert [line for line in warned["marked"] if f"byte order mark before {boms} line" in line]
    assert [line for line in warned["marked"] if f"around {300 if kind == 'train_lm' else 600} sentences" in line]


@pytest.mark.parametrize("side", [0, 1])
def test_a_mark_between_words_is_refused(tmp_path: Path, write: Write, side: int) -> None:
    files = [write("s", WORDS), write("t", WORDS[::-1])]
    files[side].write_bytes(files[side].read_bytes() + b"a <s> b\n")
    files[1 - side].write_bytes(files[1 - side].read_bytes() + b"a\n")
    with pytest.raises(InputError) as caught:
        trained("train_nmt", files, tmp_path / "m")
    assert (caught.value.path, caught.value.line) == (str(files[side]), 301)


def linked(path: Path) -> Path:
    path.with_name("link").symlink_to(path)
    return path.with_name("link")


def packed(path: Path) -> Path:
    path.with_name("t.gz").write_bytes(gzip.compress(path.read_bytes()))
    return path.with_name("t.gz")


@pytest.mark.parametrize("other", [lambda path: path, linked, packed])
def test_one_text_for_both_sides_is_refused(tmp_path: Path, write: Write, other: Callable[[Path], Path]) -> None:
    source = write("s", WORDS)
    with pytest.raises(InputError, match=f"^{source} and .*: source and target are the same text") as caught:
        trained("train_nmt", [source, other(source)], tmp_path / "m")
    assert not (tmp_path / "m").exists()
    assert "\n" not in str(caught.value)


def test_equal_columns_are_refused_and_many_equal_pairs_warned_of(tmp_path: Path, write: Write) -> None:
    pairs = write("pairs", [b"%b\t%b" % (word, word) for word in WORDS])
    with pytest.raises(InputError, match=f"^{pairs}: source and target are the same text"):
        trained("train", [pairs], tmp_path / "m")
    others = write("others", [b"%b\t%b" % (word, word if i % 3 else b"x") for i, word in enumerate(WORDS)])
    assert len(trained("train", [others, pairs], tmp_path / "m")) == 2  # a file of names, say, beside others


@pytest.mark.parametrize("kind", ["train", "train_nmt"])
def test_sides_are_swapped_as_the_model_that_is_there_shows(tmp_path: Path, write: Write, kind: str) -> None:
    write_language(tmp_path / "pairs", pairs=300)
    rows = [line.split(b"\t") for line in (tmp_path / "pairs").read_bytes().splitlines()]
    files = {}
    for name, sides in (("right", (0, 1)), ("swapped", (1, 0))):
        columns = [[row[side] for row in rows] for side in sides]
        files[name] = [write(f"{name}.{i}", lines) for i, lines in enumerate(columns)]
        if kind == "train":
            files[name] = [write(f"{name}.tsv", [b"\t".join(pair) for pair in zip(*columns, strict=True)])]
    assert trained(kind, files["right"], tmp_path / "m") == []
    assert trained(kind, files["right"], tmp_path / "m", overwrite=True) == []
    if kind == "train":
        with pytest.raises(InputError, match=r"swapped\.tsv: source and target seem swapped: .*unknown to --init-from"):
            trained(kind, files["swapped"], tmp_path / "other", init_from=str(tmp_path / "m"))
        assert trained(kind, files["right"], tmp_path / "other", init_from=str(tmp_path / "m")) == []
    (warning,) = trained(kind, files["swapped"], tmp_path / "m", overwrite=True)
    assert "source and target seem swapped" in warning
    assert trained(kind, files["swapped"], tmp_path / "m", overwrite=True) == [], "the model is of this direction now"


@pytest.mark.parametrize(("lines", "warnings"), [(WORDS, 0), ([b"other"] * 299 + WORDS[:1], 1)])
def test_a_model_to_start_from_knows_the_text(tmp_path: Path, write: Write, lines: list[bytes], warnings: int) -> None:
    trained("train_lm", [write("text", WORDS)], tmp_path / "lm")
    assert len(trained("train_lm", [write("more", lines)], tmp_path / "m", init_from=str(tmp_path / "lm"))) == warnings
