"""What the tests against a decoder need: programs found, an ini, a run whose failure shows everything, n-best lists read."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SPANS = re.compile(rb"(\d+)(?:-(\d+))?=(\d+)(?:-(\d+))?")


def found_decoder(value: str) -> Path:
    """The decoder that MOSES_BIN names: the program itself, the folder it is in, or the installation.

    Raises FileNotFoundError with the places looked at.
    """
    places = [Path(value), Path(value, "moses"), Path(value, "bin", "moses")]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place.absolute()
    raise FileNotFoundError(f"MOSES_BIN={value}: no program at {', '.join(map(str, places))}")


def found_scripts(decoder: Path, value: str | None) -> Path | None:
    """Moses' scripts: MOSES_SCRIPTS, or beside the decoder or its folder."""
    places = [Path(value)] if value else [decoder.parent.parent / "scripts", decoder.parent / "scripts"]
    return next((place.absolute() for place in places if (place / "training/filter-model-given-input.pl").is_file()), None)


def run_program(command: Sequence[object], folder: Path, env: Mapping[str, str] | None = None) -> bytes:
    """Standard output. AssertionError with command, output and messages if the program does not end well."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert done.returncode == 0, "\n".join(
        [
            f"exit status {done.returncode} of: {' '.join(words)}",
            f"in {folder}",
            f"---- stdout\n{done.stdout[-3000:].decode(errors='backslashreplace')}",
            f"---- stderr\n{done.stderr[-3000:].decode(errors='backslashreplace')}",
        ]
    )
    return done.stdout


def ini_text(table: object, n_columns: int, arpa: object = None) -> str:
    """A moses.ini of a phrase table and, if ``arpa`` is given, a language model: whole paths, no reordering, and so no ties."""
    lines = [
        "[input-factors]", "0", "[mapping]", "0 T 0", "[distortion-limit]", "0", "[feature]",
        "UnknownWordPenalty", "WordPenalty", "PhrasePenalty", "Distortion",
        f"PhraseDictionaryMemory name=TranslationModel0 num-features={n_columns} path={table} input-factor=0 output-factor=0",
        *([f"KENLM name=LM0 factor=0 path={arpa} order=2 lazyken=0"] if arpa else []),
        "[weight]",
        "UnknownWordPenalty0= 1", "WordPenalty0= -0.1", "PhrasePenalty0= 0.2", "Distortion0= 0.3",
        f"TranslationModel0= {' '.join(['0.1', '0.1', '0.5', '0.1'][:n_columns])}",
        *(["LM0= 0.1"] if arpa else []),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Candidate:
    """An entry of an n-best list."""

    sentence: int
    target: tuple[bytes, ...]
    features: dict[bytes, tuple[float, ...]]
    total: float
    spans: tuple[tuple[slice, slice], ...]  # of the source and of the target, for every phrase pair

    def pairs(self, source: Sequence[bytes]) -> list[bytes]:
        """Its phrase pairs as lines for ``phrase-rescore score``."""
        return [b"%b\t%b\n" % (b" ".join(source[src]), b" ".join(self.target[tgt])) for src, tgt in self.spans]


def _slice(first: bytes, last: bytes | None) -> slice:
    return slice(int(first), int(last or first) + 1)


def read_nbest(data: bytes) -> list[Candidate]:
    """The entries of an n-best list with segmentation (``moses/Manager.cpp``).

    AssertionError, with the line, for anything else.
    """
    candidates = []
    for line in data.split(b"\n")[:-1]:
        fields = [field.split() for field in line.split(b"|||")]
        assert len(fields) >= 5, f"no segmentation in {line!r}"
        features: dict[bytes, list[float]] = {}
        values: list[float] | None = None
        for word in fields[2]:
            if word.endswith(b"="):
                values = features.setdefault(word[:-1], [])
            else:
                assert values is not None, f"a value before any name in {line!r}"
                values.append(float(word))
        matches = [SPANS.fullmatch(word) for word in fields[4]]
        assert matches, f"no segmentation in {line!r}"
        assert all(matches), f"no segmentation in {line!r}"
        spans = tuple((_slice(m[1], m[2]), _slice(m[3], m[4])) for m in matches if m)
        values_of = {name: tuple(found) for name, found in features.items()}
        candidates.append(Candidate(int(fields[0][0]), tuple(fields[1]), values_of, float(fields[3][0]), spans))
    return candidates


@dataclass(frozen=True)
class Decoded:
    output: bytes
    nbest: list[Candidate]


def decode(decoder: Path, ini: Path, sentences: bytes, folder: Path) -> Decoded:
    """The translations of sentences, a line each, and their 50-best lists with segmentation."""
    folder.mkdir()
    (folder / "input").write_bytes(sentences)
    output = run_program(
        [
            decoder, "-config", ini, "-input-file", folder / "input", "-n-best-list", folder / "nbest", 50,
            "-include-segmentation-in-n-best", "-threads", 1,
        ],
        folder,
    )  # fmt: skip
    assert output.count(b"\n") == sentences.count(b"\n"), f"{ini}: {output!r} is not a line for every one of {sentences!r}"
    return Decoded(output, read_nbest((folder / "nbest").read_bytes()))
