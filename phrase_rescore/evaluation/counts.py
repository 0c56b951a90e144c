"""The counts of an output, segment by segment, from which its scores follow, and files of these (docs/format.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import get_type_hints

import numpy as np

from phrase_rescore.errors import InputError
from phrase_rescore.evaluation.corpora import Segments, read_lines, reference_of, segments_of
from phrase_rescore.evaluation.metrics import Counts, EvaluationSettings
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.outputs import atomic_output, gzip_member
from phrase_rescore.moses.parallel import Doubts
from phrase_rescore.moses.text import sacremoses_version

FORMAT, VERSION = "phrase-rescore segment statistics", 2
_BEGINNING = json.dumps({"format": FORMAT}).removesuffix("}").encode() + b","
COLUMNS = {
    "BLEU": ["bleu.sys_len", "bleu.ref_len", *(f"bleu.{what}_{n}" for what in ("correct", "total") for n in range(1, 5))],
    "chrF2": [f"chrf.{what}_{n}" for n in range(1, 7) for what in ("sys", "ref", "match")],
    "TER": ["ter.edits", "ter.ref_length"],
}
_NUMBER = rb"[0-9]{1,9}(?:\.[0-9]{1,17})?"
_ROW = re.compile(rb"%b(?:\t%b)*\n" % (_NUMBER, _NUMBER))


@dataclass(frozen=True)
class Basis:
    """What counts depend on: outputs are compared only if they share it, except for the versions."""

    segments: int
    references: int  # how many there are
    references_sha256: str  # of their lines as they are scored, each with a newline, one reference after the other
    tokenize: str
    detokenize: str | None
    lowercase: bool
    signatures: dict[str, str]  # by the names of sacrebleu's scores
    sacrebleu: str  # its version
    sacremoses: str | None  # its version if it detokenized the text

    def __post_init__(self) -> None:
        """Raise ValueError for a value of another kind, which a damaged file may have."""
        kinds = get_type_hints(Basis) | {"signatures": dict}
        right = all(isinstance(value, kinds[name]) for name, value in vars(self).items())
        if not right or self.references < 1 or not all(isinstance(text, str) for text in self.signatures.values()):
            raise ValueError

    @classmethod
    def of(cls, references: Sequence[Segments], settings: EvaluationSettings) -> Basis:
        """Return what counts against these references depend on, with these settings."""
        text = "".join(f"{segment}\n" for segments in references for segment in segments)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        scored = settings.tokenization, settings.detokenize, settings.lowercase
        by = None if settings.detokenize is None else sacremoses_version()
        return cls(
            len(references[0]), len(references), sha256, *scored, settings.signatures(len(references)), version("sacrebleu"), by
        )

    def names(self) -> list[str]:
        """Return the names of the columns of a file."""
        return [name for metric in self.signatures for name in COLUMNS[metric]]


@dataclass(frozen=True)
class OutputStatistics:
    """The counts of an output, segment by segment, for each metric by the name of its score."""

    basis: Basis
    counts: dict[str, Counts]

    def __len__(self) -> int:
        return self.basis.segments


def write_statistics(path: str, statistics: OutputStatistics) -> None:
    """Write a file, the same bytes for the same counts. Raises what ``atomic_output`` raises."""
    basis = statistics.basis
    head = json.dumps({"format": FORMAT, "version": VERSION, **asdict(basis)}, ensure_ascii=False)
    rows = np.concatenate([statistics.counts[name] for name in basis.signatures], axis=1).tolist()
    lines = [head, "\t".join(basis.names()), *("\t".join(f"{number:.17g}" for number in row) for row in rows)]
    with atomic_output(path) as stream:
        stream.write(gzip_member("".join(f"{line}\n" for line in lines).encode(), "9"))


def read_output(path: str, of_reference: Doubts | None = None) -> Segments | OutputStatistics:
    """Read a file of text, as a reference if that may be doubted, or of statistics. Raises InputError."""
    rows, name = read_lines(path), display_name(path)
    if rows[0].startswith(_BEGINNING):
        return parse_statistics(name, rows)
    return segments_of(name, rows) if of_reference is None else reference_of(path, rows, of_reference)


def parse_statistics(path: str, rows: Sequence[bytes]) -> OutputStatistics:
    """Make statistics of a file's rows. Raises InputError for a damaged file or another version's."""
    try:
        head = json.loads(rows[0])
        del head["format"]
        if head.pop("version") != VERSION:
            raise ValueError
        basis = Basis(**head)
        return OutputStatistics(basis, _counts(basis, rows))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        found = f"statistics that are damaged, or not of format version {VERSION}"
        raise InputError(path, found, "write them again with evaluate --statistics") from None


def _counts(basis: Basis, rows: Sequence[bytes]) -> dict[str, Counts]:
    """Read the numbers of all segments. Raises ValueError if they are damaged."""
    names = basis.names()
    heading = "\t".join(names).encode() + b"\n"
    if rows[1] != heading or len(rows) != basis.segments + 2 or not all(map(_ROW.fullmatch, rows[2:])):
        raise ValueError
    numbers = np.array([row.split(b"\t") for row in rows[2:]]).astype(float).reshape(basis.segments, len(names))
    ends = np.cumsum([len(COLUMNS[metric]) for metric in basis.signatures])[:-1]
    return dict(zip(basis.signatures, np.split(numbers, ends, axis=1), strict=True))
