"""Declare the options of train and train-lm: those that they share, those made of the settings of presets, their own."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import BYTE_SIZE, DURATION, number, number_option, path_option, quiet_option
from phrase_rescore.files.paths import Role, Use, beside
from phrase_rescore.lm.config import PRESETS as LM_PRESETS
from phrase_rescore.ranges import FACTORS
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.runtime import PRECISIONS
from phrase_rescore.training.config import Settings


class TrainingOptions:
    """Declares the options of a training, with the names and ranges of its settings. ``data``: its pairs or text."""

    def __init__(self, presets: Mapping[str, Settings], data: str, made_by: str) -> None:
        self._presets, self._ranges, self._data = presets, presets["default"].ranges(), data
        usual = presets["default"].recipe.usual_time / 60
        time = f"Stop after this time of training: 90s, 20m, 2h, 1d.  [default, without another limit: {usual:g}m; paper: none]"
        self.max_time = click.option("--max-time", type=DURATION, help=time)
        passes = "; ".join(f"{name}: {settings.recipe.usual_epochs:g}" for name, settings in presets.items())
        self.epochs = self.number("epochs", f"Stop after this number of passes. Without another limit:  [{passes}]")
        self.max_steps = self.number("max_steps", "Stop after N minibatches.")
        self.eval_every = self.number("eval_every", "Measure the held-out loss every STEPS minibatches.", "STEPS", default=500)
        overwrite = "Replace the model in the directory when the new one is complete."
        self.overwrite = options.flag("--overwrite", help=overwrite)
        resume = (
            "Continue an interrupted training exactly where it was saved, with its inputs and options. The limits may change."
        )
        self.resume = options.flag("--resume", help=resume)
        finish = "Make the model from an interrupted training as it is, without inputs or options."
        self.finish = options.flag("--finish", help=finish)
        self.init_from = path_option(
            "--init-from", role=Role.READ_DIRECTORY, may_be="-m", made_by=made_by, metavar="MODEL",
            help="Start from the weights of this model, matching words by spelling.",
        )  # fmt: skip
        threads = "Cores that a process may use.  [default: all usable ones, shared among the processes of this machine]"
        self.machine = option_group(
            "Machine",
            options.device_option("auto"),
            self.number("threads", threads),
            options.choice_option(
                "--precision", values=PRECISIONS, default="float32",
                help="The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. Weights stay float32.",
            ),
        )  # fmt: skip

    def beside(self, model_dir: str, values: Mapping[str, Any]) -> Iterator[Use]:
        """Yield the files that a training keeps beside its model."""
        yield Use("-m's state", beside(model_dir, "training"), Role.WRITE_DIRECTORY)
        if values[f"{self._data}_dir"] is None:
            yield Use(f"--{self._data}'s default", beside(model_dir, self._data), Role.CACHE_DIRECTORY)
        if values.get("on_bad_row") == "drop":
            yield Use("-m's dropped rows", beside(model_dir, "dropped"), Role.WRITE)

    def preset(self, what: str) -> Any:
        """Declare the option that chooses the preset, the settings of ``what``."""
        help = f"The settings to start from: of {what}."
        return options.choice_option("--preset", values=list(self._presets), default="default", help=help)

    def number(self, name: str, help: str, metavar: str = "N", default: int | None = None) -> Any:
        """Declare an option that is a number."""
        option, shown = f"--{name.replace('_', '-')}", default is not None
        kind = number(self._ranges[name])
        return click.option(option, type=kind, metavar=metavar, help=help, default=default, show_default=shown)

    def setting(
        self, name: str, help: str, metavar: str | None = "N", kind: click.ParamType | None = None, **more: Settings
    ) -> Any:
        """Declare an option, by default a number, whose help shows the values of the presets and of ``more``."""
        values: dict[str, str] = {}
        for preset, settings in {"default": self._presets["default"], **more, **self._presets}.items():
            values.setdefault(f"{settings.settings()[name]}", preset)
        shown = "; ".join(f"{preset}: {value}" for value, preset in values.items())
        kind = kind or number(self._ranges[name])
        return click.option(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=f"{help}  [{shown}]")

    def choice(self, name: str, help: str, *values: str, metavar: str | None = None) -> Any:
        """Declare an option that is one of some words, whose help shows the presets' values."""
        return self.setting(name, help, metavar, click.Choice(values))


_pairs = TrainingOptions(PRESETS, "pairs", "train TABLE")


def _after_train(values: dict[str, Any]) -> str:
    if values["form"] == "tsv" or "".join(values["inputs"][:1]).endswith(".tsv"):  # perhaps of sentences
        return "phrase-rescore rescore dev.nbest.gz -m {model_dir} --whole --source DEV.SOURCE -o dev.rnn.nbest.gz"
    return "phrase-rescore annotate TABLE -m {model_dir} -o phrase-table.rnn.gz"


