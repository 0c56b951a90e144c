"""Turn the options of ``phrase-rescore train`` into library calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli.options import (
    ByteSize,
    device_option,
    grouped_command,
    model_option,
    number_option,
    on_bad_row_option,
    path_argument,
    path_option,
    quiet_option,
    setting_option,
)
from phrase_rescore.cli.training_options import (
    eval_every_option,
    max_steps_option,
    max_time_option,
    number_setting,
    optimizers,
    overwrite_option,
    precision_option,
    resume_option,
    save_dtype_option,
    shard_size_option,
    threads_option,
)
from phrase_rescore.files.paths import Role, Use, beside
from phrase_rescore.ranges import FACTORS
from phrase_rescore.training.config import PRESETS

_number = number_setting
_setting = partial(setting_option, presets=PRESETS)


def _beside(model_dir: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield what a training keeps beside the model."""
    yield Use("-m's state", beside(model_dir, "training"), Role.WRITE_DIRECTORY)
    if values["pairs_dir"] is None:
        yield Use("--pairs's default", beside(model_dir, "pairs"), Role.CACHE_DIRECTORY)
    if values["on_bad_row"] == "drop":
        yield Use("-m's dropped rows", beside(model_dir, "dropped"), Role.WRITE)


@grouped_command(short_help="Learn a model from the distinct pairs of phrase tables.")
@path_argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@option_group(
    "Most used",
    model_option(Role.WRITE_DIRECTORY, _beside),
    max_time_option,
    click.option("--inverse", is_flag=True, help="Learn p(source | target): read targets, predict sources."),
)
@option_group(
    "Input and output",
    click.option(
        "--format", "form", type=click.Choice(["table", "extract", "tsv"]),
        help="What the inputs are.  [default: by their content]",
    ),
    on_bad_row_option,
    path_option(
        "--pairs", "pairs_dir", role=Role.CACHE_DIRECTORY, metavar="DIR",
        help="Keep the prepared pairs in DIR. The next training finds them there if nothing has changed.  "
        "[default: MODEL_DIR.pairs]",
    ),
    path_option(
        "--scratch", role=Role.SCRATCH, metavar="DIR",
        help="Sort the pairs in DIR, which takes up to twice their text.  [default: $TMPDIR or /tmp]",
    ),
    click.option("--memory", type=ByteSize(), default="1G", show_default=True, help="The memory that sorting may use."),
    overwrite_option,
    save_dtype_option,
    shard_size_option,
)  # fmt: skip
@option_group(
    "Which pairs",
    _number(
        "held_out", default=10_000, show_default=True, metavar="N",
        help="Hold out at most N pairs, and at most 0.5 % of the sources, to measure on.",
    ),
    _number(
        "min_count", default=1, show_default=True, metavar="N",
        help="Leave out pairs extracted fewer than N times. The paper uses every distinct pair.",
    ),
    _number("max_length", metavar="N", help="Leave out pairs with a phrase of more than N words."),
)  # fmt: skip
@option_group(
    "Words",
    _setting("shortlist", metavar="N", text="Known words a side. All others are UNK."),
    path_option(
        "--source-vocab", role=Role.READ, metavar="FILE",
        help="Take the source shortlist from FILE: word, tab, count a line.",
    ),
    path_option("--target-vocab", role=Role.READ, metavar="FILE", help="Take the target shortlist from FILE."),
    path_option(
        "--vocab-corpus", role=Role.READ, nargs=2, metavar="SOURCE TARGET",
        help="Count words in this tokenized corpus instead of the pairs.",
    ),
    click.option(
        "--allow-poor-coverage", is_flag=True, help="Train even if given words are less than half of the pairs' words."
    ),
    number_option(
        "--source-factor", range=FACTORS, metavar="K",
        help="Read only the K-th factor, from 0, of every source word.",
    ),
    number_option(
        "--target-factor", range=FACTORS, metavar="K", help="Read only the K-th factor of every target word."
    ),
)  # fmt: skip
@option_group(
    "Network",
    click.option(
        "--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True,
        help="The settings to start from: of words, network, optimization and epochs.",
    ),
    _setting("cell", metavar=None, text="The unit of encoder and decoder.", kind=click.Choice(["gru", "lstm", "rnn"])),
    _setting("layers", metavar="N", text="Layers of units in encoder and decoder."),
    _setting(
        "encoder", metavar=None, text="Read the source forwards, backwards or both.",
        kind=click.Choice(["forward", "reversed", "bidirectional"]),
    ),
    _setting("hidden", metavar="N", text="Hidden units of encoder and decoder."),
    _setting("embedding", metavar="N", text="Dimensions of a word's embedding."),
    _setting("maxout", metavar="N", text="Maxout units, each pooling 2."),
    _setting("rank", metavar="N", text="Rank of the output matrix."),
)  # fmt: skip
@option_group(
    "Optimization",
    _setting("optimizer", metavar=None, text="How weights are updated.", kind=optimizers),
    setting_option(
        "learning_rate", metavar="RATE", text="The peak learning rate.",
        presets={"default": PRESETS["default"], "rnn": PRESETS["default"].override(cell="rnn"), "paper": PRESETS["paper"]},
    ),
    _setting("clip", metavar="NORM", text="Shorten a minibatch's gradient to this norm."),
    _setting(
        "softmax", metavar="KIND", kind=click.Choice(["auto", "full", "sampled"]),
        text="full, or sampled: mostly over drawn words, faster. auto: sampled on a CPU.",
    ),
    _setting("batch_size", metavar="N", text="Pairs of a minibatch."),
    _setting("group", metavar="N", text="Draw N neighbours of the sorted pairs together. N divides the batch size."),
    _number(
        "seed", default=1, show_default=True, metavar="N",
        help="The seed of initial weights and order of pairs.",
    ),
)  # fmt: skip
@option_group(
    "When to stop",
    _setting("epochs", metavar="N", text="Passes over the pairs, if no other limit is given."),
    max_steps_option,
    _number("patience", metavar="N", help="Stop after N measurements without a better one."),
    eval_every_option,
    click.option(
        "--final-pass", is_flag=True, help="Learn the held-out pairs too at the end, until they cost no more than the others."
    ),
)  # fmt: skip
@option_group(
    "Resuming and fine-tuning",
    resume_option,
    path_option(
        "--init-from", role=Role.READ_DIRECTORY, may_be="-m", metavar="MODEL",
        help="Start from the weights of this model, matching words by spelling.",
    ),
    click.option(
        "--init", type=click.Choice(["all", "encoder", "decoder"]), default="all", show_default=True,
        help="The part of its weights to take.",
    ),
    click.option(
        "--freeze", multiple=True,
        type=click.Choice(["encoder", "decoder", "source-embedding", "target-embedding", "output"]),
        help="Keep a part as it is while the rest learns. May be repeated.",
    ),
)  # fmt: skip
@option_group(
    "Machine",
    device_option("auto"),
    threads_option,
    precision_option,
)
@quiet_option
def command(
    inputs: tuple[str, ...],
    model_dir: str,
    source_factor: int | None,
    target_factor: int | None,
    on_bad_row: str,
    preset: str,
    quiet: bool,
    **chosen: Any,
) -> None:
    """Learn p(target | source) from the distinct phrase pairs of the INPUTs. An INPUT is a phrase table, an extract file
    or two-column TSV; plain, gzip, bzip2, xz or zstandard. '-' is standard input.

    \b
    phrase-rescore train phrase-table.gz
    phrase-rescore train phrase-table.gz -m model --max-time 8h
    set -o pipefail; zcat extract.sorted.gz | phrase-rescore train - -m model --preset paper

    \b
    torchrun --standalone --nproc-per-node 4 -m phrase_rescore train phrase-table.gz  (four GPUs)

    Every distinct pair counts once, whatever its scores or counts. Training ends with the held-out negative log-likelihood
    per pair (nats), the perplexity per word, and both again with every source replaced by another of its length.
    """
    from phrase_rescore.api import train
    from phrase_rescore.cli.terminal import TrainingTalk, say

    settings = {name: value for name, value in chosen.items() if value is not None}
    with TrainingTalk(inputs, quiet, "pair", "pairs") as observer:
        summary = train(
            inputs, model_dir, preset=preset, observer=observer, factors=(source_factor, target_factor),
            drop_bad_rows=on_bad_row == "drop", **settings,
        )  # fmt: skip
    if not quiet:
        for line in _report(summary, model_dir):
            say(line)


def _report(training: dict[str, Any], model_dir: str) -> list[str]:
    lines = []
    for key, what in (("held_out", "held-out"), ("held_out_other_sources", "control, other sources")):
        if figures := training[key]:
            lines.append(f"{what}: {figures['loss']:.3f} nats per pair, perplexity {figures['perplexity']:.2f} per word")
    if final := training["final_pass"]:
        figures = f"held-out pairs {final['held_out']:.3f} nats per pair, training pairs {final['training']:.3f}"
        lines.append(f"after a final pass of {final['steps']:,} steps: {figures}")
    passes = f"{training['passes']:.3g} passes over the pairs"
    lines.append(f"model of step {training['best_step']:,} of {training['steps']:,} ({passes}) in {model_dir}")
    return lines
