"""An evaluation laid out as papers do, systems down and sets across: text, Markdown, JSON."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from phrase_rescore.evaluation.run import Evaluation, SetScores, SystemScore
from phrase_rescore.evaluation.significance import SEED
from phrase_rescore.messages import counted


def _score(score: SystemScore) -> str:
    return f"{score.mean:.2f}" + ("" if score.deviation is None else f" ± {score.deviation:.2f}")


def _signed(x: float) -> str:
    """Write a difference with its sign; what rounds to zero has none.

    >>> _signed(0.5), _signed(-0.001)
    ('+0.50', '0.00')
    """
    text = f"{x:+.2f}"
    return text if any(digit in text for digit in "123456789") else "0.00"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "<0.001"


_COMPARED: dict[str, Callable[[SystemScore], str]] = {
    "difference": lambda score: "" if score.difference is None else _signed(score.difference),
    "p bootstrap": lambda score: _p(score.p_bootstrap),
    "p randomization": lambda score: _p(score.p_randomization),
}


def _tables(result: Evaluation, form: str) -> Iterator[str]:
    """Yield the table of scores and, if systems are compared, that of differences: a column for each metric of each set."""

    def cells(sets: Sequence[SetScores], system: str, figure: Callable[[SystemScore], str]) -> list[str]:
        """Return a cell a column, empty where the system has no output on the set."""
        scores = [of_set.systems.get(system, {}) for of_set in sets]
        return [figure(of_set[metric]) if of_set else "" for of_set in scores for metric in result.metrics]

    def table(labels: list[str], sets: Sequence[SetScores], rows: list[list[str]]) -> str:
        heads = [f"{of_set.files.name} {metric}" for of_set in sets for metric in result.metrics]
        align = ["left"] * len(labels) + ["right"] * len(heads)
        return str(tabulate(rows, [*labels, *heads], form, disable_numparse=True, colalign=align))

    yield table(["system"], result.sets, [[system, *cells(result.sets, system, _score)] for system in result.systems])
    baseline, *others = result.systems
    sets = [of_set for of_set in result.sets if baseline in of_set.systems and len(of_set.systems) > 1]
    rows = []
    for system in others:
        label = system
        for name, figure in _COMPARED.items():
            figures = cells(sets, system, figure)
            if any(figures):
                rows.append([label, name, *figures])
                label = ""
    if rows:
        yield table([f"against {baseline}", ""], sets, rows)


def _notes(result: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield notes on the numbers: a name, and the note."""
    for of_set in result.sets:
        yield of_set.files.name, f"{counted(of_set.basis.segments, 'segment')}, {counted(of_set.basis.references, 'reference')}"
    for metric in result.metrics:
        signatures = {of_set.signatures[metric]: of_set.files.name for of_set in result.sets}
        for signature, name in signatures.items():
            lower = "; lower is better" if metric == "TER" else ""
            yield metric if len(signatures) == 1 else f"{metric}, {name}", f"`{signature}`{lower}"
    settings = result.settings
    yield "text", settings.text()
    pairs = ((system, of_set.files) for system in result.systems for of_set in result.sets)
    runs = [(system, files.name, len(files.systems.get(system, ()))) for system, files in pairs]
    if several := [f"{system} {n} on {name}" for system, name, n in runs if n > 1]:
        yield "±", f"mean and standard deviation of tuning runs: {', '.join(several)}"
    for of_set in result.sets:
        if noise := of_set.noise():
            deviations = ", ".join(f"{metric} {of_metric.standard_deviation:.2f}" for metric, of_metric in noise.items())
            degrees = f"{counted(next(iter(noise.values())).degrees_of_freedom, 'degree')} of freedom"
            found = f"standard deviation of tuning runs, pooled over systems: {deviations} ({degrees})"
            yield f"noise, {of_set.files.name}", found
    scores = [score for of_set in result.sets for by_metric in of_set.systems.values() for score in by_metric.values()]
    if any(score.p_bootstrap is not None for score in scores):
        yield (
            "p bootstrap",
            f"sacrebleu's paired bootstrap, {settings.resamples:,} resamples, seed {SEED}; near 0.4 for hardly any difference",
        )
    if any(score.p_randomization is not None for score in scores):
        shuffles = f"{settings.shuffles:,} shuffles, seed {SEED}"
        yield "p randomization", f"approximate randomization (Clark et al. 2011), {shuffles}"


def _examples(result: Evaluation) -> Iterator[str]:
    """Yield the examples of every set and system, each as some lines with a heading before the first of a kind."""
    baseline = result.systems[0]
    for of_set in result.sets:
        for system, examples in of_set.examples.items():
            for kind, listed in examples.items():
                if listed:
                    yield f"{of_set.files.name}, {system} against {baseline}: {kind} most"
                for example in listed:  # indented, which is literal text in Markdown
                    yield "\n".join(f"    {line}" for line in example.lines(baseline, system))


def _as_json(result: Evaluation) -> str:
    """Return everything in full precision, null for missing values."""

    def of_score(score: SystemScore) -> dict[str, Any]:
        return {"mean": score.mean, "standard_deviation": score.deviation, **asdict(score)}

    def of_set(scores: SetScores) -> dict[str, Any]:
        systems = [
            {
                "name": name,
                "outputs": scores.files.systems[name],
                "scores": {metric: of_score(one) for metric, one in of.items()},
            }
            for name, of in scores.systems.items()
        ]
        figures = {
            "name": scores.files.name, "segments": scores.basis.segments, "references": scores.files.references,
            "signatures": scores.signatures, "noise": {metric: noise._asdict() for metric, noise in scores.noise().items()},
            "systems": systems,
        }  # fmt: skip
        return figures | ({"examples": asdict(scores)["examples"]} if scores.examples else {})

    settings = result.settings
    whole = {
        "baseline": result.systems[0], "text": settings.text(), "resamples": settings.resamples,
        "shuffles": settings.shuffles, "sets": list(map(of_set, result.sets)),
    }  # fmt: skip
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def layout(result: Evaluation, form: str) -> str:
    """Lay out an evaluation as ``text``, ``markdown`` or ``json``."""
    if form == "json":
        return _as_json(result)
    notes = "\n".join(f"- {name}: {note}" for name, note in _notes(result))
    tables = _tables(result, "pipe" if form == "markdown" else "plain")
    return "\n\n".join([*tables, notes, *_examples(result)]) + "\n"
