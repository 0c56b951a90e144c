"""Declare the options of evaluate and why, which compare systems."""

import os
from typing import Any

import click
from click.shell_completion import CompletionItem

from phrase_rescore.cli import options
from phrase_rescore.cli.options import ANNOTATED_TABLE, FILE, TEXT, PathName, flag, option, quiet_option
from phrase_rescore.errors import OptionError
from phrase_rescore.evaluation.corpora import SetFiles
from phrase_rescore.files.paths import Role
from phrase_rescore.messages import printable
from phrase_rescore.ranges import SAMPLES, SHOWN_SEGMENTS, TEST_SEEDS

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
    "--set sets", PathName(read=SetFiles.parse, paths=SetFiles.paths), cls=SetOption, multiple=True, required=True,
    help="A set, its reference (or REF,REF), and the output of every system (OUT,OUT for several tuning runs).",
    metavar="NAME REF SYSTEM=OUT...",
)  # fmt: skip
@option("--baseline", TEXT, "The system that the others are compared with.  [default: the first]", "SYSTEM")
@option("--metrics", options.subset(_METRICS, as_asked=True), "The metrics, in this order.", default=",".join(_METRICS))
@option("--detokenize", TEXT, "Detokenize all text by sacremoses' rules for this language, and undo Moses' escapes.", "LANG")
@option(
    "--tokenize", ("none", "13a", "intl", "char", "zh"),
    "The tokenization of BLEU.  [default: none, the tokens of the text; with --detokenize 13a, zh: zh, ja: char]",
)  # fmt: skip
@flag("--lowercase", "Ignore case in BLEU and chrF. (TER always ignores it.)")
@option("--samples", SAMPLES, "Samples of each test.  [default: 1000 of the bootstrap, 10000 of the randomization]")
@option("--seed", TEST_SEEDS, "The seed of both tests.", default=12345)
@option(
    "--format form", ("text", "markdown", "json"), "How to write the table. json has every run and all digits.", default="text"
)
@option(
    "--statistics", PathName(Role.WRITE),
    "Write the counts of the only output to FILE, gzip. A later evaluation takes FILE as OUT.",
)  # fmt: skip
@quiet_option
def evaluate(sets: tuple[SetFiles, ...], form: str, statistics: str | None, quiet: bool, **settings: Any) -> None:
    """Score the outputs of systems with sacrebleu. Write a table of systems and sets, with the signatures of the metrics.
    For every system it has the difference to a baseline, and the probability p of one as large by chance.

    \b
    phrase-rescore evaluate --set dev dev.fr baseline=dev.out rnn=dev.rnn.out \\
        --set test test.fr baseline=test.out rnn=test.rnn.out
    phrase-rescore evaluate --detokenize fr --set test test.fr \\
        baseline=base.1.out,base.2.out,base.3.out rnn=rnn.1.out,rnn.2.out,rnn.3.out
    phrase-rescore evaluate --set test test.fr rnn=test.rnn.out --statistics test.rnn.gz

    TEXT. Moses reads and writes tokenized, escaped text. By default BLEU takes its tokens for words (sacrebleu's tok:none), as
    the papers of Moses' time did. To compare with other papers use --detokenize, and sacrebleu's tokenization. sacremoses
    and Moses' detokenizer.perl write the same text, except for numbers in Czech, endings in Finnish and elisions in Irish.

    RUNS. Every tuning ends with other weights. Give the outputs of several tuning runs of one system with commas between: the
    table has their mean and standard deviation. The notes below it have the noise of tuning: the standard deviation pooled
    over all systems, and the smallest true difference that this number of runs detects.

    STATISTICS. OUT may be a file that --statistics wrote. It has the counts from which all figures follow, and no text. A
    set of such files needs no REF. Figures are the same to the digit.

    TESTS. p randomization is from approximate randomization, stratified over all runs of both systems (Clark et al.,
    ACL 2011). p bootstrap is from sacrebleu's paired bootstrap of one output against one: it compares these two outputs,
    not other tunings. Scores and p bootstrap are those of the sacrebleu command, except that a difference of 0 has p 1.
    """
    from phrase_rescore.api import evaluate
    from phrase_rescore.cli.terminal import count_bar, warn
    from phrase_rescore.evaluation.tables import layout

    outputs = sum(len(runs) for files in sets for runs in files.systems.values())
    with count_bar("scoring", "outputs", quiet, outputs, scale=False) as bar:
        result = evaluate(sets, statistics=statistics, on_output=bar.update, **settings)
    warn(*result.warnings)
    click.echo(layout(result, form), nl=False)


def _system(text: str) -> tuple[str, str]:
    """Return a system's name and the name of its output."""
    system, _, path = text.partition("=")
    if not (system and path):
        raise OptionError(f"{text!r} is not SYSTEM=OUT, say, baseline=test.baseline.out")
    return printable(os.fsencode(system), 1000), path


@options.command(short_help="Show where a new score helped and where not, phrase by phrase.")
@click.argument(
    "systems", type=PathName(read=_system, paths=lambda system: system[1:]), nargs=-1, required=True, metavar="SYSTEM=OUT..."
)
@option("--source", FILE, "The text that both systems translated, as the decoder read it.", required=True)
@option("--reference", FILE, "Its translation, tokenized and escaped as the outputs are.", required=True)
@option("--table", ANNOTATED_TABLE, "The annotated table that both used, whole or filtered.", "TABLE", required=True)
@option("--segments", SHOWN_SEGMENTS, "Show the N segments that gained most, and the N that lost most.", default=10)
@quiet_option
def why(systems: tuple[tuple[str, str], ...], table: str, quiet: bool, **asked: Any) -> None:
    """Compare the outputs of two systems on one text, phrase by phrase, to show why a new score helped or did not. The first
    system is the baseline.

    \b
    moses -config mert-work/moses.ini -input-file test.en -t > test.rnn.seg
    phrase-rescore why --source test.en --reference test.fr \\
        --table phrase-table.rnn.gz baseline=test.baseline.seg rnn=test.rnn.seg

    OUT must have the phrases that the decoder used. It is what moses writes with -t or -tt, or an n-best list made with -t
    or -include-segmentation-in-n-best. The best entry of every segment counts.

    It shows how much is won and lost in how many segments. It shows what the second system does where the two differ, and how
    many right words each kind of change wins. It shows the sums of the table's columns, and the segments that gained and lost
    most, with the columns of the phrases that differ.
    """
    from phrase_rescore.api import why
    from phrase_rescore.cli.terminal import byte_bar, warn
    from phrase_rescore.evaluation.why_text import lines

    with byte_bar((table,), quiet) as bar:
        found = why(systems=systems, table=table, on_read=bar.update, **asked)
    warn(*found.warnings)
    click.echo("\n".join(lines(found)))
