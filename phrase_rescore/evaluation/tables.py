"""An evaluation laid out as papers do, systems down and sets across: text, Markdown, JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from phrase_rescore.evaluation.run import Evaluation, SetScores, SystemScore
from phrase_rescore.evaluation.significance import Noise
from phrase_rescore.messages import counted


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


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
    metrics, baseline = result.metrics, result.baseline

    def cells(sets: Sequence[SetScores], system: str, figure: Callable[[SystemScore], str]) -> list[str]:
        """Return a cell a column, empty where the system has no output on the set."""
        return [figure(of_set.systems[system][m]) if system in of_set.systems else "" for of_set in sets for m in metrics]

    def layout(labels: list[str], sets: Sequence[SetScores], rows: list[list[str]]) -> str:
        """Lay out a table with a column for each metric of each set."""
        align = ["left"] * len(labels) + ["right"] * len(sets) * len(metrics)
        if form == "markdown":
            heads = [*labels, *(f"{of_set.files.name} {metric}" for of_set in sets for metric in metrics)]
            heads, *rows = [list(map(_escaped, row)) for row in (heads, *rows)]
            return str(tabulate(rows, heads, "pipe", disable_numparse=True, colalign=align))
        heads = [f"\n{label}" for label in labels]
        for of_set in sets:
            name = of_set.files.name  # over the first of its metrics
            for metric in metrics:
                heads.append(f"{name}\n{metric}")
                name = ""
        return str(tabulate(rows, heads, "plain", disable_numparse=True, colalign=align))

    yield layout(["system"], result.sets, [[system, *cells(result.sets, system, _score)] for system in result.systems])
    sets = [of_set for of_set in result.sets if baseline in of_set.systems and len(of_set.systems) > 1]
    rows = []
    for system in result.systems:
        label = system
        for name, figure in _COMPARED.items():
            figures = cells(sets, system, figure)
            if any(figures):  # not those of the baseline
                rows.append([label, name, *figures])
                label = ""
    if rows:
        yield layout([f"against {baseline}", ""], sets, rows)


def _notes(result: Evaluation, mark: str) -> Iterator[tuple[str, str]]:
    """Yield notes on the numbers: a name, and the note; ``mark`` is around signatures."""
    for of_set in result.sets:
        yield of_set.files.name, f"{counted(of_set.basis.segments, 'segment')}, {counted(of_set.basis.references, 'reference')}"
    for metric in result.metrics:
        signatures = {of_set.signatures[metric]: of_set.files.name for of_set in result.sets}
        for signature, name in signatures.items():
            lower = "; lower is better" if metric == "TER" else ""
            yield metric if len(signatures) == 1 else f"{metric}, {name}", f"{mark}{signature}{mark}{lower}"
    settings = result.settings
    yield "text", settings.text()
    pairs = ((system, of_set.files) for system in result.systems for of_set in result.sets)
    runs = [(system, files.name, len(files.systems.get(system, ()))) for system, files in pairs]
    if several := [f"{system} {n} on {name}" for system, name, n in runs if n > 1]:
        yield "±", f"mean and standard deviation of tuning runs: {', '.join(several)}"
    for of_set in result.sets:
        yield from _noise(of_set, result.baseline)
    scores = [score for of_set in result.sets for by_metric in of_set.systems.values() for score in by_metric.values()]
    if any(score.p_bootstrap is not None for score in scores):
        yield "p bootstrap", f"sacrebleu's paired bootstrap, {settings.resamples:,} resamples, seed {settings.seed}"
    if any(score.p_randomization is not None for score in scores):
        shuffles = f"{settings.shuffles:,} shuffles, seed {settings.seed}"
        yield "p randomization", f"approximate randomization (Clark et al. 2011), {shuffles}"


def _noise(of_set: SetScores, baseline: str) -> Iterator[tuple[str, str]]:
    noise = of_set.noise()
    if not noise:
        if baseline in of_set.systems and len(of_set.systems) > 1:
            yield f"noise, {of_set.files.name}", "that of tuning is unknown from one run each; tune every system three times"
        return

    def listed(figures: Iterable[float]) -> str:
        return ", ".join(f"{metric} {figure:.2f}" for metric, figure in zip(noise, figures, strict=True))

    degrees = f"{counted(next(iter(noise.values())).freedom, 'degree')} of freedom"
    deviations = listed(of_metric.deviation for of_metric in noise.values())
    yield f"noise, {of_set.files.name}", f"standard deviation of tuning runs, pooled over systems: {deviations} ({degrees})"


def _as_json(result: Evaluation) -> str:
    """Return everything in full precision, null for missing values."""

    def of_score(score: SystemScore) -> dict[str, Any]:
        figures = {"mean": score.mean, "standard_deviation": score.deviation, "runs": score.runs}
        return figures if score.difference is None else figures | asdict(score)

    def of_noise(noise: Noise) -> dict[str, Any]:
        return {"standard_deviation": noise.deviation, "degrees_of_freedom": noise.freedom}

    def of_set(scores: SetScores) -> dict[str, Any]:
        files = scores.files
        systems = [
            {"name": name, "outputs": files.systems[name], "scores": {metric: of_score(one) for metric, one in of.items()}}
            for name, of in scores.systems.items()
        ]
        noise = {metric: of_noise(noise) for metric, noise in scores.noise().items()}
        figures = {
            "name": files.name, "segments": scores.basis.segments, "references": files.references,
            "signatures": scores.signatures, "noise": noise, "systems": systems,
        }  # fmt: skip
        examples = {
            system: {kind: list(map(asdict, listed)) for kind, listed in of_system.items()}
            for system, of_system in scores.examples.items()
        }
        return figures | {"examples": examples} if examples else figures

    settings = result.settings
    whole = {
        "baseline": result.baseline, "text": settings.text(), "resamples": settings.resamples, "shuffles": settings.shuffles,
        "seed": settings.seed, "sets": [of_set(scores) for scores in result.sets],
    }  # fmt: skip
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _examples(result: Evaluation) -> Iterator[str]:
    """Yield the examples of every set and system, each as some lines with a heading before the first of a kind."""
    for of_set in result.sets:
        for system, examples in of_set.examples.items():
            for kind, listed in examples.items():
                if listed:
                    yield f"{of_set.files.name}, {system} against {result.baseline}: {kind} most"
                for example in listed:
                    yield "\n".join(example.lines(result.baseline, system))


def layout(result: Evaluation, form: str) -> str:
    """Lay out an evaluation as ``text``, ``markdown`` or ``json``."""
    if form == "json":
        return _as_json(result)
    if form == "markdown":
        text = "\n".join(f"- {_escaped(name)}: {note}" for name, note in _notes(result, "`"))
    else:
        text = str(tabulate([*_notes(result, "")], tablefmt="plain", disable_numparse=True))
    examples = list(_examples(result))
    if examples and form == "markdown":
        examples = ["```text", *examples, "```"]
    return "\n\n".join([*_tables(result, form), text, *examples]) + "\n"
