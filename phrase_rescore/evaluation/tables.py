"""An evaluation laid out as papers do, systems down and sets across: text, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phrase_rescore.errors import counted
from phrase_rescore.evaluation.noise import LEVEL, POWER
from phrase_rescore.evaluation.run import Cell, Evaluation, SetScores

FORMATS = ("text", "markdown", "json")
_PLUS_MINUS = " ± "


@dataclass(frozen=True)
class _Table:
    """Text to lay out: labels at the left of each row, then a cell for every metric on every set."""

    head: list[str]  # of the labels
    columns: list[tuple[str, str]]  # the names of a set and of a metric
    rows: list[tuple[list[str], list[str]]]  # labels and cells


def _score(cell: Cell) -> str:
    return f"{cell.mean:.2f}" + ("" if cell.deviation is None else f"{_PLUS_MINUS}{cell.deviation:.2f}")


def _difference(cell: Cell) -> str:
    text = "" if cell.difference is None else f"{cell.difference:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "<0.001"


_FIGURES: dict[str, Callable[[Cell], str]] = {
    "difference": _difference,
    "p bootstrap": lambda cell: _p(cell.p_bootstrap),
    "p randomization": lambda cell: _p(cell.p_randomization),
}


def _tables(result: Evaluation) -> Iterator[_Table]:
    """Yield the scores and, where there is anything to compare, what the systems are against the baseline."""
    metrics, baseline = result.metrics, result.baseline

    def columns(sets: Sequence[SetScores]) -> list[tuple[str, str]]:
        return [(of_set.files.name, metric) for of_set in sets for metric in metrics]

    def cells(sets: Sequence[SetScores], system: str, figure: Callable[[Cell], str]) -> list[str]:
        """Return a cell a column, empty where the system has no output on the set."""
        return [figure(of_set.cells[system][m]) if system in of_set.cells else "" for of_set in sets for m in metrics]

    rows = [([system], cells(result.sets, system, _score)) for system in result.systems]
    yield _Table(["system"], columns(result.sets), rows)
    sets = [of_set for of_set in result.sets if baseline in of_set.cells and len(of_set.cells) > 1]
    rows = []
    for system in result.systems:
        found = {name: cells(sets, system, figure) for name, figure in _FIGURES.items() if system != baseline}
        kept = [(name, figures) for name, figures in found.items() if any(figures)]
        rows += [([system if number == 0 else "", name], figures) for number, (name, figures) in enumerate(kept)]
    if rows:
        yield _Table([f"against {baseline}", ""], columns(sets), rows)


def _notes(result: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield what the numbers are: a name, and what is to be said of it."""
    for of_set in result.sets:
        yield of_set.files.name, f"{counted(of_set.basis.segments, 'segment')}, {counted(of_set.basis.references, 'reference')}"
    for metric in result.metrics:
        signatures = {of_set.signatures[metric]: of_set.files.name for of_set in result.sets}
        for signature, name in signatures.items():
            lower = "; lower is better" if metric == "TER" else ""
            yield metric if len(signatures) == 1 else f"{metric}, {name}", signature + lower
    settings = result.settings
    yield "text", settings.text()
    several = [
        f"{system} {len(runs)} on {of_set.files.name}"
        for system in result.systems
        for of_set in result.sets
        if len(runs := of_set.files.systems.get(system, ())) > 1
    ]
    if several:
        yield _PLUS_MINUS.strip(), f"mean and standard deviation of tuning runs: {', '.join(several)}"
    for of_set in result.sets:
        yield from _noise(of_set, result.baseline)
    cells = [cell for of_set in result.sets for by_metric in of_set.cells.values() for cell in by_metric.values()]
    if any(cell.p_bootstrap is not None for cell in cells):
        yield "p bootstrap", f"sacrebleu's paired bootstrap, {settings.resamples:,} resamples, seed {settings.seed}"
    if any(cell.p_randomization is not None for cell in cells):
        shuffles = f"{settings.shuffles:,} shuffles, seed {settings.seed}"
        yield "p randomization", f"approximate randomization (Clark et al. 2011), {shuffles}"


def _noise(of_set: SetScores, baseline: str) -> Iterator[tuple[str, str]]:
    """Yield how large the noise of tuning is on a set where systems have several runs, and what can be found in it."""
    noise = of_set.noise()
    if not noise:
        return

    def listed(figures: Iterable[float]) -> str:
        return ", ".join(f"{metric} {figure:.2f}" for metric, figure in zip(noise, figures, strict=True))

    (freedom,) = {of_metric.freedom for of_metric in noise.values()}
    deviations = listed(of_metric.deviation for of_metric in noise.values())
    degrees = f"{counted(freedom, 'degree')} of freedom"
    yield f"noise, {of_set.files.name}", f"standard deviation of tuning runs, pooled over systems: {deviations} ({degrees})"
    for runs, others in of_set.comparisons(baseline):
        found = listed(of_metric.detectable(runs, others) for of_metric in noise.values())
        what = f"smallest true difference that {counted(runs, 'run')} against {others} detect"
        yield f"detectable, {of_set.files.name}", f"{what}: {found} (two-sided {LEVEL:g}, power {POWER:g})"