@options.grouped_command(
    short_help="Train a model on the distinct pairs of phrase tables.",
    usual="model_dir max_time epochs inverse resume finish overwrite on_bad_row shortlist hidden preset precision device "
    "threads quiet",
    then=_after_train,
)
@options.path_argument("inputs", nargs=-1, metavar="INPUT...")
@option_group(
    "Most used",
    options.model_option(Role.WRITE_DIRECTORY, _pairs.beside),
    _pairs.max_time,
    options.flag("--inverse", help="Train p(source | target): read targets, predict sources."),
)
@option_group(
    "Input and output",
    options.choice_option(
        "--format", "form", values=("table", "extract", "tsv"), help="The format of the inputs.  [default: by their content]"
    ),
    options.on_bad_row_option,
    path_option(
        "--pairs", "pairs_dir", role=Role.CACHE_DIRECTORY, metavar="DIR",
        help="Keep the prepared pairs in DIR. The next training finds them there if nothing has changed.  "
        "[default: MODEL_DIR.pairs]",
    ),
    path_option(
        "--scratch", role=Role.SCRATCH, metavar="DIR",
        help="Sort the pairs in DIR, which needs room for twice their text.  [default: $TMPDIR or /tmp]",
    ),
    click.option("--memory", type=BYTE_SIZE, default="1G", show_default=True, help="The memory that sorting may use."),
    _pairs.overwrite,
)  # fmt: skip
@option_group(
    "Which pairs",
    _pairs.number("held_out", "Hold out at most N pairs, and at most 0.5 % of the sources, to measure on.", default=10_000),
    _pairs.number("min_count", "Leave out pairs extracted fewer than N times. The paper uses every distinct pair.", default=1),
    _pairs.number("max_length", "Leave out pairs with a phrase of more than N words."),
)
@option_group(
    "Words",
    _pairs.setting("shortlist", "Known words a side. All others are UNK."),
    path_option("--source-vocab", help="Take the source shortlist from FILE: word, tab, count a line."),
    path_option("--target-vocab", help="Take the target shortlist from FILE."),
    path_option(
        "--vocab-corpus", nargs=2, metavar="SOURCE TARGET", help="Count words in this tokenized corpus instead of the pairs."
    ),
    options.flag("--allow-poor-coverage", help="Train even if the given words are less than half of the pairs' words."),
    number_option(
        "--source-factor", range=FACTORS, metavar="K", help="Read only the K-th factor, from 0, of every source word."
    ),
    number_option("--target-factor", range=FACTORS, metavar="K", help="Read only the K-th factor of every target word."),
)  # fmt: skip
@option_group(
    "Network",
    _pairs.preset("words, network, optimization and epochs"),
    _pairs.choice("cell", "The unit of encoder and decoder.", "gru", "lstm", "rnn"),
    _pairs.setting("layers", "Layers of units in encoder and decoder."),
    _pairs.choice("encoder", "Read the source forwards, backwards or both.", "forward", "reversed", "bidirectional"),
    _pairs.setting("hidden", "Hidden units of encoder and decoder."),
    _pairs.setting("embedding", "Dimensions of a word's embedding."),
    _pairs.number("maxout", "Maxout units, each pooling 2.  [half of --hidden]"),
    _pairs.setting("rank", "Rank of the output matrix."),
)
@option_group(
    "Optimization",
    _pairs.choice("optimizer", "How weights are updated.", "adam", "adadelta"),
    _pairs.setting("learning_rate", "The peak learning rate.", "RATE", rnn=PRESETS["default"].override(cell="rnn")),
    _pairs.setting("clip", "Shorten a minibatch's gradient to this norm.", "NORM"),
    _pairs.choice(
        "softmax", "full, or sampled: mostly over drawn words, faster. auto: sampled on a CPU.", "auto", "full", "sampled",
        metavar="KIND",
    ),
    _pairs.setting("batch_size", "Pairs of a minibatch."),
    _pairs.number("seed", "The seed of initial weights and order of pairs.", default=1),
)  # fmt: skip
@option_group(
    "When to stop",
    _pairs.epochs,
    _pairs.max_steps,
    _pairs.number("patience", "Stop after N measurements without a better one."),
    _pairs.eval_every,
    options.flag("--final-pass", help="At the end train on the held-out pairs as well, so that they score like the rest."),
)
@option_group(
    "Resuming and fine-tuning",
    _pairs.resume,
    _pairs.finish,
    _pairs.init_from,
    options.choice_option(
        "--init", values=("all", "encoder", "decoder"), default="all", help="The part of that model's weights to take."
    ),
    click.option(
        "--freeze", multiple=True,
        type=click.Choice(["encoder", "decoder", "source-embedding", "target-embedding", "output"]),
        help="Keep a part as it is while the rest is trained. May be repeated.",
    ),
)  # fmt: skip
@_pairs.machine
@quiet_option
def train(
    inputs: tuple[str, ...], model_dir: str, source_factor: int | None, target_factor: int | None, on_bad_row: str, quiet: bool,
    **chosen: Any,
) -> None:  # fmt: skip
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
    from phrase_rescore.cli.terminal import TrainingTalk, tell

    settings = options.given(chosen)
    if source_factor is not None or target_factor is not None:
        settings["factors"] = (source_factor, target_factor)
    if on_bad_row == "drop":
        settings["drop_bad_rows"] = True
    with TrainingTalk(inputs, quiet, "pair", "pairs") as observer:
        summary = train(inputs, model_dir, observer=observer, **settings)
    tell(_report(summary, model_dir), quiet)


