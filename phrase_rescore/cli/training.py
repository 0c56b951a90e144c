"""Declare train, train-lm and train-nmt."""

from collections.abc import Callable, Mapping
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import (
    BYTE_SIZE,
    DURATION,
    FILE,
    MODEL,
    NEW_DIRECTORY,
    PathName,
    device_option,
    flag,
    option,
    quiet_option,
    unchecked,
)
from phrase_rescore.lm.config import PRESETS as LM_PRESETS
from phrase_rescore.nmt.config import PRESETS as NMT_PRESETS
from phrase_rescore.ranges import FACTORS
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.training.config import Settings


class TrainingOptions:
    """Declares the options of a training. ``model``: its metavar, ``data``: what is prepared, pairs or text."""

    def __init__(self, presets: Mapping[str, Settings], model: str, data: str = "pairs") -> None:
        self._presets, self._ranges = presets, presets["default"].ranges()
        recipe = presets["default"].recipe
        usual = f"{recipe.usual_time / 60:g}m"
        of_paper = "; paper: none" if "paper" in presets else ""
        time = f"Stop after this time of training: 90 or 90s, 20m, 2h, 1d.  [default, without another limit: {usual}{of_paper}]"
        self.max_time = option("--max-time", DURATION, time)
        self.kept = option(
            f"--{data} {data}_dir", NEW_DIRECTORY, metavar="DIR",
            help=f"Keep the prepared {data} in DIR, for later trainings on the same input.  [default: {model}.{data}]",
        )  # fmt: skip
        self.overwrite = flag("--overwrite", "Replace the model in the directory when the new one is complete.")
        passes = "; ".join(f"{name}: {settings.recipe.usual_epochs:g}" for name, settings in presets.items())
        if recipe.usual_steps:
            passes += f", or {recipe.usual_steps:,} minibatches if these are more"
        self.stop = option_group(
            "When to stop",
            self.setting("epochs", f"Stop after this number of passes. Without another limit:  [{passes}]"),
            self.setting("max_steps", "Stop after N minibatches."),
            self.setting("patience", "Stop after N measurements without a better one."),
            self.setting("eval_every", "Measure the held-out loss every STEPS minibatches.", "STEPS"),
        )
        resume = "Continue an interrupted training exactly where it was saved, with its inputs and options."
        self.resume = flag("--resume", f"{resume} The limits may change.")
        self.finish = flag("--finish", "Make the model from an interrupted training as it is, without inputs or options.")
        start = "Start from the weights of this model, matching words by spelling."
        self.init_from = option("--init-from", MODEL, start, metavar="MODEL")
        threads = (
            "Cores that a process may use.  "
            "[default: all usable ones, at most OMP_NUM_THREADS, shared among the processes of this machine]"
        )
        precision = (
            "The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. Weights stay float32. "
            "auto is bf16 on a CPU with AMX, or of AMD with AVX512-BF16, else float32."
        )
        machine = device_option("auto"), self.setting("threads", threads), self.setting("precision", precision)
        self.machine = option_group("Machine", *machine)

    def setting(self, name: str, help: str, metavar: str | None = None, **more: Settings) -> Any:
        """Declare a number, or one of some words. Help that ends with a period shows the values of the presets and ``more``."""
        values: dict[str, str] = {}
        for preset, settings in {"default": self._presets["default"], **more, **self._presets}.items():
            values.setdefault(f"{settings.settings()[name]}", preset)
        if help.endswith(".") and list(values) != ["None"]:
            help += f"  [{'; '.join(f'{preset}: {value}' for value, preset in values.items())}]"
        return option(f"--{name.replace('_', '-')}", unchecked(self._ranges[name]), help, metavar)


_pairs = TrainingOptions(PRESETS, "MODEL_DIR")