def _justified(cells: Sequence[str]) -> list[str]:
    """Justify the cells of a column (the first its head) so that their points stand below each other."""
    split = [cell.partition(_PLUS_MINUS) for cell in cells]
    tail = max(len(sign + deviation) for _, sign, deviation in split)
    head = max(max(map(len, cells)) - tail, max(len(mean) for mean, _, _ in split[1:]))
    return [cells[0].rjust(head + tail)] + [mean.rjust(head) + (sign + dev).ljust(tail) for mean, sign, dev in split[1:]]


def _text_table(table: _Table) -> list[str]:
    """Lay out sets over their metrics, two blanks between metrics and four between sets."""

    def side_by_side(columns: Iterable[list[str]]) -> list[str]:
        return ["  ".join(line) for line in zip(*columns, strict=True)]

    labels = zip(table.head, *(row_labels for row_labels, _ in table.rows), strict=True)
    left = side_by_side([label.ljust(max(map(len, column))) for label in column] for column in labels)
    groups = [[" " * len(left[0]), *left]]
    for name in dict.fromkeys(name for name, _ in table.columns):
        at = [i for i, (of_set, _) in enumerate(table.columns) if of_set == name]
        lines = side_by_side(_justified([table.columns[i][1], *(cells[i] for _, cells in table.rows)]) for i in at)
        width = max(len(name), len(lines[0]))
        groups.append([name.center(width), *(line.rjust(width) for line in lines)])
    return ["    ".join(line).rstrip() for line in zip(*groups, strict=True)]


def _as_text(result: Evaluation) -> str:
    parts = [_text_table(table) for table in _tables(result)]
    notes = list(_notes(result))
    width = max(len(name) for name, _ in notes)
    parts.append([f"{name.ljust(width)}  {note}" for name, note in notes])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _markdown_table(table: _Table) -> list[str]:
    head = [*table.head, *(f"{name} {metric}" for name, metric in table.columns)]
    lines = [[_escaped(cell) for cell in line] for line in (head, *(labels + cells for labels, cells in table.rows))]
    columns = []
    for number, column in enumerate(zip(*lines, strict=True)):
        width = max(3, *map(len, column))
        if number < len(table.head):
            columns.append([":".ljust(width, "-"), *(cell.ljust(width) for cell in column)])
        else:
            columns.append([":".rjust(width, "-"), *(cell.rjust(width) for cell in column)])
    rule, first, *rest = (f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
    return [first, rule, *rest]


def _as_markdown(result: Evaluation) -> str:
    signed = {signature for of_set in result.sets for signature in of_set.signatures.values()}
    notes = []
    for name, note in _notes(result):
        signature, semicolon, rest = note.partition(";")
        notes.append(f"- {_escaped(name)}: " + (f"`{signature}`{semicolon}{rest}" if signature in signed else note))
    parts = [*map(_markdown_table, _tables(result)), notes]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _as_json(result: Evaluation) -> str:
    """Give everything in full precision, null where there is nothing."""

    def of_cell(cell: Cell, compared: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"mean": cell.mean, "standard_deviation": cell.deviation, "runs": cell.runs}
        if compared:
            found |= {"difference": cell.difference, "p_bootstrap": cell.p_bootstrap, "p_randomization": cell.p_randomization}
        return found

    def of_system(of_set: SetScores, system: str) -> dict[str, Any]:
        compared = system != result.baseline and result.baseline in of_set.cells
        scores = {metric: of_cell(cell, compared) for metric, cell in of_set.cells[system].items()}
        return {"name": system, "outputs": of_set.files.systems[system], "scores": scores}

    def noise(of_set: SetScores) -> dict[str, Any]:
        found = {}
        for metric, of_metric in of_set.noise().items():
            pairs = of_set.comparisons(result.baseline)
            found[metric] = {
                "standard_deviation": of_metric.deviation,
                "degrees_of_freedom": of_metric.freedom,
                "detectable": [{"runs": pair, "difference": of_metric.detectable(*pair)} for pair in pairs],
            }
        return found

    def of_set(of_set: SetScores) -> dict[str, Any]:
        return {
            "name": of_set.files.name,
            "segments": of_set.basis.segments,
            "references": of_set.files.references,
            "signatures": of_set.signatures,
            "noise": noise(of_set),
            "systems": [of_system(of_set, system) for system in of_set.cells],
        }

    settings = result.settings
    whole = {
        "baseline": result.baseline,
        "text": settings.text(),
        "resamples": settings.resamples,
        "shuffles": settings.shuffles,
        "seed": settings.seed,
        "sets": list(map(of_set, result.sets)),
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def report(result: Evaluation, form: str) -> str:
    """Lay out an evaluation in one of FORMATS."""
    return {"text": _as_text, "markdown": _as_markdown, "json": _as_json}[form](result)
