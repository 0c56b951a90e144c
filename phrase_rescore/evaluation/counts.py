"""The counts of an output, segment by segment, from which its scores follow, and files of these (docs/format.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import numpy as np

from phrase_rescore.errors import InputError
from phrase_rescore.evaluation.corpora import Segments, Text, read_lines, read_text
from phrase_rescore.evaluation.metrics import METRICS, Counts, EvaluationSettings, Metric, sacrebleu_version
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.outputs import atomic_output, gzip_member
from phrase_rescore.messages import counted, shown
from phrase_rescore.moses.tokenizer import sacremoses_version

FORMAT, VERSION = "phrase-rescore segment statistics", 2
_BEGINNING = json.dumps({"format": FORMAT}).removesuffix("}").encode() + b","
COLUMNS = {
    "BLEU": ["bleu.sys_len", "bleu.ref_len", *(f"bleu.{what}_{n}" for what in ("correct", "total") for n in range(1, 5))],
    "chrF2": [f"chrf.{what}_{n}" for n in range(1, 7) for what in ("sys", "ref", "match")],
    "TER": ["ter.edits", "ter.ref_length"],
}
_AT_MOST = {  # columns of matches, and those of what there was to match
    "BLEU": [(2, 6), (3, 7), (4, 8), (5, 9)],
    "chrF2": [(3 * n + 2, 3 * n + side) for n in range(6) for side in (0, 1)],
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

    @classmethod
    def of(cls, references: Sequence[Segments], settings: EvaluationSettings) -> Basis:
        """Return what counts against these references depend on, with these settings."""
        every = settings.signatures(len(references))
        signatures = {name: every[name] for name in METRICS.values() if name in every}
        text = "".join(f"{segment}\n" for segments in references for segment in segments)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        scored = settings.tokenization, settings.detokenize, settings.lowercase
        by = None if settings.detokenize is None else sacremoses_version()
        return cls(len(references[0]), len(references), sha256, *scored, signatures, sacrebleu_version(), by)

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

    @classmethod
    def of(cls, output: Segments, metrics: Mapping[str, Metric], basis: Basis) -> OutputStatistics:
        """Count an output by metrics that have their references."""
        return cls(basis, {name: metric.counts(output) for name, metric in metrics.items()})


def write_statistics(path: str, statistics: OutputStatistics) -> None:
    """Write a file, the same bytes for the same counts. Raises what ``atomic_output`` raises."""
    basis = statistics.basis
    head = json.dumps({"format": FORMAT, "version": VERSION, **asdict(basis)}, ensure_ascii=False)
    rows = np.concatenate([statistics.counts[name] for name in basis.signatures], axis=1).tolist()
    lines = [head, "\t".join(basis.names()), *("\t".join(f"{number:.17g}" for number in row) for row in rows)]
    with atomic_output(path) as stream:
        stream.write(gzip_member("".join(f"{line}\n" for line in lines).encode(), "9"))


def read_output(path: str) -> Text | OutputStatistics:
    """Read a file of text or of statistics. Raises InputError."""
    rows, name = read_lines(path), display_name(path)
    return parse_statistics(name, rows) if rows[0].startswith(_BEGINNING) else read_text(name, rows)


def parse_statistics(path: str, rows: Sequence[bytes]) -> OutputStatistics:
    """Make statistics of a file's rows. Raises InputError for a damaged file or another version's."""
    try:
        head = json.loads(rows[0])
        if (number := head.pop("version")) != VERSION:
            found = f"statistics in format version {shown(str(number))}, not {VERSION}"
            raise InputError(path, found, "write them again with this version's evaluate --statistics")
        del head["format"]
        basis = _basis(head)
        return OutputStatistics(basis, _counts(basis, rows))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        why = f" ({shown(str(error), 200)})" if type(error) is ValueError else ""
        hint = "copy the file again, or write it again with evaluate --statistics"
        raise InputError(path, f"damaged statistics{why}", hint) from None


def _basis(head: dict[str, Any]) -> Basis:
    """Read the first line. Raises ValueError or TypeError if it is damaged."""
    basis = Basis(**head)
    kinds = get_type_hints(Basis) | {"signatures": dict}
    right = all(isinstance(value, kinds[name]) for name, value in vars(basis).items())
    if not right or basis.references < 1 or not all(isinstance(text, str) for text in basis.signatures.values()):
        raise ValueError("the first line has a value of another kind")
    return basis


def _counts(basis: Basis, rows: Sequence[bytes]) -> dict[str, Counts]:
    """Read the numbers of all segments. Raises ValueError if they are damaged."""
    names = basis.names()
    if rows[1] != "\t".join(names).encode() + b"\n":
        raise ValueError("the second line does not name the columns")
    if len(rows) != basis.segments + 2:
        raise ValueError(f"{len(rows) - 2:,} of {counted(basis.segments, 'segment')}")
    for line, row in enumerate(rows[2:], 3):
        if not _ROW.fullmatch(row):
            raise ValueError(f"line {line} is not numbers between tabs")
    numbers = np.array([row.split(b"\t") for row in rows[2:]]).astype(float).reshape(basis.segments, len(names))
    ends = np.cumsum([len(COLUMNS[metric]) for metric in basis.signatures])[:-1]
    counts = dict(zip(basis.signatures, np.split(numbers, ends, axis=1), strict=True))
    for metric in _AT_MOST.keys() & counts.keys():
        for match, possible in _AT_MOST[metric]:
            if (counts[metric][:, match] > counts[metric][:, possible]).any():
                raise ValueError(f"{COLUMNS[metric][match]} is more than {COLUMNS[metric][possible]}")
    return counts