@options.command(
    short_help="Train a model on the distinct pairs of phrase tables.",
    then="phrase-rescore annotate TABLE -m {model_dir} -o phrase-table.rnn.gz",
)
@click.argument("inputs", type=FILE, nargs=-1, metavar="INPUT...")
@option_group(
    "Most used",
    options.model_option(NEW_DIRECTORY),
    _pairs.max_time,
    flag("--inverse", "Train p(source | target): read targets, predict sources."),
)
@option_group(
    "Input and output",
    option("--format form", ("table", "extract", "tsv"), "The format of the inputs.  [default: by their content]"),
    options.on_bad_row_option,
    _pairs.kept,
    option(
        "--scratch", PathName(exists=True, file_okay=False, writable=True), metavar="DIR",
        help="Sort the pairs in DIR, which needs room for twice their text.  [default: $TMPDIR or /tmp]",
    ),
    option("--memory", BYTE_SIZE, "The memory that sorting may use.", default="1G"),
    _pairs.overwrite,
)  # fmt: skip
@option_group(
    "Which pairs",
    _pairs.setting("held_out", "Hold out at most N pairs, and at most 0.5 % of the sources, to measure on."),
    _pairs.setting("min_count", "Leave out pairs extracted fewer than N times. The paper uses every distinct pair."),
    _pairs.setting("max_length", "Leave out pairs with a phrase of more than N words."),
)
@option_group(
    "Words",
    _pairs.setting("shortlist", "Known words a side. All others are UNK."),
    option("--source-vocab", FILE, "Take the source shortlist from FILE: word, tab, count a line."),
    option("--target-vocab", FILE, "Take the target shortlist from FILE."),
    option("--source-factor", FACTORS, "Read only the K-th factor, from 0, of every source word.", "K"),
    option("--target-factor", FACTORS, "Read only the K-th factor of every target word.", "K"),
)
@option_group(
    "Network",
    option(
        "--preset", list(PRESETS), "The settings to start from: of words, network, optimization and epochs.", default="default"
    ),
    _pairs.setting("cell", "The unit of encoder and decoder."),
    _pairs.setting("layers", "Layers of units in encoder and decoder."),
    _pairs.setting("encoder", "Read the source forwards, backwards or both."),
    _pairs.setting("hidden", "Hidden units of encoder and decoder."),
    _pairs.setting("embedding", "Dimensions of a word's embedding."),
    _pairs.setting("maxout", "Maxout units, each pooling 2.  [half of --hidden]"),
    _pairs.setting("rank", "Rank of the output matrix."),
)
@option_group(
    "Optimization",
    _pairs.setting("optimizer", "How weights are updated."),
    _pairs.setting("learning_rate", "The peak learning rate.", "RATE", rnn=PRESETS["default"].override(cell="rnn")),
    _pairs.setting("clip", "Shorten a minibatch's gradient to this norm.", "NORM"),
    _pairs.setting(
        "softmax", "full, or sampled: mostly over drawn words, faster. auto: sampled on a CPU.", "KIND",
    ),
    _pairs.setting("batch_size", "Pairs of a minibatch."),
    _pairs.setting("seed", "The seed of initial weights and order of pairs."),
)  # fmt: skip
@_pairs.stop
@option_group("Resuming and fine-tuning", _pairs.resume, _pairs.finish, _pairs.init_from)
@_pairs.machine
@quiet_option
def train(inputs: tuple[str, ...], model_dir: str, quiet: bool, **chosen: Any) -> None:
    """Train p(target | source) on the distinct phrase pairs of the INPUTs. An INPUT is a phrase table, an extract file
    or two-column TSV; plain, gzip, bzip2, xz or zstandard. '-' is standard input.

    \b
    phrase-rescore train phrase-table.gz
    phrase-rescore train phrase-table.gz -m model --max-time 8h
    set -o pipefail; zcat extract.sorted.gz | phrase-rescore train - -m model --preset paper

    \b
    torchrun --standalone --nproc-per-node 4 -m phrase_rescore train phrase-table.gz  (four GPUs)

    Every distinct pair counts once, whatever its scores or counts. At the end train shows the negative log-likelihood per
    held-out pair (nats) and the perplexity per word. Both should be much worse in the next line, where every source is
    replaced by another of its length.
    """
    from phrase_rescore.api import train

    settings = options.given(chosen)
    factors = settings.pop("source_factor", None), settings.pop("target_factor", None)
    if factors != (None, None):
        settings["factors"] = factors
    if settings.pop("on_bad_row", "fail") == "drop":
        settings["drop_bad_rows"] = True
    _run(train, inputs, model_dir, quiet, settings)


def _run(
    train: Callable[..., dict[str, Any]], inputs: tuple[str, ...], model_dir: str, quiet: bool, settings: dict[str, Any],
    item: str = "pair",
) -> None:  # fmt: skip
    """Train, and report what the training cost: losses are those of an ``item``."""
    from phrase_rescore.cli.terminal import TrainingTalk, say

    with TrainingTalk(inputs, quiet, item) as observer:
        summary = train(inputs, model_dir, observer=observer, **settings)
    of_words = " per word" if item == "pair" else ""
    for key, what in (("held_out", "held-out"), ("held_out_other_sources", "with wrong sources")):
        if figures := summary.get(key):
            loss = f"{figures['loss']:.3f} nats per {item}, perplexity {figures['perplexity']:.2f}{of_words}"
            say(f"{what}: {loss}", quiet)
    of_steps = f"model of step {summary['best_step']:,} of {summary['steps']:,}"
    say(f"{of_steps} ({summary['passes']:.3g} passes) in {model_dir}", quiet)


_text = TrainingOptions(LM_PRESETS, "LM", "text")


