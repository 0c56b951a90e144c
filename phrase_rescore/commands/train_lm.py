"""Turn the options of ``phrase-rescore train-lm`` into a library call."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from cloup import command as grouped_command
from cloup import option_group

from phrase_rescore.commands.options import (
    ByteSize,
    Duration,
    device_option,
    directory_option,
    file_argument,
    file_option,
    lm_option,
    number_option,
    quiet_option,
    setting_option,
)
from phrase_rescore.training.lm_config import PRESETS, RANGES


def _number(name: str, **attributes: Any) -> Any:
    return number_option(f"--{name.replace('_', '-')}", range=RANGES[name], **attributes)


_setting = partial(setting_option, presets=PRESETS)


@grouped_command(short_help="Learn a language model from text.")
@file_argument("inputs", nargs=-1, required=True, metavar="CORPUS...")
@option_group(
    "Most used",
    lm_option,
    click.option("--max-time", type=Duration(), help="Stop after this time of training: 90s, 20m, 2h, 1d."),
    click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        default="default",
        show_default=True,
        help="The settings to start from: of the network, regularization, optimization and epochs.",
    ),
)
@option_group(
    "Input and output",
    directory_option(
        "--text", "text_dir", metavar="DIR",
        help="Keep the encoded text in DIR. The next training finds it there if nothing has changed.  [default: LM.text]",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the model in LM once the new one is complete."),
    click.option(
        "--save-dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
        help="The type of saved weights.",
    ),
    click.option("--shard-size", type=ByteSize(), help="The largest file of weights: 15M, 2G.  [default: one file]"),
)  # fmt: skip
@option_group(
    "Text and words",
    _number("held_out", default=2000, show_default=True, metavar="N", help="Hold out at most N sentences to measure on."),
    _setting("held_out_share", metavar="SHARE", text="Hold out at most this share of the sentences."),
    _setting("shortlist", metavar="N", text="The network knows N words. All others are UNK."),
    _number("min_count", default=1, show_default=True, metavar="N", help="The network knows only words seen N times."),
    file_option("--vocab", metavar="FILE", help="Take the words from FILE: word, tab, count a line."),
)  # fmt: skip
@option_group(
    "Network",
    _setting("order", metavar="N", text="Words of an n-gram."),
    _setting("embedding", metavar="N", text="Dimensions of a word's embedding."),
    _setting("hidden", metavar="N", text="Units of the first hidden layer."),
    _setting("output", metavar="N", text="Units of the second hidden layer."),
)  # fmt: skip
@option_group(
    "Regularization",
    _setting("dropout", metavar="SHARE", text="The share of embeddings and hidden units that a step does without."),
    _setting("shorten", metavar="SHARE", text="The share of contexts that lose their oldest words, to learn lower orders."),
    _setting("self_normalize", metavar="ALPHA", text="The weight of log² Z: logits then serve as log-probabilities."),
)
@option_group(
    "Optimization",
    _setting("optimizer", metavar=None, text="How weights are updated.", kind=click.Choice(["adam", "adadelta"])),
    _setting("learning_rate", metavar="RATE", text="The highest learning rate."),
    _setting("batch_size", metavar="N", text="N-grams of a minibatch."),
    _number("seed", default=1, show_default=True, metavar="N", help="The seed of initial weights and order of n-grams."),
)
@option_group(
    "When to stop",
    _setting("epochs", metavar="N", text="Passes over the text, unless time or steps are given."),
    _number("max_steps", metavar="N", help="Stop after N minibatches."),
    _setting("patience", metavar="N", text="Stop after N measurements without a better one."),
    _number(
        "eval_every", default=500, show_default=True, metavar="STEPS",
        help="Measure the held-out loss after so many minibatches.",
    ),
    click.option("--resume", is_flag=True, help="Continue an interrupted training exactly from its last measurement."),
)  # fmt: skip
@option_group(
    "Machine",
    device_option("auto"),
    _number(
        "threads", metavar="N",
        help="Cores that a process may use.  [default: all usable ones, shared among the processes of this machine]",
    ),
    click.option(
        "--precision", type=click.Choice(["float32", "tf32"]), default="float32", show_default=True,
        help="The precision of large products. tf32 needs a GPU.",
    ),
)  # fmt: skip
@quiet_option
def command(inputs: tuple[str, ...], lm: str, preset: str, quiet: bool, **chosen: Any) -> None:
    """Learn p(word | the words before it) from tokenized text, one sentence a line. CORPUS is plain, gzip, bzip2, xz or
    zstandard; '-' is standard input.

    \b
    phrase-rescore train-lm train.fr -m lm --max-time 30m
    set -o pipefail; zcat mono.fr.gz | phrase-rescore train-lm train.fr - -m lm

    The network is that of NPLM: n-grams, two rectified layers, a softmax over the words. export-lm writes it for the feature
    NeuralLM of Moses. Training ends with the held-out negative log-likelihood per word (nats) and perplexity, </s> counted.
    """
    from phrase_rescore.commands.progress import TrainingTalk, say
    from phrase_rescore.library import train_lm

    settings = {name: value for name, value in chosen.items() if value is not None}
    with TrainingTalk(inputs, quiet, "word", "sentences") as observer:
        summary = train_lm(inputs, lm, preset=preset, observer=observer, **settings)
    if not quiet:
        for line in _report(summary, lm):
            say(line)


def _report(training: dict[str, Any], lm: str) -> list[str]:
    lines = []
    if figures := training["held_out"]:
        lines.append(f"held-out: {figures['loss']:.3f} nats per word, perplexity {figures['perplexity']:.2f}")
    log_z = training["log_z"]
    of = "held-out contexts" if training["held_out"] else "contexts of the text"
    lines.append(f"log Z of {of}: standard deviation {log_z['deviation']:.3f} around 0")
    passes = f"{training['passes']:.3g} passes over the text"
    lines.append(f"model of step {training['best_step']:,} of {training['steps']:,} ({passes}) in {lm}")
    return lines
