"""Describe a phrase table in lines for people, or as an object for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from phrase_rescore.data.coverage import Coverage, coverage
from phrase_rescore.errors import RescoreError, counted
from phrase_rescore.info.faults import FAULTS
from phrase_rescore.info.survey import RowCount, Survey, SurveyedSide, survey_table
from phrase_rescore.moses.columns import AddedColumn, read_sidecar
from phrase_rescore.runtime import keep_freed_memory

_LABEL = 13  # characters before a text
_LONG = 10  # words from here on share a place


@dataclass(frozen=True)
class ModelCoverage:
    """How many of a table's words a model's shortlists have."""

    model_dir: str
    signature: str
    source: Coverage
    target: Coverage


def labelled(label: str, text: str) -> str:
    """Write a text after its label, in the column where all texts begin."""
    return f"{label:{_LABEL}}{text}"


def share(part: int, whole: int) -> str:
    """Write a percentage, which is 0 % or 100 % only where it is meant so.

    >>> share(1, 3), share(99999, 100000), share(1, 100000), share(0, 0)
    ('33.3%', '99.9%', '0.1%', 'none')
    """
    if not whole:
        return "none"
    per_mille = round(1000 * part / whole)
    if 0 < part < whole:
        per_mille = min(max(per_mille, 1), 999)
    return f"{per_mille / 10:.1f}%"


@dataclass(frozen=True)
class TableInfo:
    """The survey of a table, the columns that its sidecar names (None without one), and what a model knows of its words."""

    survey: Survey
    added: list[AddedColumn] | None
    coverage: ModelCoverage | None

    @classmethod
    def read(
        cls, table: str, model_dir: str | None = None, on_read: Callable[[int], object] | None = None,
        on_rows: Callable[[int], object] = lambda rows: None,
    ) -> TableInfo:  # fmt: skip
        """Read a table (``-``: standard input). Raises as ``survey_table``, ``read_sidecar`` and ``checkpoint.load``."""
        added, known = read_sidecar(table), None
        if model_dir is None:
            keep_freed_memory()
            return cls(survey_table(table, on_read, on_rows), added, None)
        from phrase_rescore.rnn.checkpoint import load

        model = load(model_dir)
        keep_freed_memory()
        survey = survey_table(table, on_read, on_rows)
        words, vocabularies = (survey.src.words, survey.tgt.words), (model.src_vocab, model.tgt_vocab)
        known = ModelCoverage(model_dir, model.signature, *map(coverage, words, vocabularies, model.factors))
        return cls(survey, added, known)

    @property
    def problems(self) -> list[tuple[str, RowCount]]:
        """The kinds of fault that were found, keys of ``faults.FAULTS``, in its order."""
        return [(kind, self.survey.faults[kind]) for kind in FAULTS if kind in self.survey.faults]

    def check(self) -> None:
        """Raise RescoreError if there are problems."""
        if kinds := self.problems:
            raise RescoreError(f"{self.survey.table}: problems of {counted(len(kinds), 'kind')} (--strict)")

    def lines(self) -> list[str]:
        """Return the description line by line."""
        survey = self.survey
        no_pairs = survey.rows - survey.pairs
        lines = [
            f"{survey.table}: a phrase table",
            labelled("rows", f"{survey.rows:,}" + (f" ({no_pairs:,} without two phrases)" if no_pairs else "")),
            labelled("fields", f"{survey.n_fields}"),
            labelled("sources", _sources(survey)),
            labelled("targets", _distinct(survey.tgt)),
        ]
        for name, side in (("source", survey.src), ("target", survey.tgt)):
            lines.append(labelled(f"{name} words", f"{side.words.total():,}, {len(side.words):,} distinct"))
        factors = survey.src.factors or 0, survey.tgt.factors or 0
        if min(factors) and max(factors) > 1:
            lines.append(labelled("factors", f"source {factors[0]}, target {factors[1]}"))
        lines += [*_lengths(survey), *_scores(survey), labelled("our columns", self._added_columns())]
        lines.append(labelled("order", _order(survey)))
        if self.coverage:
            lines.append(labelled("known to", self.coverage.model_dir))
            lines += [
                f"  {name:{_LABEL - 2}}{share(side.known_tokens, side.tokens)} of the words, "
                f"{share(side.known_types, side.types)} of the distinct ones"
                for name, side in (("source", self.coverage.source), ("target", self.coverage.target))
            ]
        return lines + self._problem_lines()

    def _added_columns(self) -> str:
        if self.added is None:
            return "the last two look like ours (no .columns.json says more)" if self.survey.looks_annotated else "none"
        by_model: dict[str, list[str]] = {}
        for column in self.added:
            by_model.setdefault(column.model, []).append(f"{column.column} {column.feature}")
        texts = [f"{', '.join(columns)} of {model}" for model, columns in by_model.items()]
        if any(column.column > self.survey.n_scores for column in self.added):
            texts.append(f"but the table has {self.survey.n_scores}: the .columns.json belongs to another")
        return "; ".join(texts) or "none"

    def _problem_lines(self) -> list[str]:
        if not self.problems:
            return [labelled("problems", "none found")]
        lines = ["problems"]
        for kind, rows in self.problems:
            at_least = "at least " if kind == "sources_apart" and not self.survey.src.sample.exact else ""
            lines.append(f"  {FAULTS[kind].what}: {at_least}{rows.count:,}, the first in line {rows.first_line:,}")
            lines += [f"    {programs}: {effect}" for programs, effect in FAULTS[kind].effects.items()]
        return lines

    def as_object(self) -> dict[str, Any]:
        """Return the description in nothing but what JSON has."""
        survey = self.survey
        is_sorted = "unsorted" not in survey.faults
        return {
            "file": survey.table,
            "kind": "phrase table",
            "rows": survey.rows,
            "pairs": survey.pairs,
            "fields": survey.n_fields,
            "source": {"distinct": survey.sources if is_sorted else survey.src.sample.distinct,
                       "exact": is_sorted or survey.src.sample.exact, "runs": survey.sources, **_side(survey.src)},
            "target": {"distinct": survey.tgt.sample.distinct, "exact": survey.tgt.sample.exact, **_side(survey.tgt)},
            "scores": _columns(survey),
            "our_columns": None if self.added is None else [asdict(column) for column in self.added],
            "looks_annotated": survey.looks_annotated,
            "order": {
                "pairs": _step(survey.unsorted_pairs),
                "sources": _step(survey.faults.get("unsorted")),
                "equal_sources": _adjacency(survey),
                "repeated_pairs": survey.repeated_pairs.count if survey.repeated_pairs else 0,
            },
            "model": None if self.coverage is None else asdict(self.coverage),
            "problems": [
                {"problem": kind, "count": rows.count, "first_line": rows.first_line, "what": FAULTS[kind].what,
                 "programs": FAULTS[kind].effects}
                for kind, rows in self.problems
            ],
        }  # fmt: skip


def _distinct(side: SurveyedSide) -> str:
    n = side.sample.distinct
    return f"{n:,}" if side.sample.exact else f"about {float(f'{n:.3g}'):,.0f}"


def _sources(survey: Survey) -> str:
    if "unsorted" not in survey.faults:
        return f"{survey.sources:,}" + (f", {survey.pairs / survey.sources:.2f} rows each" if survey.sources else "")
    return f"{_distinct(survey.src)} in {survey.sources:,} runs of equal ones"


def _lengths(survey: Survey) -> list[str]:
    longest = max(*survey.src.lengths, *survey.tgt.lengths, 1)
    places = range(1, min(longest, _LONG) + 1)
    heads = [f"{n}+" if n == _LONG and longest > _LONG else f"{n}" for n in places]
    lines = [labelled("length", "".join(f"{head:>7}" for head in (*heads, "mean", "most")))]
    for name, lengths in (("source", survey.src.lengths), ("target", survey.tgt.lengths)):
        rows, parts = lengths.total(), Counter[int]()
        for n, times in lengths.items():
            parts[min(n, _LONG)] += times
        shares = [share(parts[n], rows) if parts[n] else "-" for n in places]
        mean = f"{_mean(lengths):.2f}" if rows else "none"
        lines.append(labelled(f"  {name}", "".join(f"{text:>7}" for text in (*shares, mean, f"{max(lengths, default=0)}"))))
    return lines


def _mean(lengths: Counter[int]) -> float:
    return sum(n * times for n, times in lengths.items()) / lengths.total()


def _scores(survey: Survey) -> list[str]:
    lines = [labelled("score", f"{'smallest':>12}{'largest':>12}{'mean log':>12}{'zeros':>12}")]
    for column in _columns(survey):
        numbers = column["smallest"], column["largest"], column["mean_log"]
        texts = ["none" if value is None else f"{value:.5g}" for value in numbers]
        zeros = share(column["zeros"], survey.scores.rows) if column["zeros"] else "-"
        lines.append(labelled(f"  {column['column']}", "".join(f"{text:>12}" for text in (*texts, zeros))))
    return lines


def _columns(survey: Survey) -> list[dict[str, Any]]:
    scores = survey.scores
    return [
        {
            "column": i + 1,
            "smallest": float(np.nan_to_num(scores.least[i])) if scores.rows else None,  # JSON has no infinity
            "largest": float(np.nan_to_num(scores.greatest[i])) if scores.rows else None,
            "mean_log": float(scores.log_sums[i] / scores.above_zero[i]) if scores.above_zero[i] else None,
            "zeros": int(scores.zeros[i]),
        }
        for i in range(survey.n_scores)
    ]


def _order(survey: Survey) -> str:
    if "unsorted" in survey.faults:
        texts = [f"not that of LC_ALL=C sort, first in line {survey.faults['unsorted'].first_line:,}"]
    elif survey.unsorted_pairs:
        line = survey.unsorted_pairs.first_line
        texts = [f"LC_ALL=C sort of sources, not of their targets (no program minds), first in line {line:,}"]
    else:
        texts = ["LC_ALL=C sort"]
    texts.append(f"equal sources {_adjacency(survey)}")
    if twice := survey.repeated_pairs:
        texts.append(f"pairs twice running: {twice.count:,}, first in line {twice.first_line:,}")
    return "; ".join(texts)


def _adjacency(survey: Survey) -> str:
    """Tell where equal sources stand: ``adjacent``, ``apart``, or ``adjacent in a sample`` if there are too many to tell."""
    if "sources_apart" in survey.faults:
        return "apart"
    return "adjacent" if "unsorted" not in survey.faults or survey.src.sample.exact else "adjacent in a sample"


def _side(side: SurveyedSide) -> dict[str, Any]:
    return {
        "words": side.words.total(),
        "distinct_words": len(side.words),
        "factors": side.factors,
        "lengths": {str(n): side.lengths[n] for n in sorted(side.lengths)},
        "mean_length": _mean(side.lengths) if side.lengths else None,
    }


def _step(unsorted: RowCount | None) -> dict[str, Any]:
    return {"sorted": unsorted is None, "first_unsorted_line": unsorted.first_line if unsorted else None}
