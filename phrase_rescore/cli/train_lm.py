"""Turn the options of ``phrase-rescore train-lm`` into a call of the library."""

from typing import Any

from cloup import option_group

from phrase_rescore.cli.options import grouped_command, lm_option, path_argument, path_option, quiet_option
from phrase_rescore.cli.training_options import TrainingOptions
from phrase_rescore.files.paths import Role
from phrase_rescore.lm.config import PRESETS

_options = TrainingOptions(PRESETS, "text")


@grouped_command(
    short_help="Learn a language model from text.", then="phrase-rescore rescore dev.nbest.gz -m {lm} -o dev.lm.nbest.gz"
)
@path_argument("inputs", nargs=-1, required=True, metavar="CORPUS...")
@option_group(
    "Most used",
    lm_option(Role.WRITE_DIRECTORY, _options.beside),
    _options.max_time,
    _options.preset("the network, regularization, optimization and epochs"),
)
@option_group(
    "Input and output",
    path_option(
        "--text", "text_dir", role=Role.CACHE_DIRECTORY, metavar="DIR",
        help="Keep the encoded text in DIR. The next training finds it there if nothing has changed.  [default: LM.text]",
    ),
    _options.overwrite,
)  # fmt: skip
@option_group(
    "Text and words",
    _options.number("held_out", "Hold out at most N sentences to measure on.", default=2000),
    _options.setting("held_out_share", "Hold out at most this share of the sentences.", "SHARE"),
    _options.setting("shortlist", "The network knows N words at most, never the rarest 1 %: all others are UNK."),
    _options.number("min_count", "The network knows only words seen N times.", default=1),
    path_option("--vocab", role=Role.READ, metavar="FILE", help="Take the words from FILE: word, tab, count a line."),
)
@option_group(
    "Network",
    _options.setting("order", "Words of an n-gram."),
    _options.setting("embedding", "Dimensions of a word's embedding."),
    _options.setting("hidden", "Units of the first hidden layer."),
    _options.number(
        "output",
        "Units of the second hidden layer; output embeddings are then learnt apart.  [default: as many as an embedding "
        "has, and embeddings serve on both sides; paper: 1024]",
    ),
)
@option_group(
    "Regularization",
    _options.setting("dropout", "The share of embeddings and hidden units that a step does without.", "SHARE"),
    _options.setting("shorten", "The share of contexts that lose their oldest words, to learn lower orders.", "SHARE"),
    _options.setting("self_normalize", "The weight of log² Z: logits then serve as log-probabilities.", "ALPHA"),
)
@option_group(
    "Optimization",
    _options.choice("optimizer", "How weights are updated.", "adam", "adadelta"),
    _options.setting("learning_rate", "The peak learning rate.", "RATE"),
    _options.setting("batch_size", "N-grams of a minibatch."),
    _options.number("seed", "The seed of initial weights and order of n-grams.", default=1),
)
@option_group(
    "When to stop",
    _options.setting("epochs", "Passes over the text, if no other limit is given."),
    _options.max_steps,
    _options.setting("patience", "Stop after N measurements without a better one."),
    _options.eval_every,
    _options.resume,
)
@_options.machine
@quiet_option
def command(inputs: tuple[str, ...], lm: str, quiet: bool, **chosen: Any) -> None:
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
        summary = train_lm(inputs, lm, observer=observer, **settings)
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
