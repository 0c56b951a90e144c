"""Files of sufficient statistics: sacrebleu's counts of every segment of an output, from which all figures follow, no text.

A file is text in gzip. The first line is a JSON object that says what the counts rest on, the second has the names of the
columns, and each other line has the counts of a segment, whole numbers between tabs. What follows from other columns is left
out. ``docs/format.md`` describes it to its readers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any

from sacrebleu.metrics.base import Metric

from phrase_rescore.errors import InputError, RowError, counted, shown
from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.evaluation.metrics import METRICS, TOKENIZATIONS, Settings
from phrase_rescore.files.outputs import atomic_output, gzip_member
from phrase_rescore.ranges import Whole

Counts = list[list[float]]  # of every segment, as sacrebleu lays them out

FORMAT, VERSION = "phrase-rescore segment statistics", 1
_BEGINNING = json.dumps({"format": FORMAT}).removesuffix("}").encode() + b","
_COLUMNS = {
    "BLEU": ("bleu.sys_len", "bleu.ref_len", *(f"bleu.correct_{n}" for n in range(1, 5))),
    "chrF2": ("chrf.sys_len", "chrf.ref_len", *(f"chrf.match_{n}" for n in range(1, 7))),
    "TER": ("ter.edits", "ter.ref_lengths"),
}
_ROW = re.compile(rb"[0-9]{1,9}(?:\t[0-9]{1,9})*\n")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SEGMENTS, _REFERENCES = Whole(1, 10**9), Whole(1, 10**6)
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
    def of(cls, references: Sequence[Segments], settings: Settings) -> Basis:
        """Say what counts against these references rest on, under these settings."""
        signatures = settings.signatures(len(references))
        return cls(
            len(references[0]), len(references), digest(references), settings.tokenization, settings.detokenize,
            settings.lowercase, {name: signatures[name] for name in METRICS.values() if name in signatures},
            version("sacrebleu"), settings.sacremoses,
        )  # fmt: skip

    def columns(self) -> list[str]:
        """Return the names of the columns of a file."""
        return [column for name in self.signatures for column in _COLUMNS[name]]


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
    return OutputStatistics(basis, {name: metric._extract_corpus_statistics(output, None) for name, metric in metrics.items()})


def _packed(name: str, counts: Sequence[float], references: int) -> Sequence[float]:
    """Return the columns of a segment's counts."""
    if name == "BLEU":
        return counts[:6]
    if name == "chrF2":
        return [*counts[:2], *counts[2::3]]
    edits, mean_length = counts
    return [edits, round(mean_length * references)]


def _unpacked(name: str, columns: Sequence[int], references: int) -> list[float]:
    """Return the counts of a segment, as sacrebleu makes them. Raises RowError for columns that cannot be."""
    if name == "TER":
        edits, lengths = columns
        return [edits, lengths / references]
    of_system, of_reference, *matches = columns
    wholes = [max(0, of_system - n) for n in range(len(matches))]  # n-grams of the output
    if name == "BLEU":
        possible, counts = wholes, [of_system, of_reference, *matches, *wholes]
    else:
        theirs = [max(0, of_reference - n) for n in range(len(matches))]
        wholes = [whole if their else 0 for whole, their in zip(wholes, theirs, strict=True)]  # as sacrebleu counts them
        possible = [min(pair) for pair in zip(wholes, theirs, strict=True)]
        counts = [count for triple in zip(wholes, theirs, matches, strict=True) for count in triple]
    for n, (match, most) in enumerate(zip(matches, possible, strict=True), 1):
        if match > most:
            column = _COLUMNS[name][n + 1]
            raise RowError(f"{column} is {match:,} where only {most:,} {n}-grams can match", _AGAIN)
    return list(counts)


