"""Declare the options of evaluate, which compares systems."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from phrase_rescore.cli import options
from phrase_rescore.cli.options import FILE, OUTPUT, TEXT, Value, flag, force_option, option, quiet_option
from phrase_rescore.evaluation.corpora import SetFiles
from phrase_rescore.ranges import EXAMPLES, SAMPLES

_METRICS = ("bleu", "chrf", "ter")


class SetOption(click.Option):
    """An option whose value is all words up to the next option; click's own options take a fixed number."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        option = parser._long_opt["--set"]
        process = option.process

        def process_all(word: str, state: Any) -> None:
            words = [word]
            while state.rargs and (state.rargs[0] == "-" or not state.rargs[0].startswith("-")):
                words.append(state.rargs.pop(0))
            process(tuple(words), state)

        option.process = process_all


class EvaluateCommand(options.Command):
    """A command with no argument: the shell completes each word as the name of a file, for ``--set``."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]


@options.command(
    cls=EvaluateCommand, short_help="Compare systems by BLEU, chrF and TER, with significance tests.",
    options_metavar="[OPTIONS] --set NAME REF SYSTEM=OUT... [--set ...]",
)  # fmt: skip
@option(
    "--set sets", Value("SET", SetFiles.parse), cls=SetOption, multiple=True, required=True,
    help="A set, its reference (or REF,REF), and the output of every system (OUT,OUT for several tuning runs).",
    metavar="NAME REF SYSTEM=OUT...",
)  # fmt: skip
@option("--metrics", options.subset(_METRICS), "The metrics.", default=",".join(_METRICS))
@option("--detokenize", TEXT, "Detokenize all text by sacremoses' rules for this language, and undo Moses' escapes.", "LANG")
@option(
    "--tokenize", ("none", "13a", "intl", "char", "zh"),
    "The tokenization of BLEU.  [default: none, the tokens of the text; with --detokenize 13a, zh: zh, ja: char]",
)  # fmt: skip
@flag("--lowercase", "Ignore case in BLEU and chrF. (TER always ignores it.)")
@option("--samples", SAMPLES, "Samples of each test.  [default: 1000 of the bootstrap, 10000 of the randomization]")
@option(
    "--examples", EXAMPLES, "Also show the N segments that gained most over the baseline, and the N that lost most.", default=0
)
@option("--source", FILE, "The text that was translated, to show it in --examples.")
@option(
    "--format form", ("text", "markdown", "json"), "How to write the table. json has every run and all digits.", default="text"
)
@option(
    "--statistics", OUTPUT,
    "Write the counts of the only output to FILE, gzip. A later evaluation takes FILE as OUT.",
)  # fmt: skip
@force_option
@quiet_option
def evaluate(sets: tuple[SetFiles, ...], form: str, quiet: bool, **asked: Any) -> None:
    """Score the outputs of systems with sacrebleu. Write a table of systems and sets, with the signatures of the metrics.
    It has the differences to the first system, the baseline, and the probability p of one as large by chance.

    \b
    phrase-rescore evaluate --set dev dev.fr baseline=dev.out rnn=dev.rnn.out \\
        --set test test.fr baseline=test.out rnn=test.rnn.out
    phrase-rescore evaluate --detokenize fr --set test test.fr \\
        baseline=base.1.out,base.2.out,base.3.out rnn=rnn.1.out,rnn.2.out,rnn.3.out
    phrase-rescore evaluate --examples 5 --source test.en \\
        --set test test.fr baseline=test.out rnn=test.rnn.out
    phrase-rescore evaluate --set test test.fr rnn=test.rnn.out --statistics test.rnn.gz

    TEXT. Moses reads and writes tokenized, escaped text. By default BLEU takes its tokens for words (sacrebleu's tok:none), as
    the papers of Moses' time did. To compare with other papers use --detokenize, and sacrebleu's tokenization. sacremoses
    and Moses' detokenizer.perl write the same text, except for numbers in Czech, endings in Finnish and elisions in Irish.
    OUT may be what moses wrote with -t: the numbers of source words are left out.

    RUNS. Every tuning ends with other weights. Give the outputs of several tuning runs of one system with commas between: the
    table has their mean and standard deviation. The notes below it have the noise of tuning: the standard deviation pooled
    over all systems.

    STATISTICS. OUT may be a file that --statistics wrote. It has the counts from which all figures follow, and no text. A
    set of such files needs no REF. Figures are the same to the digit.

    EXAMPLES. Segments are taken by sentence BLEU, of several runs those of the first.

    TESTS. p randomization is from approximate randomization, stratified over all runs of both systems (Clark et al.,
    ACL 2011). p bootstrap is from sacrebleu's paired bootstrap of one output against one: it compares these two outputs,
    not other tunings. Scores and p bootstrap are those of the sacrebleu command, except that a difference of 0 has p 1.
    """
    from phrase_rescore.cli.terminal import share_bar, warn
    from phrase_rescore.evaluation.run import evaluate
    from phrase_rescore.evaluation.tables import layout

    with share_bar("evaluating", quiet) as bar:
        result = evaluate(sets, on_done=bar.reach, **asked)
    warn(*result.warnings)
    click.echo(layout(result, form), nl=False)
