"""Files of sufficient statistics: sacrebleu's counts of every segment of an output, from which all figures follow, no text.

A file is text in gzip. The first line is a JSON object that says what the counts rest on, the second has the names of the
columns, and each other line has the counts of a segment, between tabs. ``docs/format.md`` describes it to its readers. Files of
version 1 lack the columns that follow from others; they are read, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric

from phrase_rescore.errors import InputError, RowError, counted, shown
from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.evaluation.metrics import METRICS, EvaluationSettings
from phrase_rescore.files.outputs import atomic_output, gzip_member
from phrase_rescore.ranges import Whole

Counts = NDArray[np.float64]  # (segments, width), as sacrebleu lays them out

FORMAT, VERSION = "phrase-rescore segment statistics", 2
_BEGINNING = json.dumps({"format": FORMAT}).removesuffix("}").encode() + b","
COLUMNS = {
    "BLEU": ["bleu.sys_len", "bleu.ref_len", *(f"bleu.{what}_{n}" for what in ("correct", "total") for n in range(1, 5))],
    "chrF2": [f"chrf.{what}_{n}" for n in range(1, 7) for what in ("sys", "ref", "match")],
    "TER": ["ter.edits", "ter.ref_length"],
}
_COLUMNS_OF_1 = {
    "BLEU": COLUMNS["BLEU"][:6],
    "chrF2": ["chrf.sys_len", "chrf.ref_len", *(f"chrf.match_{n}" for n in range(1, 7))],
    "TER": ["ter.edits", "ter.ref_lengths"],
}
_MOST = {"BLEU": [(2, 6), (3, 7), (4, 8), (5, 9)], "chrF2": [(3 * n + 2, 3 * n + side) for n in range(6) for side in (0, 1)]}
_NUMBER = rb"[0-9]{1,9}(?:\.[0-9]{1,17})?"
_ROW = re.compile(rb"%b(?:\t%b)*\n" % (_NUMBER, _NUMBER))
_AGAIN = "copy the file again, or write it again with evaluate --statistics"


@dataclass(frozen=True)
class Basis:
    """What counts rest on: outputs are compared only if they share it, the versions apart."""

    segments: int
    references: int  # how many there are
    references_sha256: str  # of ``digest``
    tokenize: str
    detokenize: str | None
    lowercase: bool
    signatures: dict[str, str]  # by the names of sacrebleu's scores
    sacrebleu: str  # its version
    sacremoses: str | None  # its version, None if nothing was detokenized

    @classmethod
    def of(cls, references: Sequence[Segments], settings: EvaluationSettings) -> Basis:
        """Say what counts against these references rest on, under these settings."""
        signatures = settings.signatures(len(references))
        return cls(
            len(references[0]), len(references), digest(references), settings.tokenization, settings.detokenize,
            settings.lowercase, {name: signatures[name] for name in METRICS.values() if name in signatures},
            version("sacrebleu"), settings.sacremoses,
        )  # fmt: skip

    def names(self, columns: Mapping[str, Sequence[str]] = COLUMNS) -> list[str]:
        """Return the names of the columns of a file."""
        return [name for metric in self.signatures for name in columns[metric]]


@dataclass(frozen=True)
class OutputStatistics:
    """The counts of an output, segment by segment, for each metric by the name of its score."""

    basis: Basis
    counts: dict[str, Counts]

    def __len__(self) -> int:
        return self.basis.segments


def digest(references: Sequence[Segments]) -> str:
    """Return the SHA-256 of references as they are scored: of their lines, each with a newline, one reference after the other.

    >>> digest([("a b", "c")]) == hashlib.sha256(b"a b\\nc\\n").hexdigest()
    True
    """
    return hashlib.sha256("".join(f"{segment}\n" for segments in references for segment in segments).encode()).hexdigest()


def count(output: Segments, metrics: Mapping[str, Metric], basis: Basis) -> OutputStatistics:
    """Let metrics that have their references count."""
    counts = {name: np.array(metric._extract_corpus_statistics(output, None), float) for name, metric in metrics.items()}
    return OutputStatistics(basis, counts)


def write_statistics(path: str, statistics: OutputStatistics) -> None:
    """Write a file, the same bytes for the same counts. Raises what ``atomic_output`` raises."""
    basis = statistics.basis
    head = {"format": FORMAT, "version": VERSION, **asdict(basis)}
    lines = [json.dumps(head, ensure_ascii=False), "\t".join(basis.names())]
    for row in np.concatenate([statistics.counts[name] for name in basis.signatures], axis=1).tolist():
        lines.append("\t".join(f"{number:.17g}" for number in row))
    with atomic_output(path) as stream:
        stream.write(gzip_member("".join(f"{line}\n" for line in lines).encode(), "9"))


def is_statistics(rows: Sequence[bytes]) -> bool:
    """Tell by the first row whether a file has statistics."""
    return rows[0].startswith(_BEGINNING)


def _parse_head(row: bytes) -> tuple[Basis, int]:
    """Read the first line and the version of the format. Raises RowError."""
    try:
        head = json.loads(row)
    except (ValueError, RecursionError):
        raise RowError("the first line of statistics is not JSON", _AGAIN) from None
    number = head.pop("version", None)
    if number not in (1, VERSION):
        found = f"statistics in version {shown(str(number))} of their format where 1 and {VERSION} are read"
        raise RowError(found, "write them again with this version's evaluate --statistics")
    names = [field.name for field in fields(Basis)]
    if sorted(head) != sorted(["format", *names]):
        raise RowError(f"the first line of statistics has not exactly the entries {', '.join(names)}", _AGAIN)
    optional = head["detokenize"] is None
    right = {
        "segments": head["segments"] in Whole(1, 10**9),
        "references": head["references"] in Whole(1, 10**6),
        "detokenize": optional or _is_text(head["detokenize"]),
        "lowercase": isinstance(head["lowercase"], bool),
        "signatures": _are_signatures(head["signatures"]),
        "sacremoses": head["sacremoses"] is None if optional else _is_text(head["sacremoses"]),
        **{name: _is_text(head[name]) for name in ("references_sha256", "tokenize", "sacrebleu")},
    }
    for name in names:
        if not right[name]:
            raise RowError(f"{name} of statistics is {shown(json.dumps(head[name]))}", _AGAIN)
    return Basis(**{name: head[name] for name in names}), number


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 1000


def _are_signatures(value: Any) -> bool:
    """Tell whether these are signatures of some metrics, in their order."""
    if not isinstance(value, dict) or not all(map(_is_text, value.values())):
        return False
    return bool(value) and list(value) == [name for name in METRICS.values() if name in value]


def parse_statistics(path: str, rows: Sequence[bytes]) -> OutputStatistics:
    """Make statistics of a file's rows. Raises InputError, with the line, for a damaged file or another version's."""
    line = 1
    try:
        basis, number = _parse_head(rows[0])
        columns = _COLUMNS_OF_1 if number == 1 else COLUMNS
        names, line = basis.names(columns), 2
        if rows[1:2] != ["\t".join(names).encode() + b"\n"]:
            raise RowError(f"{shown(b''.join(rows[1:2]))} does not name the columns {' '.join(names)}", _AGAIN)
        for line, row in enumerate(rows[2:], 3):
            if line > basis.segments + 2:
                raise RowError(f"a line after the {counted(basis.segments, 'segment')} that the first line names", _AGAIN)
            if not _ROW.fullmatch(row) or row.count(b"\t") != len(names) - 1:
                raise RowError(f"{shown(row)} is not {len(names)} numbers between tabs", _AGAIN)
    except RowError as error:
        raise error.at(path, line) from None
    if line < basis.segments + 2:
        raise InputError(path, f"{line - 2:,} of {counted(basis.segments, 'segment')}; the file is cut off", _AGAIN, line)
    numbers = np.array([row.split(b"\t") for row in rows[2:]]).astype(float)
    ends = np.cumsum([len(columns[metric]) for metric in basis.signatures])[:-1]
    counts = dict(zip(basis.signatures, np.split(numbers, ends, axis=1), strict=True))
    if number == 1:
        counts = {metric: _completed(metric, of_metric, basis.references) for metric, of_metric in counts.items()}
    for metric, pairs in _MOST.items():
        for match, possible in pairs if metric in counts else ():
            over = counts[metric][:, match] > counts[metric][:, possible]
            if over.any():
                found = f"{COLUMNS[metric][match]} is more than {COLUMNS[metric][possible]}, and cannot be"
                raise InputError(path, found, _AGAIN, int(over.argmax()) + 3)
    return OutputStatistics(basis, counts)


def _completed(metric: str, columns: Counts, references: int) -> Counts:
    """Make sacrebleu's counts of the columns of version 1."""
    if metric == "TER":
        return columns / [1, references]
    of_system, of_reference, matches = columns[:, :1], columns[:, 1:2], columns[:, 2:]
    orders = np.arange(matches.shape[1])
    ours, theirs = np.maximum(of_system - orders, 0), np.maximum(of_reference - orders, 0)
    if metric == "BLEU":
        return np.concatenate([columns, ours], axis=1)
    ours = np.where(theirs > 0, ours, 0)  # as sacrebleu counts them
    return np.stack([ours, theirs, matches], axis=-1).reshape(len(columns), -1)
