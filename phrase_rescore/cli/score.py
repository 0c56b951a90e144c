"""Turn the options of ``phrase-rescore score`` into library calls."""

from __future__ import annotations

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import TEXT, device_option, digits_option, flush_option, lowercase_option, model_option
from phrase_rescore.errors import OptionError


@options.command(short_help="Score phrase pairs from standard input.")
@model_option()
@click.option("--per-word", is_flag=True, help="Add a third column: the words predicted and </s>, each followed by its log p.")
@click.option(
    "--tokenize",
    type=TEXT,
    nargs=2,
    metavar="SOURCE TARGET",
    help="Tokenize and escape typed text as Moses does for these languages: en fr.",
)
@lowercase_option
@flush_option
@digits_option
@device_option("cpu")
def command(
    model_dir: str, per_word: bool, flush: bool, tokenize: tuple[str, str] | None, lowercase: bool, digits: int, device: str
) -> None:
    """Score phrase pairs from standard input, a pair a line: 'source ||| target', as in the rows of a phrase table, whose
    other fields are ignored; or source, tab, target.

    For every line, write a line with natural log p(target | source), tab, the number of target words that the model does
    not know. An inverse model gives log p(source | target) and counts source words.

    \b
    phrase-rescore score < pairs.tsv
    set -o pipefail; echo 'search ||| rechercher' | phrase-rescore score --per-word

    Phrases must be tokenized as in the table, special characters escaped (&apos; &#91;), unless --tokenize does it.
    """
    from phrase_rescore.cli.terminal import say, write_out
    from phrase_rescore.files.blocks import read_rows
    from phrase_rescore.files.inputs import standard_input
    from phrase_rescore.moses.text import Prepare, as_written
    from phrase_rescore.queries.score import LineScorer, score_lines
    from phrase_rescore.rnn.checkpoint import load
    from phrase_rescore.rnn.scorer import BATCH, Scorer
    from phrase_rescore.runtime import prepare, resolve_device, usable_cores

    if lowercase and not tokenize:
        raise OptionError("--lowercase is for typed text; name the languages with --tokenize SOURCE TARGET")
    sides: tuple[Prepare, Prepare] = (as_written, as_written)
    if tokenize:
        from phrase_rescore.moses.text import TypedText

        sides = TypedText(tokenize[0], lowercase), TypedText(tokenize[1], lowercase)
    prepare(usable_cores())
    checkpoint = load(model_dir)
    for side, share in zip(("source", "target"), checkpoint.unk_shares, strict=True):
        if share == 0:
            say(f"warning: no {side} word was unknown in training: scores of pairs with such a word mean nothing")
    scorer = LineScorer(Scorer(checkpoint, resolve_device(device)), sides, per_word, digits)
    lines_in = standard_input()
    at_once = 1 if flush or lines_in.isatty() else BATCH
    write_out(score_lines(read_rows(lines_in), scorer, "<stdin>", at_once))
