"""Describe a phrase table in lines for people, or as an object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from phrase_rescore.data.vocabulary import coverage
from phrase_rescore.errors import RescoreError
from phrase_rescore.info.faults import FAULTS, REFUSED
from phrase_rescore.info.survey import Survey, SurveyedSide, survey_table
from phrase_rescore.messages import Progress, counted, percent, share
from phrase_rescore.moses.columns import AddedColumn, read_sidecar
from phrase_rescore.runtime import keep_freed_memory

_LABEL = 13  # characters before a text


def labelled(label: str, text: str) -> str:
    """Write a text after its label, in the column where all texts begin."""
    return f"{label:{_LABEL}}{text}"


@dataclass(frozen=True)
class TableInfo:
    """The survey of a table, the columns that its sidecar names (None without one), and the share of known words."""

    survey: Survey
    added: list[AddedColumn] | None
    coverage: dict[str, Any] | None

    @classmethod
    def read(cls, table: str, model_dir: str | None, on_read: Progress | None) -> TableInfo:
        """Read a table (``-``: standard input). Raises as ``survey_table``, ``read_sidecar`` and ``checkpoint.load``."""
        added, model, known = read_sidecar(table), None, None
        if model_dir is not None:
            from phrase_rescore.rnn.checkpoint import load

            model = load(model_dir)
        keep_freed_memory()
        survey = survey_table(table, on_read)
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
        survey = self.survey
        is_sorted = "unsorted" not in survey.faults
        distinct = survey.sources if is_sorted else survey.src.sample.distinct
        return {
            "file": survey.table,
            "kind": "phrase table",
            "rows": survey.rows,
            "pairs": survey.pairs,
            "source": {"distinct": distinct, "exact": is_sorted or survey.src.sample.exact, "runs": survey.sources,
                       **_words(survey.src)},
            "target": {"distinct": survey.tgt.sample.distinct, "exact": survey.tgt.sample.exact, **_words(survey.tgt)},
            "scores": [
                {"column": i + 1,
                 "smallest": float(np.nan_to_num(survey.least[i])),  # JSON has no infinity
                 "largest": float(np.nan_to_num(survey.greatest[i])),
                 "zeros": int(survey.zeros[i])}
                for i in range(survey.n_scores)
            ],
            "our_columns": None if self.added is None else [asdict(column) for column in self.added],
            "looks_annotated": survey.looks_annotated,
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
        for name, side in sides.items():
            n = side["distinct"]
            yield labelled(f"{name}s", f"{n:,}" if side["exact"] else f"about {float(f'{n:.3g}'):,.0f}")
            yield labelled(f"{name} words", f"{side['words']:,}, {side['distinct_words']:,} distinct")
        factors = [side["factors"] or 0 for side in sides.values()]
        if min(factors) and max(factors) > 1:
            yield labelled("factors", f"source {factors[0]}, target {factors[1]}")
        yield labelled("score", f"{'smallest':>12}{'largest':>12}{'zeros':>12}")
        for column in found["scores"]:
            ends = "".join(f"{column[end]:>12.5g}" for end in ("smallest", "largest"))
            yield labelled(f"  {column['column']}", f"{ends}{column['zeros']:>12,}")
        yield labelled("new columns", self._added_columns())
        if model := found["model"]:
            yield labelled("known to", model["model_dir"])
            for side in sides:
                known = model[side]
                tokens, types = (percent(share(known[f"known_{what}"], known[what])) for what in ("tokens", "types"))
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
        return ", ".join(f"{column.column} {column.kind} of {column.model}" for column in self.added) or "none"


def _words(side: SurveyedSide) -> dict[str, Any]:
    return {"words": side.words.total(), "distinct_words": len(side.words), "factors": side.factors}
