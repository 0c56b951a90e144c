"""An evaluation laid out as papers do, systems down and sets across: text, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from phrase_rescore.evaluation.run import Cell, Evaluation, SetScores

FORMATS = ("text", "markdown", "json")
_PLUS_MINUS = " ± "

Column = tuple[str, str]  # the names of a set and of a metric
Row = tuple[list[str], list[str]]  # what it is about, and a cell a column


def _score(cell: Cell) -> str:
    deviation = cell.deviation
    return f"{cell.mean:.2f}" + (f"{_PLUS_MINUS}{deviation:.2f}" if deviation is not None else "")


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return ""
    text = f"{cell.difference:+.2f}"
    return "0.00" if float(text) == 0 else text


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "<0.001"


_FIGURES: dict[str, Callable[[Cell], str]] = {
    "difference": _difference,
    "p bootstrap": lambda cell: _p(cell.p_bootstrap),
    "p randomization": lambda cell: _p(cell.p_randomization),
}


def _row(sets: Sequence[SetScores], metrics: Sequence[str], system: str, figure: Callable[[Cell], str]) -> list[str]:
    """A cell a column, empty where the system has no output on the set."""
    return [figure(of_set.cells[system][metric]) if system in of_set.cells else "" for of_set in sets for metric in metrics]


def _columns(sets: Sequence[SetScores], metrics: Sequence[str]) -> list[Column]:
    return [(of_set.files.name, metric) for of_set in sets for metric in metrics]


def _scores(result: Evaluation) -> tuple[list[str], list[Column], list[Row]]:
    rows = [([system], _row(result.sets, result.metrics, system, _score)) for system in result.systems]
    return ["system"], _columns(result.sets, result.metrics), rows


def _comparisons(result: Evaluation) -> tuple[list[str], list[Column], list[Row]] | None:
    """The table of what the systems are against the baseline; None if there is nothing to compare."""
    sets = [of_set for of_set in result.sets if result.baseline in of_set.cells and len(of_set.cells) > 1]
    rows: list[Row] = []
    for system in result.systems:
        if system == result.baseline:
            continue
        found = {name: _row(sets, result.metrics, system, figure) for name, figure in _FIGURES.items()}
        kept = [(name, cells) for name, cells in found.items() if any(cells)]
        rows += [([system if number == 0 else "", name], cells) for number, (name, cells) in enumerate(kept)]
    return ([f"against {result.baseline}", ""], _columns(sets, result.metrics), rows) if rows else None


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _notes(result: Evaluation) -> Iterator[tuple[str, str]]:
    """What the numbers are: (of what, what about it)."""
    for of_set in result.sets:
        yield of_set.files.name, f"{_count(of_set.segments, 'segment')}, {_count(len(of_set.files.references), 'reference')}"
    for metric in result.metrics:
        signatures = {of_set.signatures[metric]: of_set.files.name for of_set in result.sets}
        for signature, name in signatures.items():
            lower = "; lower is better" if metric == "TER" else ""
            yield metric if len(signatures) == 1 else f"{metric}, {name}", signature + lower
    yield "text", result.settings.text()
    several = [
        f"{system} {len(runs)} on {of_set.files.name}"
        for system in result.systems
        for of_set in result.sets
        if len(runs := of_set.files.systems.get(system, ())) > 1
    ]
    if several:
        yield _PLUS_MINUS.strip(), f"mean and standard deviation of tuning runs: {', '.join(several)}"
    cells = [cell for of_set in result.sets for by_metric in of_set.cells.values() for cell in by_metric.values()]
    settings = result.settings
    if any(cell.p_bootstrap is not None for cell in cells):
        yield "p bootstrap", f"sacrebleu's paired bootstrap, {settings.resamples:,} resamples, seed {settings.seed}"
    if any(cell.p_randomization is not None for cell in cells):
        yield (
            "p randomization",
            f"approximate randomization (Clark et al. 2011), {settings.shuffles:,} shuffles, seed {settings.seed}",
        )


def _justified(cells: Sequence[str], room: int) -> list[str]:
    """Cells of a column (the first its head) with their points below each other."""
    split = [cell.partition(_PLUS_MINUS) for cell in cells]
    tail = max(len(sign + deviation) for _, sign, deviation in split)
    head = max(room - tail, max(len(mean) for mean, _, _ in split[1:]))
    return [cells[0].rjust(head + tail)] + [mean.rjust(head) + (sign + dev).ljust(tail) for mean, sign, dev in split[1:]]


def _grid(labels: list[str], columns: list[Column], rows: list[Row]) -> list[str]:
    """Lines of a table: sets over their metrics, two blanks between metrics and four between sets."""
    about = [[labels[number], *(row[0][number] for row in rows)] for number in range(len(labels))]
    left = [cell.ljust(max(map(len, column))) for column in about for cell in column]
    n = len(rows) + 1
    labelled = ["  ".join(left[line::n]) for line in range(n)]
    sets = dict.fromkeys(name for name, _ in columns)
    groups = []
    for name in sets:
        cells = [[metric, *(row[1][at] for row in rows)] for at, (of, metric) in enumerate(columns) if of == name]
        justified = [_justified(column, max(map(len, column))) for column in cells]
        lines = ["  ".join(line) for line in zip(*justified, strict=True)]
        width = max(len(name), len(lines[0]))
        groups.append([name.center(width), *(line.rjust(width) for line in lines)])
    labelled.insert(0, " " * len(labelled[0]))
    return ["    ".join(line).rstrip() for line in zip(labelled, *groups, strict=True)]


def as_text(result: Evaluation) -> str:
    """Tables for a terminal, and what the numbers are beneath."""
    parts = [_grid(*_scores(result))]
    if comparisons := _comparisons(result):
        parts.append(_grid(*comparisons))
    notes = list(_notes(result))
    width = max(len(name) for name, _ in notes)
    parts.append([f"{name.ljust(width)}  {note}" for name, note in notes])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _markdown(labels: list[str], columns: list[Column], rows: list[Row]) -> list[str]:
    table = [[*labels, *(f"{name} {metric}" for name, metric in columns)], *(about + cells for about, cells in rows)]
    padded = [[_escaped(cell) for cell in line] for line in table]
    widths = [max(3, *map(len, column)) for column in zip(*padded, strict=True)]
    left = len(labels)
    lines = [[cell.ljust(w) if at < left else cell.rjust(w) for at, (cell, w) in enumerate(zip(line, widths, strict=True))]
             for line in padded]  # fmt: skip
    rules = [":".ljust(w, "-") if at < left else ":".rjust(w, "-") for at, w in enumerate(widths)]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rules, *lines[1:])]


def as_markdown(result: Evaluation) -> str:
    """The same as Markdown, the notes a list."""
    parts = [_markdown(*_scores(result))]
    if comparisons := _comparisons(result):
        parts.append(_markdown(*comparisons))
    signed = {signature for of_set in result.sets for signature in of_set.signatures.values()}
    notes = []
    for name, note in _notes(result):
        signature, semicolon, rest = note.partition(";")
        notes.append(f"- {_escaped(name)}: " + (f"`{signature}`{semicolon}{rest}" if signature in signed else note))
    return "\n\n".join("\n".join(part) for part in [*parts, notes]) + "\n"


def _cell(cell: Cell, compared: bool) -> dict[str, object]:
    found: dict[str, object] = {"mean": cell.mean, "standard_deviation": cell.deviation, "runs": cell.runs}
    if compared:
        found |= {"difference": cell.difference, "p_bootstrap": cell.p_bootstrap, "p_randomization": cell.p_randomization}
    return found


def as_json(result: Evaluation) -> str:
    """Everything, in full precision; null where there is nothing."""
    settings = result.settings
    whole = {
        "baseline": result.baseline,
        "text": settings.text(),
        "resamples": settings.resamples,
        "shuffles": settings.shuffles,
        "seed": settings.seed,
        "sets": [
            {
                "name": of_set.files.name,
                "segments": of_set.segments,
                "references": of_set.files.references,
                "signatures": of_set.signatures,
                "systems": [
                    {
                        "name": system,
                        "outputs": of_set.files.systems[system],
                        "scores": {
                            metric: _cell(cell, compared=system != result.baseline and result.baseline in of_set.cells)
                            for metric, cell in cells.items()
                        },
                    }
                    for system, cells in of_set.cells.items()
                ],
            }
            for of_set in result.sets
        ],
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def report(result: Evaluation, form: str) -> str:
    """The evaluation in one of FORMATS."""
    return {"text": as_text, "markdown": as_markdown, "json": as_json}[form](result)
