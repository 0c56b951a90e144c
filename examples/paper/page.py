"""Write the page of an experiment from its results alone: no decoder, no text.

usage: page.py RESULTS.tar.xz > RESULTS.md

RESULTS.tar.xz has experiment.json and, for every run on every set, SYSTEM.RUN.SET: counts that `phrase-rescore evaluate` reads.
"""

import csv
import json
import math
import re
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETS = ("dev", "test")
OF_MOSES = ("φ(source|target)", "lex(source|target)", "φ(target|source)", "lex(target|source)")


def evaluation(results: Path, runs: dict[str, list[str]]) -> str:
    """Let phrase-rescore lay out the table, and put what it says of the noise of tuning at its head."""
    command = ["phrase-rescore", "evaluate", "-q", "--format", "markdown", "--samples", "2000"]  # seconds, not minutes
    for name in SETS:
        outputs = [f"{system}={','.join(f'{system}.{n}.{name}' for n in of_system)}" for system, of_system in runs.items()]
        command += ["--set", name, *outputs]
    lines = subprocess.run(command, cwd=results, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    noise = [line for line in lines if line.startswith("- noise, ")]
    return "\n".join([*noise, "", *(line for line in lines if line not in noise)])


def words_and_length(results: Path, runs: dict[str, list[str]]) -> Iterator[str]:
    """Tell better words from longer outputs: BLEU without its penalty for short outputs, and that penalty's cause."""
    yield "| system | test BLEU without its penalty for short outputs | words for each of the reference |"
    yield "| :--- | ---: | ---: |"
    for system, of_system in runs.items():
        words, lengths = [], []
        for run in of_system:
            counts = bleu_counts(results / f"{system}.{run}.test")
            length, reference, *matches = (sum(column) for column in zip(*counts, strict=True))
            possible = [sum(max(0, of_segment[0] - n) for of_segment in counts) for n in range(4)]
            logs = [math.log(right / of) if right else -math.inf for right, of in zip(matches, possible, strict=True)]
            words.append(100 * math.exp(statistics.fmean(logs)))
            lengths.append(length / reference)
        yield f"| {system} | {mean_and_deviation(words, 2)} | {mean_and_deviation(lengths)} |"


def bleu_counts(path: Path) -> list[list[int]]:
    """Read for every segment the words of output and reference, and the matches of 1 to 4 words."""
    with path.open() as lines:
        next(lines)  # what the counts rest on
        columns = ["bleu.sys_len", "bleu.ref_len", *(f"bleu.correct_{n}" for n in range(1, 5))]
        return [[int(row[column]) for column in columns] for row in csv.DictReader(lines, delimiter="\t")]


def weights(record: dict[str, Any]) -> Iterator[str]:
    """Lay out the tuned weights, mean and deviation over the runs; Moses' tuners make their absolute values sum to 1."""
    by_system: dict[str, dict[str, list[float]]] = {}
    for system, runs in record["runs"].items():
        found = by_system.setdefault(system, {})
        of_files = re.findall(r"column=\S*?([^/\s]+)\.gz", record["settings"].get(f"system.{system}", ""))
        names = [*OF_MOSES, *(record["columns"][system] or of_files)]
        for run in runs.values():
            for feature, values in run["tuned"].items():
                labels = names if feature == "TranslationModel0" else [feature.removesuffix("0")]
                for label, value in zip(labels, values, strict=False):
                    found.setdefault(label, []).append(value)
    features = dict.fromkeys(label for found in by_system.values() for label in found if label != "UnknownWordPenalty")
    yield f"| weight | {' | '.join(by_system)} |"
    yield f"| :--- |{' ---: |' * len(by_system)}"
    for feature in features:
        cells = [mean_and_deviation(found.get(feature, [])) for found in by_system.values()]
        yield f"| {feature.replace('|', chr(92) + '|')} | {' | '.join(cells)} |"


def mean_and_deviation(values: list[float], digits: int = 3) -> str:
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.fmean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def headroom(found: dict[str, Any]) -> Iterator[str]:
    if of := found.get("oracle"):
        yield (
            f"- **Oracle.** The baseline's first run has BLEU {of['first']:.2f} on test; the best choices within its 200-best "
            f"lists ({of['hypotheses'] / of['lists']:.0f} different ones on average) have {of['oracle']:.2f}."
        )
    if of := found.get("coverage"):
        yield (
            f"- **Phrases.** Of {of['tokens']:,} source tokens of test, {of['long phrases']:.1%} are translated by phrases of "
            f"4 words or more, {of['seen once']:.1%} by pairs that the training text has once, {of['unknown']:.1%} are unknown."
        )
    if of := dict(found.get("search") or {}):
        segments = of.pop("segments")
        yield (
            f"- **Search.** The same weights with limits of {', '.join(of)} (stack and pops): BLEU "
            f"{', '.join(f'{bleu:.2f}' for bleu in of.values())} on every fifth segment of test ({segments})."
        )
    yield (
        "- **A cheat** (where there is a row of this name) has one more column: the relative frequency of the pair in the dev "
        "and test sets themselves. Its row is a ceiling for any score of phrase pairs, and no system."
    )


def columns(found: dict[str, Any]) -> Iterator[str]:
    yield "\n## Columns in lists of the training text\n"
    yield (
        f"{found['segments']:,} segments of the training text, each translated by a model of the other half of it, "
        f"{found['entries'] / found['segments']:.0f} entries on average; every system has its own weights, tuned on the lists "
        "of other segments. p by randomization over segments.\n"
    )
    yield "| system | BLEU | gain (p) | length | weights of the table's scores |"
    yield "|:---|---:|---:|---:|:---|"
    for number, (system, of) in enumerate(found["systems"].items()):
        gain = f"{of['gain']:+.2f} ({of['p']:.3f})" if number else ""
        of_table = " ".join(f"{weight:.3f}" for label, weight in of["weights"].items() if label.startswith("TranslationModel0"))
        yield f"| {system} | {of['bleu']:.2f} | {gain} | {of['length']:.3f} | {of_table} |"


def networks(record: dict[str, Any]) -> Iterator[str]:
    for name, training in record["networks"].items():
        if "distinct_pairs" not in training:
            figures, words = training["held_out"], training["words"]["training"]
            yield (
                f"- Language model {name}: {training['steps']:,} steps of {training['batch_size']:,}, {training['passes']:.1f} "
                f"passes over {words:,} words, held-out perplexity {figures['perplexity']:.1f}; log Z strays from 0 by "
                f"{training['log_z']['deviation']:.2f}."
            )
            continue
        loss, pairs = training["held_out"]["loss"], training["distinct_pairs"]["training"]
        yield (
            f"- Network {name}: {training['steps']:,} steps of {training['batch_size']}, {training['passes']:.2f} passes over "
            f"{pairs:,} pairs, held-out loss {loss:.2f} nats a pair."
        )


def page(results: Path) -> Iterator[str]:
    record = json.loads((results / "experiment.json").read_text("utf-8"))
    runs = {system: list(of_system) for system, of_system in record["runs"].items() if of_system}
    data, rows = record["data"], record["rows"]
    train = data[f"train.{record['source']}"]["segments"]
    yield f"# {record['name']}: {record['source']} → {record['target']}\n"
    yield (
        f"{train:,} segments of training text, {rows['phrase-table']:,} phrase pairs. Made by `examples/paper/run.sh "
        f"{record['name']}.conf`; this page, by `page.py`, from the counts beside it.\n"
    )
    yield evaluation(results, runs)
    yield "\n## Better words, or more of them\n"
    yield from words_and_length(results, runs)
    yield "\n## Headroom\n"
    yield from headroom(record["headroom"])
    if found := record["headroom"].get("columns"):
        yield from columns(found)
    yield "\n## Weights\n"
    yield from weights(record)
    yield "\n## Networks and settings\n"
    yield from networks(record)
    yield from (f"- {name}: `{value}`" for name, value in record["settings"].items() if value)
    yield f"- versions: {', '.join(f'{name} {of_name}' for name, of_name in record['versions'].items())}"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with TemporaryDirectory() as folder:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(folder, filter="data")
        for part in page(Path(folder)):
            print(part)


if __name__ == "__main__":
    main()
