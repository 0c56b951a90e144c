"""Turn the options of ``phrase-rescore train`` into a call of the library."""

from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import BYTE_SIZE, model_option, number_option, on_bad_row_option, path_option, quiet_option
from phrase_rescore.cli.training_options import TrainingOptions
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import FACTORS
from phrase_rescore.rnn.config import PRESETS

_options = TrainingOptions(PRESETS, "pairs")


@options.grouped_command(
    short_help="Learn a model from the distinct pairs of phrase tables.",
    then="phrase-rescore annotate phrase-table.gz -m {model_dir} -o phrase-table.rnn.gz",
)
@options.path_argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@option_group(
    "Most used",
    model_option(Role.WRITE_DIRECTORY, _options.beside),
    _options.max_time,
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
    click.option("--memory", type=BYTE_SIZE, default="1G", show_default=True, help="The memory that sorting may use."),
    _options.overwrite,
)  # fmt: skip
@option_group(
    "Which pairs",
    _options.number("held_out", "Hold out at most N pairs, and at most 0.5 % of the sources, to measure on.", default=10_000),
    _options.number(
        "min_count", "Leave out pairs extracted fewer than N times. The paper uses every distinct pair.", default=1
    ),
    _options.number("max_length", "Leave out pairs with a phrase of more than N words."),
)
@option_group(
    "Words",
    _options.setting("shortlist", "Known words a side. All others are UNK."),
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
        "--source-factor", range=FACTORS, metavar="K", help="Read only the K-th factor, from 0, of every source word."
    ),
    number_option("--target-factor", range=FACTORS, metavar="K", help="Read only the K-th factor of every target word."),
)  # fmt: skip
@option_group(
    "Network",
    _options.preset("words, network, optimization and epochs"),
    _options.choice("cell", "The unit of encoder and decoder.", "gru", "lstm", "rnn"),
    _options.setting("layers", "Layers of units in encoder and decoder."),
    _options.choice("encoder", "Read the source forwards, backwards or both.", "forward", "reversed", "bidirectional"),
    _options.setting("hidden", "Hidden units of encoder and decoder."),
    _options.setting("embedding", "Dimensions of a word's embedding."),
    _options.setting("maxout", "Maxout units, each pooling 2."),
    _options.setting("rank", "Rank of the output matrix."),
)
@option_group(
    "Optimization",
    _options.choice("optimizer", "How weights are updated.", "adam", "adadelta"),
    _options.setting("learning_rate", "The peak learning rate.", "RATE", rnn=PRESETS["default"].override(cell="rnn")),
    _options.setting("clip", "Shorten a minibatch's gradient to this norm.", "NORM"),
    _options.choice(
        "softmax", "full, or sampled: mostly over drawn words, faster. auto: sampled on a CPU.", "auto", "full", "sampled",
        metavar="KIND",
    ),
    _options.setting("batch_size", "Pairs of a minibatch."),
    _options.number("seed", "The seed of initial weights and order of pairs.", default=1),
)  # fmt: skip
@option_group(
    "When to stop",
    _options.setting("epochs", "Passes over the pairs, if no other limit is given."),
    _options.max_steps,
    _options.number("patience", "Stop after N measurements without a better one."),
    _options.eval_every,
    click.option(
        "--final-pass", is_flag=True, help="Learn the held-out pairs too at the end, until they cost no more than the others."
    ),
)
@option_group(
    "Resuming and fine-tuning",
    _options.resume,
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
@_options.machine
@quiet_option
def command(
    inputs: tuple[str, ...], model_dir: str, source_factor: int | None, target_factor: int | None, on_bad_row: str, quiet: bool,
    **chosen: Any,
) -> None:  # fmt: skip
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

    chosen |= {"factors": (source_factor, target_factor), "drop_bad_rows": on_bad_row == "drop"}
    settings = {name: value for name, value in chosen.items() if value is not None}
    with TrainingTalk(inputs, quiet, "pair", "pairs") as observer:
        summary = train(inputs, model_dir, observer=observer, **settings)
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
