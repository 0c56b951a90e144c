"""Describe a phrase table in lines for people, or as an object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from phrase_rescore.data.vocabulary import coverage
from phrase_rescore.errors import RescoreError
from phrase_rescore.info.faults import FAULTS, REFUSED
from phrase_rescore.info.survey import RowCount, Survey, SurveyedSide, survey_table
from phrase_rescore.messages import counted
from phrase_rescore.moses.sidecar import AddedColumn, read_sidecar
from phrase_rescore.progress import Progress
from phrase_rescore.runtime import keep_freed_memory

_LABEL = 13  # characters before a text
_LONG = 10  # words from here on share a place


def labelled(label: str, text: str) -> str:
    """Write a text after its label, in the column where all texts begin."""
    return f"{label:{_LABEL}}{text}"


def percentage(part: int, whole: int) -> str:
    """Write a share of a whole; it is 0.0% or 100.0% only if it is exact.

    >>> percentage(1, 3), percentage(99999, 100000), percentage(1, 100000), percentage(0, 0)
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
    """The survey of a table, the columns that its sidecar names (None without one), and the share of known words."""

    survey: Survey
    added: list[AddedColumn] | None
    coverage: dict[str, Any] | None

    @classmethod
    def read(cls, table: str, model_dir: str | None, on_read: Progress | None, on_rows: Progress) -> TableInfo:
        """Read a table (``-``: standard input). Raises as ``survey_table``, ``read_sidecar`` and ``checkpoint.load``."""
        added, model, known = read_sidecar(table), None, None
        if model_dir is not None:
            from phrase_rescore.rnn.checkpoint import load

            model = load(model_dir)
        keep_freed_memory()
        survey = survey_table(table, on_read, on_rows)
        if model is not None:
            source = coverage(survey.src.words, model.src_vocab, model.factors[0])
            target = coverage(survey.tgt.words, model.tgt_vocab, model.factors[1])
            known = {"model_dir": model_dir, "signature": model.signature, "source": source, "target": target}
        return cls(survey, added, known)

    def check(self) -> None:
        """Raise RescoreError if there are problems."""
        if n := len(self.survey.faults):
            raise RescoreError(f"{self.survey.table}: problems of {counted(n, 'kind')} (--strict)")

    def as_object(self) -> dict[str, Any]:
        """Return the description as JSON has it."""
        survey, scores = self.survey, self.survey.scores
        is_sorted, exact = "unsorted" not in survey.faults, survey.src.sample.exact
        adjacent = "adjacent" if is_sorted or exact else "adjacent in a sample"  # there are too many to tell
        return {
            "file": survey.table,
            "kind": "phrase table",
            "rows": survey.rows,
            "pairs": survey.pairs,
            "fields": survey.n_fields,
            "source": {"distinct": survey.sources if is_sorted else survey.src.sample.distinct,
                       "exact": is_sorted or exact, "runs": survey.sources, **_side(survey.src)},
            "target": {"distinct": survey.tgt.sample.distinct, "exact": survey.tgt.sample.exact, **_side(survey.tgt)},
            "scores": [
                {"column": i + 1,
                 "smallest": float(np.nan_to_num(scores.least[i])),  # JSON has no infinity
                 "largest": float(np.nan_to_num(scores.greatest[i])),
                 "mean_log": float(scores.log_sums[i] / scores.above_zero[i]) if scores.above_zero[i] else None,
                 "zeros": int(scores.zeros[i])}
                for i in range(survey.n_scores)
            ],
            "our_columns": None if self.added is None else [asdict(column) for column in self.added],
            "looks_annotated": survey.looks_annotated,
            "order": {"pairs": _step(survey.pair_order), "sources": _step(survey.faults),
                      "equal_sources": "apart" if "sources_apart" in survey.faults else adjacent,
                      "repeated_pairs": survey.pair_order.get("repeated", RowCount(0, 0)).rows},
            "model": self.coverage,
            "problems": list(self._problems()),
        }  # fmt: skip

    def _problems(self) -> Iterator[dict[str, Any]]:
        for name, fault in FAULTS.items():
            if name in self.survey.faults:
                rows, first_line = self.survey.faults[name]
                found = {"count": rows, "first_line": first_line, "what": fault.what, "programs": fault.effects}
                yield {"problem": name, **found, "reason": str(self.survey.first_refusal) if name == REFUSED else None}

    def lines(self) -> Iterator[str]:
        """Yield the description line by line."""
        found = self.as_object()
        sides = {name: found[name] for name in ("source", "target")}
        refused = found["rows"] - found["pairs"]
        yield f"{found['file']}: a {found['kind']}"
        yield labelled("rows", f"{found['rows']:,}" + (f" ({refused:,} refused)" if refused else ""))
        yield labelled("fields", f"{found['fields']}")
        yield labelled("sources", _sources(found))
        yield labelled("targets", _distinct(found["target"]))
        for name, side in sides.items():
            yield labelled(f"{name} words", f"{side['words']:,}, {side['distinct_words']:,} distinct")
        factors = [side["factors"] or 0 for side in sides.values()]
        if min(factors) and max(factors) > 1:
            yield labelled("factors", f"source {factors[0]}, target {factors[1]}")
        yield from _lengths(sides)
        yield labelled("score", f"{'smallest':>12}{'largest':>12}{'mean log':>12}{'zeros':>12}")
        for column in found["scores"]:
            numbers = column["smallest"], column["largest"], column["mean_log"]
            texts = ["none" if value is None else f"{value:.5g}" for value in numbers]
            zeros = percentage(column["zeros"], self.survey.scores.rows) if column["zeros"] else "-"
            yield labelled(f"  {column['column']}", "".join(f"{text:>12}" for text in (*texts, zeros)))
        yield labelled("new columns", self._added_columns())
        yield labelled("order", self._order(found["order"]))
        if model := found["model"]:
            yield labelled("known to", model["model_dir"])
            for side in sides:
                tokens, types = (percentage(model[side][f"known_{what}"], model[side][what]) for what in ("tokens", "types"))
                yield f"  {side:{_LABEL - 2}}{tokens} of the words, {types} of the distinct ones"
        yield "problems" if found["problems"] else labelled("problems", "none found")
        for kind in found["problems"]:
            at_least = "at least " if kind["problem"] == "sources_apart" and not self.survey.src.sample.exact else ""
            reason = f": {kind['reason']}" if kind["reason"] else ""
            yield f"  {kind['what']}: {at_least}{kind['count']:,}, the first in line {kind['first_line']:,}{reason}"
            yield from (f"    {programs}: {effect}" for programs, effect in kind["programs"].items())

    def _added_columns(self) -> str:
        if self.added is None:
            return "the last two look like annotate's (no .columns.json)" if self.survey.looks_annotated else "none"
        by_model: dict[str, list[str]] = {}
        for column in self.added:
            by_model.setdefault(column.model, []).append(f"{column.column} {column.kind}")
        texts = [f"{', '.join(columns)} of {model}" for model, columns in by_model.items()]
        if any(column.column > self.survey.n_scores for column in self.added):
            texts.append(f"but the table has {self.survey.n_scores}: the .columns.json belongs to another table")
        return "; ".join(texts) or "none"

    def _order(self, order: dict[str, Any]) -> str:
        texts = ["LC_ALL=C sort", f"equal sources {order['equal_sources']}"]
        if line := order["sources"]["first_unsorted_line"]:
            texts[0] = f"not that of LC_ALL=C sort, first in line {line:,}"
        elif line := order["pairs"]["first_unsorted_line"]:
            texts[0] = f"LC_ALL=C sort of sources, not of their targets (no program minds), first in line {line:,}"
        if twice := self.survey.pair_order.get("repeated"):
            texts.append(f"pairs twice running: {twice.rows:,}, first in line {twice.first_line:,}")
        return "; ".join(texts)


