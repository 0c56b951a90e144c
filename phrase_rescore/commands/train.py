"""``phrase-rescore train``: options to one library call."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import click

from phrase_rescore.commands.options import ByteSize, Duration, model_option, on_bad_row_option, quiet_option
from phrase_rescore.runtime import TRAINING_PRECISIONS, local_processes, usable_cores
from phrase_rescore.training.presets import PRESETS

_POSITIVE = click.IntRange(min=1)


def _setting(name: str, kind: click.ParamType, text: str) -> Any:
    """An option that overrides a field of the preset; its help shows the presets' values."""
    values = {f"{getattr(preset, name)}": None for preset in PRESETS.values()}
    default, *others = values
    shown = f"[default: {default}" + (f"; paper: {others[0]}" if others else "") + "]"
    return click.option(f"--{name.replace('_', '-')}", name, type=kind, default=None, help=f"{text}  {shown}")


@click.command(short_help="Learn a model from the distinct pairs of phrase tables.")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@model_option
@click.option("--overwrite", is_flag=True, help="Replace the model in MODEL_DIR, once the new one is complete.")
@click.option("--inverse", is_flag=True, help="Learn p(source | target): the network reads targets and predicts sources.")
@click.option(
    "--source-factor", type=click.IntRange(min=0), metavar="K", help="Of words with factors read the K-th, from 0, alone."
)
@click.option("--target-factor", type=click.IntRange(min=0), metavar="K", help="The same for target words.")
@click.option(
    "--format", "form", type=click.Choice(["table", "extract", "tsv"]), help="What the inputs are.  [default: by their content]"
)
@on_bad_row_option
@click.option("--vocab-corpus", nargs=2, metavar="SOURCE TARGET", help="Count words over this tokenized corpus, not the pairs.")
@click.option("--source-vocab", metavar="FILE", help="Take the source shortlist from FILE: word, tab, count a line.")
@click.option("--target-vocab", metavar="FILE", help="Take the target shortlist from FILE.")
@click.option(
    "--held-out", type=click.IntRange(min=0), default=10_000, show_default=True, metavar="N",
    help="Hold out at most N pairs, and 0.5 % of the sources, to measure on.",
)  # fmt: skip
@click.option(
    "--min-count", type=_POSITIVE, default=1, show_default=True, metavar="N",
    help="Leave out pairs extracted less than N times. 1: every distinct pair, as the paper.",
)  # fmt: skip
@click.option("--max-length", type=_POSITIVE, metavar="N", help="Leave out pairs with a phrase of more than N words.")
@click.option(
    "--pairs", "pairs_dir", metavar="DIR",
    help="Where the prepared pairs are kept, and found again if nothing has changed.  [default: MODEL_DIR.pairs]",
)  # fmt: skip
@click.option("--scratch", metavar="DIR", help="Where pairs are sorted: up to twice their text.  [default: $TMPDIR or /tmp]")
@click.option("--memory", type=ByteSize(), default="1G", show_default=True, help="What sorting may use.")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True, help="Settings to start from."
)
@_setting("hidden", _POSITIVE, "Hidden units of encoder and decoder.")
@_setting("embedding", _POSITIVE, "Size of a word's embedding.")
@_setting("maxout", _POSITIVE, "Maxout units, each pooling 2.")
@_setting("rank", _POSITIVE, "Rank of the output matrix.")
@_setting("shortlist", _POSITIVE, "Words a side that the network knows; the others are UNK.")
@_setting("batch_size", _POSITIVE, "Pairs of a minibatch.")
@_setting("group", _POSITIVE, "Draw so many neighbours of the sorted pairs together; a divisor of --batch-size.")
@_setting("optimizer", click.Choice(["adam", "adadelta"]), "How weights are updated.")
@_setting("learning_rate", click.FloatRange(min=0, min_open=True), "The rate at its highest.")
@_setting("epochs", click.FloatRange(min=0, min_open=True), "Passes over the pairs, if neither steps nor time are given.")
@click.option("--max-steps", type=_POSITIVE, help="Stop after so many minibatches.")
@click.option("--max-time", type=Duration(), help="Stop after this time of training: 90s, 20m, 2h, 1d.")
@click.option(
    "--eval-every", type=_POSITIVE, default=500, show_default=True, metavar="STEPS", help="Measure held-out loss so often."
)
@click.option("--patience", type=_POSITIVE, metavar="N", help="Stop after N measurements without a better one.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted training, exactly where it last measured.")
@click.option("--init-from", metavar="MODEL", help="Start from the weights of this model; words are matched by spelling.")
@click.option(
    "--init", type=click.Choice(["all", "encoder", "decoder"]), default="all", show_default=True, help="Which part of them."
)
@click.option(
    "--freeze", multiple=True, type=click.Choice(["encoder", "decoder", "source-embedding", "target-embedding", "output"]),
    help="Keep a part as it is while the rest learns; may be repeated.",
)  # fmt: skip
@click.option(
    "--final-pass", is_flag=True, help="At the end learn the held-out pairs too, until they cost no more than the others."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the initial weights and the order of pairs.")
@click.option(
    "--threads",
    type=_POSITIVE,
    default=None,
    help="Cores a process may use.  [default: all this process may use, shared among the processes of this machine]",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--precision", type=click.Choice(TRAINING_PRECISIONS), default="float32", show_default=True,
    help="Of the large products. tf32, bf16: GPUs (bf16: CPUs that have it). Weights stay float32.",
)  # fmt: skip
@click.option(
    "--save-dtype",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Type of saved weights.",
)
@click.option("--shard-size", type=ByteSize(), help="Largest file of weights: 15M, 2G.  [default: one file]")
@quiet_option
def command(
    inputs: tuple[str, ...],
    source_factor: int | None,
    target_factor: int | None,
    on_bad_row: str,
    preset: str,
    threads: int | None,
    quiet: bool,
    **chosen: Any,
) -> None:
    """Learn p(target | source) from the distinct phrase pairs of the INPUTs: phrase tables, extract files or
    two-column TSV; plain, gzip, bzip2, xz or zstandard; '-' is standard input.

    \b
    phrase-rescore train phrase-table.gz
    phrase-rescore train phrase-table.gz -m model --max-time 8h
    set -o pipefail; zcat extract.sorted.gz | phrase-rescore train - -m model --preset paper

    \b
    torchrun --standalone --nproc-per-node 4 -m phrase_rescore train phrase-table.gz  (four GPUs)

    Every distinct pair counts once, whatever its scores or counts. Ends with the held-out negative log-likelihood per pair
    (nats), perplexity per word, and both with every source replaced by another of its length.
    """
    from phrase_rescore.commands.progress import TrainingBar, byte_bar, pair_bar, say
    from phrase_rescore.training.options import Observer, Options
    from phrase_rescore.training.run import train_model

    overridden = {field.name: chosen.pop(field.name) for field in fields(PRESETS[preset]) if field.name in chosen}
    settings = replace(PRESETS[preset], **{name: value for name, value in overridden.items() if value is not None})
    options = Options(
        inputs,
        settings=settings,
        preset=preset,
        factors=(source_factor, target_factor),
        drop_bad_rows=on_bad_row == "drop",
        threads=threads or max(1, usable_cores() // local_processes()),
        **chosen,
    )
    reading, preparing = byte_bar(inputs, quiet, "reading"), pair_bar(quiet)
    bar: TrainingBar | None = None

    def on_step(step: int, done: float, loss: float, pairs: int) -> None:
        nonlocal bar
        bar = bar or TrainingBar(quiet)
        bar.step(step, done, loss, pairs)

    def on_record(record: dict[str, Any]) -> None:
        if not quiet:
            say(_record_line(record))

    def talk(message: str) -> None:
        if not quiet or message.startswith("warning"):
            say(message)

    try:
        checkpoint = train_model(options, Observer(talk, reading.update, preparing.update, on_step, on_record))
    finally:
        reading.close()
        preparing.close()
        if bar:
            bar.close()
    if not quiet:
        for line in _report(checkpoint.training, options.model_dir):
            say(line)


def _record_line(record: dict[str, Any]) -> str:
    parts = [f"step {record['step']:,}", str(timedelta(seconds=round(record["seconds"])))]
    if "train_loss" in record:
        parts.append(f"training {record['train_loss']:.3f}")
    if "held_out" in record:
        parts.append(f"held-out {record['held_out']['loss']:.3f} nats/pair, perplexity {record['held_out']['perplexity']:.2f}")
    return ", ".join(parts)


def _report(training: dict[str, Any], model_dir: str) -> list[str]:
    lines = []
    for key, what in (("held_out", "held-out"), ("held_out_other_sources", "control, other sources")):
        if figures := training[key]:
            lines.append(f"{what}: {figures['loss']:.3f} nats per pair, perplexity {figures['perplexity']:.2f} per word")
    if final := training["final_pass"]:
        figures = f"held-out pairs {final['held_out']:.3f} nats per pair, training pairs {final['training']:.3f}"
        lines.append(f"after a final pass of {final['steps']:,} steps: {figures}")
    lines.append(f"model of step {training['best_step']:,} of {training['steps']:,} in {model_dir}")
    return lines