@options.command(
    short_help="Train a language model on text.",
    then="phrase-rescore rescore dev.nbest.gz -m {lm} -o dev.lm.nbest.gz",
)
@click.argument("inputs", type=FILE, nargs=-1, metavar="CORPUS...")
@option_group(
    "Most used",
    options.lm_option(NEW_DIRECTORY),
    _text.max_time,
    option(
        "--preset", list(LM_PRESETS), default="default",
        help="The settings to start from: of the network, regularization, optimization and epochs.",
    ),
    _text.kept,
    _text.overwrite,
)  # fmt: skip
@option_group(
    "Text and words",
    _text.setting("held_out", "Hold out at most N sentences to measure on."),
    _text.setting("held_out_share", "Hold out at most this share of the sentences.", "SHARE"),
    _text.setting("shortlist", "Known words, at most N, never the rarest 1 %. All others are UNK."),
    _text.setting("min_count", "Known words must occur N times."),
    option("--vocab", FILE, "Take the words from FILE: word, tab, count a line."),
)
@option_group(
    "Network",
    _text.setting("order", "Words of an n-gram."),
    _text.setting("embedding", "Dimensions of a word's embedding."),
    _text.setting("hidden", "Units of the first hidden layer."),
    _text.setting(
        "output",
        "Units of the second hidden layer, with output embeddings of their own.  [default: those of an embedding, "
        "which input and output share; paper: 1024]",
    ),
)
@option_group(
    "Regularization",
    _text.setting("dropout", "The share of embeddings and hidden units that a step drops.", "SHARE"),
    _text.setting(
        "shorten", "Train this share of the n-grams with a shortened context, as at the start of a phrase in Moses.", "SHARE"
    ),
    _text.setting("self_normalize", "The weight of log² Z: logits then serve as log-probabilities.", "ALPHA"),
)
@option_group(
    "Optimization",
    _text.setting("optimizer", "How weights are updated."),
    _text.setting("learning_rate", "The peak learning rate.", "RATE"),
    _text.setting("batch_size", "N-grams of a minibatch."),
    _text.setting("seed", "The seed of initial weights and order of n-grams."),
)
@_text.stop
@option_group("Resuming and fine-tuning", _text.resume, _text.finish, _text.init_from)
@_text.machine
@quiet_option
def train_lm(inputs: tuple[str, ...], lm: str, quiet: bool, **chosen: Any) -> None:
    """Train p(word | the words before it) on tokenized text, one sentence a line. CORPUS is plain, gzip, bzip2, xz or
    zstandard; '-' is standard input.

    \b
    phrase-rescore train-lm train.fr -m nlm --max-time 30m
    set -o pipefail; zcat mono.fr.gz | phrase-rescore train-lm train.fr - -m nlm

    The network is that of NPLM: n-grams, two rectified layers, a softmax over the words. export-lm writes it for the feature
    NeuralLM of Moses. At the end train-lm shows the held-out negative log-likelihood per word (nats) and perplexity, with </s>.
    """
    from phrase_rescore.api import train_lm

    _run(train_lm, inputs, lm, quiet, options.given(chosen), "word")


_bitext = TrainingOptions(NMT_PRESETS, "NMT")


@options.command(
    short_help="Train a translation model on a bitext.",
    then="phrase-rescore rescore dev.nbest.gz -m {nmt} --source DEV.SOURCE -o dev.nmt.nbest.gz",
)
@click.argument("inputs", type=FILE, nargs=-1, metavar="SOURCE TARGET")
@option_group(
    "Most used",
    option(
        "-m --model nmt", NEW_DIRECTORY, "The directory of the translation model.",
        metavar="NMT", default="phrase-rescore-nmt",
    ),
    _bitext.max_time,
    _bitext.kept,
    _bitext.overwrite,
)  # fmt: skip
@option_group(
    "Sentences and words",
    _bitext.setting("held_out", "Hold out at most N pairs, and at most 0.5 % of the sources, to measure on."),
    _bitext.setting("max_length", "Leave out pairs with a sentence of more than N words."),
    _bitext.setting("shortlist", "Known words a side, never the rarest 1 %. All others are UNK."),
)
@option_group(
    "Network",
    _bitext.setting("hidden", "Units of every layer."),
    _bitext.setting("embedding", "Dimensions of a word's embedding, which input and output share."),
    _bitext.setting("dropout", "The share of embeddings and units that a step drops.", "SHARE"),
)
@option_group(
    "Optimization",
    _bitext.setting("learning_rate", "The peak learning rate of Adam.", "RATE"),
    _bitext.setting("batch_size", "Pairs of a minibatch."),
    _bitext.setting("seed", "The seed of initial weights, dropout and order of pairs."),
)
@_bitext.stop
@option_group("Resuming", _bitext.resume, _bitext.finish)
@_bitext.machine
@quiet_option
def train_nmt(inputs: tuple[str, ...], nmt: str, quiet: bool, **chosen: Any) -> None:
    """Train p(target | source) on the sentences of a bitext: line N of TARGET translates line N of SOURCE. Both are tokenized
    as for Moses, and plain, gzip, bzip2, xz or zstandard.

    \b
    phrase-rescore train-nmt train.en train.fr -m nmt

    The network reads the whole source and attends to it at every target word (Luong et al. 2015). rescore adds its score to
    n-best lists. It cannot score phrase tables. At the end train-nmt shows the held-out negative log-likelihood per pair (nats)
    and perplexity per word. Both should be much worse in the next line, where every source is replaced by another of its
    length.
    """
    from phrase_rescore.api import train_nmt

    _run(train_nmt, inputs, nmt, quiet, options.given(chosen))