def _distinct(side: dict[str, Any]) -> str:
    n = side["distinct"]
    return f"{n:,}" if side["exact"] else f"about {float(f'{n:.3g}'):,.0f}"


def _sources(found: dict[str, Any]) -> str:
    runs = found["source"]["runs"]
    if not found["order"]["sources"]["sorted"]:
        return f"{_distinct(found['source'])} in {runs:,} runs of equal ones"
    return f"{runs:,}, {found['pairs'] / runs:.2f} rows each"


def _lengths(sides: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the shares of the rows by the length of a side's phrase, from 1 to _LONG or more."""
    counts = {name: {int(n): rows for n, rows in side["lengths"].items()} for name, side in sides.items()}
    longest = max(chain.from_iterable(counts.values()))
    places = range(1, min(longest, _LONG) + 1)
    heads = [f"{n}+" if n == _LONG and longest > _LONG else f"{n}" for n in places]
    yield labelled("length", "".join(f"{head:>7}" for head in (*heads, "mean", "most")))
    for name, by_length in counts.items():
        parts = [sum(rows for n, rows in by_length.items() if min(n, _LONG) == place) for place in places]
        shares = [percentage(part, sum(by_length.values())) if part else "-" for part in parts]
        texts = (*shares, f"{sides[name]['mean_length']:.2f}", f"{max(by_length)}")
        yield labelled(f"  {name}", "".join(f"{text:>7}" for text in texts))


def _side(side: SurveyedSide) -> dict[str, Any]:
    lengths = side.lengths
    mean = sum(n * rows for n, rows in lengths.items()) / lengths.total()
    return {
        "words": side.words.total(), "distinct_words": len(side.words), "factors": side.factors,
        "lengths": {str(n): lengths[n] for n in sorted(lengths)}, "mean_length": mean,
    }  # fmt: skip


def _step(counts: dict[str, RowCount]) -> dict[str, Any]:
    unsorted = counts.get("unsorted")
    return {"sorted": unsorted is None, "first_unsorted_line": unsorted.first_line if unsorted else None}