def write_statistics(path: str, statistics: OutputStatistics) -> None:
    """Write a file, the same bytes for the same counts. Raises what ``atomic_output`` raises."""
    basis = statistics.basis
    head = {"format": FORMAT, "version": VERSION, **asdict(basis)}
    lines = [json.dumps(head, ensure_ascii=False), "\t".join(basis.columns())]
    for of_metrics in zip(*(statistics.counts[name] for name in basis.signatures), strict=True):
        columns = [
            column
            for name, counts in zip(basis.signatures, of_metrics, strict=True)
            for column in _packed(name, counts, basis.references)
        ]
        lines.append("\t".join(map(str, columns)))
    with atomic_output(path) as stream:
        stream.write(gzip_member("".join(f"{line}\n" for line in lines).encode(), "9"))


def is_statistics(rows: Sequence[bytes]) -> bool:
    """Tell by the first row whether a file has statistics."""
    return rows[0].startswith(_BEGINNING)


def _basis(row: bytes) -> Basis:
    """Read the first line. Raises RowError."""
    try:
        head = json.loads(row)
    except (ValueError, RecursionError):
        raise RowError("the first line of statistics is not JSON", _AGAIN) from None
    if head.get("version") != VERSION:
        found = f"statistics in version {shown(str(head.get('version')))} of their format where {VERSION} is read"
        raise RowError(found, "write them again with this version's evaluate --statistics")
    names = [field.name for field in fields(Basis)]
    if sorted(head) != sorted(["format", "version", *names]):
        raise RowError(f"the first line of statistics has not exactly the entries {', '.join(names)}", _AGAIN)
    wanted = {
        "segments": head["segments"] in _SEGMENTS,
        "references": head["references"] in _REFERENCES,
        "references_sha256": _is_text(head["references_sha256"]) and _SHA256.fullmatch(head["references_sha256"]),
        "tokenize": head["tokenize"] in TOKENIZATIONS,
        "detokenize": head["detokenize"] is None or _is_text(head["detokenize"]),
        "lowercase": isinstance(head["lowercase"], bool),
        "signatures": _are_signatures(head["signatures"]),
        "sacrebleu": _is_text(head["sacrebleu"]),
        "sacremoses": _is_text(head["sacremoses"]) if head["detokenize"] else head["sacremoses"] is None,
    }
    for name, is_right in wanted.items():
        if not is_right:
            raise RowError(f"{name} of statistics is {shown(json.dumps(head[name]))}", _AGAIN)
    return Basis(**{name: head[name] for name in names})


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
        basis = _basis(rows[0])
        columns, line = basis.columns(), 2
        if rows[1:2] != ["\t".join(columns).encode() + b"\n"]:
            raise RowError(f"{shown(b''.join(rows[1:2]))} does not name the columns {' '.join(columns)}", _AGAIN)
        counts: dict[str, Counts] = {name: [] for name in basis.signatures}
        for line, row in enumerate(rows[2:], 3):
            if line > basis.segments + 2:
                raise RowError(f"a line after the {counted(basis.segments, 'segment')} that the first line names", _AGAIN)
            for name, of_segment in _parse_row(row, basis).items():
                counts[name].append(of_segment)
    except RowError as error:
        raise error.at(path, line) from None
    if line < basis.segments + 2:
        raise InputError(path, f"{line - 2:,} of {counted(basis.segments, 'segment')}; the file is cut off", _AGAIN, line)
    return OutputStatistics(basis, counts)


def _parse_row(row: bytes, basis: Basis) -> dict[str, list[float]]:
    """Return the counts of a segment by metric. Raises RowError."""
    width = len(basis.columns())
    if not _ROW.fullmatch(row) or row.count(b"\t") != width - 1:
        raise RowError(f"{shown(row)} is not {width} whole numbers between tabs", _AGAIN)
    numbers = list(map(int, row.split(b"\t")))
    found = {}
    for name in basis.signatures:
        columns, numbers = numbers[: len(_COLUMNS[name])], numbers[len(_COLUMNS[name]) :]
        found[name] = _unpacked(name, columns, basis.references)
    return found
