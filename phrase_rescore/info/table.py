"""The survey of a table is reported in lines for people, or as an object for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from phrase_rescore.data.coverage import Coverage
from phrase_rescore.info.faults import FAULTS
from phrase_rescore.info.statistics import Side, Survey, Tally
from phrase_rescore.info.survey import TableSurvey
from phrase_rescore.moses.columns import AddedColumn

_LABEL = 13  # characters before what is said
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


def problems(found: TableSurvey) -> list[tuple[str, Tally]]:
    """List the kinds of fault that were found, keys of ``faults.FAULTS``, in its order."""
    return [(kind, found.survey.faults[kind]) for kind in FAULTS if kind in found.survey.faults]


def report(found: TableSurvey, own: Sequence[AddedColumn] | None, coverage: ModelCoverage | None) -> list[str]:
    """Report for people, line by line. ``own`` is what the sidecar says, None without one."""
    survey = found.survey
    no_pairs = survey.rows - survey.pairs
    lines = [
        f"{found.table}: a phrase table",
        labelled("rows", f"{survey.rows:,}" + f" ({no_pairs:,} without two phrases)" * (no_pairs > 0)),
        labelled("fields", f"{found.n_fields}"),
        labelled("sources", _sources(survey)),
        labelled("targets", _distinct(survey.tgt)),
    ]
    for name, side in (("source", survey.src), ("target", survey.tgt)):
        lines.append(labelled(f"{name} words", f"{side.words.total():,}, {len(side.words):,} distinct"))
    if (factors := _factors(survey)) and max(factors) > 1:
        lines.append(labelled("factors", f"source {factors[0]}, target {factors[1]}"))
    lines += [*_lengths(survey), *_scores(found), labelled("our columns", _own_columns(found, own))]
    lines.append(labelled("order", _order(survey)))
    if coverage:
        lines.append(labelled("known to", coverage.model_dir))
        lines += [
            f"  {name:{_LABEL - 2}}{share(side.known_tokens, side.tokens)} of the words, "
            f"{share(side.known_types, side.types)} of the distinct ones"
            for name, side in (("source", coverage.source), ("target", coverage.target))
        ]
    return lines + _problems(found)


def _distinct(side: Side) -> str:
    n = side.sample.distinct
    return f"{n:,}" if side.sample.exact else f"about {float(f'{n:.3g}'):,.0f}"


def _sources(survey: Survey) -> str:
    if "unsorted" not in survey.faults:
        return f"{survey.sources:,}" + (f", {survey.pairs / survey.sources:.2f} rows each" if survey.sources else "")
    return f"{_distinct(survey.src)} in {survey.sources:,} runs of equal ones"


def _factors(survey: Survey) -> tuple[int, int] | None:
    """Tell how many factors words have, source and target; None if they differ."""
    src, tgt = survey.src.factors, survey.tgt.factors
    return (src, tgt) if src and tgt else None


def _lengths(survey: Survey) -> list[str]:
    longest = max(*survey.src.lengths, *survey.tgt.lengths, 1)
    places = range(1, min(longest, _LONG) + 1)
    heads = [f"{n}+" if n == _LONG and longest > _LONG else f"{n}" for n in places]
    lines = [labelled("length", "".join(f"{head:>7}" for head in (*heads, "mean", "most")))]
    for name, lengths in (("source", survey.src.lengths), ("target", survey.tgt.lengths)):
        rows = lengths.total()
        parts = Counter({n: 0 for n in places})
        for n, times in lengths.items():
            parts[min(n, _LONG)] += times
        shares = [share(parts[n], rows) if parts[n] else "-" for n in places]
        mean = f"{_mean(lengths):.2f}" if rows else "none"
        lines.append(labelled(f"  {name}", "".join(f"{text:>7}" for text in (*shares, mean, f"{max(lengths, default=0)}"))))
    return lines


def _mean(lengths: Counter[int]) -> float:
    return sum(n * times for n, times in lengths.items()) / lengths.total()


def _scores(found: TableSurvey) -> list[str]:
    scores = found.survey.scores
    lines = [labelled("score", f"{'smallest':>12}{'largest':>12}{'mean log':>12}{'zeros':>12}")]
    for i, column in enumerate(_columns(found)):
        shown = [column["smallest"], column["largest"], column["mean_log"]]
        texts = ["none" if value is None else f"{value:.5g}" for value in shown]
        zeros = share(int(scores.zeros[i]), scores.rows) if scores.zeros[i] else "-"
        lines.append(labelled(f"  {i + 1}", "".join(f"{text:>12}" for text in (*texts, zeros))))
    return lines


def _columns(found: TableSurvey) -> list[dict[str, Any]]:
    scores = found.survey.scores
    return [
        {
            "column": i + 1,
            "smallest": float(np.nan_to_num(scores.least[i])) if scores.rows else None,  # JSON has no infinity
            "largest": float(np.nan_to_num(scores.greatest[i])) if scores.rows else None,
            "mean_log": float(scores.log_sums[i] / scores.above_zero[i]) if scores.above_zero[i] else None,
            "zeros": int(scores.zeros[i]),
        }
        for i in range(found.n_scores)
    ]


def _own_columns(found: TableSurvey, own: Sequence[AddedColumn] | None) -> str:
    if own is None:
        return "the last two look like ours (no .columns.json says more)" if found.looks_annotated else "none"
    by_model: dict[str, list[str]] = {}
    for column in own:
        by_model.setdefault(column.model, []).append(f"{column.column} {column.feature}")
    texts = [f"{', '.join(columns)} of {model}" for model, columns in by_model.items()]
    if any(column.column > found.n_scores for column in own):
        texts.append(f"but the table has {found.n_scores}: the .columns.json belongs to another")
    return "; ".join(texts) or "none"


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


def _problems(found: TableSurvey) -> list[str]:
    kinds = problems(found)
    if not kinds:
        return [labelled("problems", "none found")]
    lines = ["problems"]
    for kind, tally in kinds:
        at_least = "at least " if kind == "sources_apart" and not found.survey.src.sample.exact else ""
        lines.append(f"  {FAULTS[kind].what}: {at_least}{tally.count:,}, the first in line {tally.first_line:,}")
        lines += [f"    {programs}: {effect}" for programs, effect in FAULTS[kind].effects.items()]
    return lines


def as_object(found: TableSurvey, own: Sequence[AddedColumn] | None, coverage: ModelCoverage | None) -> dict[str, Any]:
    """Report for programs, in nothing but what JSON has."""
    survey = found.survey
    return {
        "file": found.table,
        "kind": "phrase table",
        "rows": survey.rows,
        "pairs": survey.pairs,
        "fields": found.n_fields,
        "source": {"distinct": survey.src.sample.distinct if "unsorted" in survey.faults else survey.sources,
                   "exact": "unsorted" not in survey.faults or survey.src.sample.exact,
                   "runs": survey.sources, **_side(survey.src)},
        "target": {"distinct": survey.tgt.sample.distinct, "exact": survey.tgt.sample.exact, **_side(survey.tgt)},
        "scores": _columns(found),
        "our_columns": None if own is None else [asdict(column) for column in own],
        "looks_annotated": found.looks_annotated,
        "order": {
            "pairs": _step(survey.unsorted_pairs),
            "sources": _step(survey.faults.get("unsorted")),
            "equal_sources": _adjacency(survey),
            "repeated_pairs": survey.repeated_pairs.count if survey.repeated_pairs else 0,
        },
        "model": None if coverage is None else asdict(coverage),
        "problems": [
            {"problem": kind, "count": tally.count, "first_line": tally.first_line, "what": FAULTS[kind].what,
             "programs": FAULTS[kind].effects}
            for kind, tally in problems(found)
        ],
    }  # fmt: skip


def _side(side: Side) -> dict[str, Any]:
    return {
        "words": side.words.total(),
        "distinct_words": len(side.words),
        "factors": side.factors,
        "lengths": {str(n): side.lengths[n] for n in sorted(side.lengths)},
        "mean_length": _mean(side.lengths) if side.lengths else None,
    }


def _step(unsorted: Tally | None) -> dict[str, Any]:
    return {"sorted": unsorted is None, "first_unsorted_line": unsorted.first_line if unsorted else None}