def _report(training: dict[str, Any], model_dir: str) -> list[str]:
    lines = []
    for key, what in (("held_out", "held-out"), ("held_out_other_sources", "with wrong sources")):
        if figures := training[key]:
            lines.append(f"{what}: {figures['loss']:.3f} nats per pair, perplexity {figures['perplexity']:.2f} per word")
    if final := training["final_pass"]:
        figures = f"held-out pairs {final['held_out']:.3f} nats per pair, training pairs {final['training']:.3f}"
        lines.append(f"after a final pass of {final['steps']:,} steps: {figures}")
    passes = f"{training['passes']:.3g} passes over the pairs"
    lines.append(f"model of step {training['best_step']:,} of {training['steps']:,} ({passes}) in {model_dir}")
    return lines


_text = TrainingOptions(LM_PRESETS, "text", "train-lm CORPUS")


@options.grouped_command(
    short_help="Train a language model on text.",
    usual="lm max_time epochs resume finish overwrite shortlist order hidden dropout preset precision device threads quiet",
    then="phrase-rescore rescore dev.nbest.gz -m {lm} -o dev.lm.nbest.gz",
)
@options.path_argument("inputs", nargs=-1, metavar="CORPUS...")
@option_group(
    "Most used",
    options.lm_option(Role.WRITE_DIRECTORY, _text.beside),
    _text.max_time,
    _text.preset("the network, regularization, optimization and epochs"),
)
@option_group(
    "Input and output",
    path_option(
        "--text", "text_dir", role=Role.CACHE_DIRECTORY, metavar="DIR",
        help="Keep the encoded text in DIR. The next training finds it there if nothing has changed.  [default: LM.text]",
    ),
    _text.overwrite,
)  # fmt: skip
@option_group(
    "Text and words",
    _text.number("held_out", "Hold out at most N sentences to measure on.", default=2000),
    _text.setting("held_out_share", "Hold out at most this share of the sentences.", "SHARE"),
    _text.setting("shortlist", "Known words, at most N, never the rarest 1 %. All others are UNK."),
    _text.number("min_count", "Known words must occur N times.", default=1),
    path_option("--vocab", help="Take the words from FILE: word, tab, count a line."),
)
@option_group(
    "Network",
    _text.setting("order", "Words of an n-gram."),
    _text.setting("embedding", "Dimensions of a word's embedding."),
    _text.setting("hidden", "Units of the first hidden layer."),
    _text.number(
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
    _text.choice("optimizer", "How weights are updated.", "adam", "adadelta"),
    _text.setting("learning_rate", "The peak learning rate.", "RATE"),
    _text.setting("batch_size", "N-grams of a minibatch."),
    _text.number("seed", "The seed of initial weights and order of n-grams.", default=1),
)
@option_group(
    "When to stop",
    _text.epochs,
    _text.max_steps,
    _text.setting("patience", "Stop after N measurements without a better one."),
    _text.eval_every,
    _text.resume,
    _text.finish,
    _text.init_from,
)
@_text.machine
@quiet_option
def train_lm(inputs: tuple[str, ...], lm: str, quiet: bool, **chosen: Any) -> None:
    """Train p(word | the words before it) on tokenized text, one sentence a line. CORPUS is plain, gzip, bzip2, xz or
    zstandard; '-' is standard input.

    \b
    phrase-rescore train-lm train.fr -m lm --max-time 30m
    set -o pipefail; zcat mono.fr.gz | phrase-rescore train-lm train.fr - -m lm

    The network is that of NPLM: n-grams, two rectified layers, a softmax over the words. export-lm writes it for the feature
    NeuralLM of Moses. At the end train-lm shows the held-out negative log-likelihood per word (nats) and perplexity, with </s>.
    """
    from phrase_rescore.api import train_lm
    from phrase_rescore.cli.terminal import TrainingTalk, tell

    settings = options.given(chosen)
    with TrainingTalk(inputs, quiet, "word", "sentences") as observer:
        summary = train_lm(inputs, lm, observer=observer, **settings)
    tell(_report_lm(summary, lm), quiet)


def _report_lm(training: dict[str, Any], lm: str) -> list[str]:
    lines = []
    if figures := training["held_out"]:
        lines.append(f"held-out: {figures['loss']:.3f} nats per word, perplexity {figures['perplexity']:.2f}")
    log_z = training["log_z"]
    of = "held-out contexts" if training["held_out"] else "contexts of the text"
    lines.append(f"log Z of {of}: standard deviation {log_z['deviation']:.3f} around 0")
    passes = f"{training['passes']:.3g} passes over the text"
    lines.append(f"model of step {training['best_step']:,} of {training['steps']:,} ({passes}) in {lm}")
    return lines
