"""What the tests against a decoder need: programs found, an ini, a run whose failure shows everything, n-best lists read."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phrase_rescore.moses.hypotheses import Derivation, read_entries


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
    phrases: Derivation

    def pairs(self, source: Sequence[bytes]) -> list[bytes]:
        """Its phrase pairs as lines for ``phrase-rescore score``."""
        return [b"%b\t%b\n" % (b" ".join(source[first : last + 1]), tgt) for first, last, tgt in self.phrases]


def read_nbest(data: bytes) -> list[Candidate]:
    """The entries of an n-best list with segmentation (``moses/Manager.cpp``)."""
    found = list[Candidate]()
    for entry in read_entries(data.split(b"\n")[:-1], "nbest"):
        features = {name: tuple(values) for name, values in entry.features().items()}
        found.append(Candidate(entry.segment, tuple(entry.hypothesis()), features, entry.total(), entry.derivation()))
    return found


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
