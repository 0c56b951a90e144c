"""Turn the options of ``phrase-rescore train-lm`` into a library call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli.options import (
    device_option,
    grouped_command,
    lm_option,
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
from phrase_rescore.lm.config import PRESETS, RANGES

_number = partial(number_setting, ranges=RANGES)
_setting = partial(setting_option, presets=PRESETS)


def _beside(lm: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield what a training keeps beside the model."""
    yield Use("-m's state", beside(lm, "training"), Role.WRITE_DIRECTORY)
    if values["text_dir"] is None:
        yield Use("--text's default", beside(lm, "text"), Role.CACHE_DIRECTORY)


@grouped_command(short_help="Learn a language model from text.")
@path_argument("inputs", nargs=-1, required=True, metavar="CORPUS...")
@option_group(
    "Most used",
    lm_option(Role.WRITE_DIRECTORY, _beside),
    max_time_option,
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
    path_option(
        "--text", "text_dir", role=Role.CACHE_DIRECTORY, metavar="DIR",
        help="Keep the encoded text in DIR. The next training finds it there if nothing has changed.  [default: LM.text]",
    ),
    overwrite_option,
    save_dtype_option,
    shard_size_option,
)  # fmt: skip
@option_group(
    "Text and words",
    _number("held_out", default=2000, show_default=True, metavar="N", help="Hold out at most N sentences to measure on."),
    _setting("held_out_share", metavar="SHARE", text="Hold out at most this share of the sentences."),
    _setting("shortlist", metavar="N", text="The network knows N words at most, never the rarest 1 %: all others are UNK."),
    _number("min_count", default=1, show_default=True, metavar="N", help="The network knows only words seen N times."),
    path_option("--vocab", role=Role.READ, metavar="FILE", help="Take the words from FILE: word, tab, count a line."),
)  # fmt: skip
@option_group(
    "Network",
    _setting("order", metavar="N", text="Words of an n-gram."),
    _setting("embedding", metavar="N", text="Dimensions of a word's embedding."),
    _setting("hidden", metavar="N", text="Units of the first hidden layer."),
    _number(
        "output", metavar="N",
        help="Units of the second hidden layer; output embeddings are then learnt apart.  [default: as many as an embedding "
        "has, and embeddings serve on both sides; paper: 1024]",
    ),
)  # fmt: skip
@option_group(
    "Regularization",
    _setting("dropout", metavar="SHARE", text="The share of embeddings and hidden units that a step does without."),
    _setting("shorten", metavar="SHARE", text="The share of contexts that lose their oldest words, to learn lower orders."),
    _setting("self_normalize", metavar="ALPHA", text="The weight of log² Z: logits then serve as log-probabilities."),
)
@option_group(
    "Optimization",
    _setting("optimizer", metavar=None, text="How weights are updated.", kind=optimizers),
    _setting("learning_rate", metavar="RATE", text="The peak learning rate."),
    _setting("batch_size", metavar="N", text="N-grams of a minibatch."),
    _number("seed", default=1, show_default=True, metavar="N", help="The seed of initial weights and order of n-grams."),
)
@option_group(
    "When to stop",
    _setting("epochs", metavar="N", text="Passes over the text, if no other limit is given."),
    max_steps_option,
    _setting("patience", metavar="N", text="Stop after N measurements without a better one."),
    eval_every_option,
    resume_option,
)  # fmt: skip
@option_group(
    "Machine",
    device_option("auto"),
    threads_option,
    precision_option,
)
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
    from phrase_rescore.api import train_lm
    from phrase_rescore.cli.terminal import TrainingTalk, say

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
