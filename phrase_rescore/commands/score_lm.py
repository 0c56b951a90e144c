"""Turn the options of ``phrase-rescore score-lm`` into library calls."""

from __future__ import annotations

import click

from phrase_rescore.commands.options import device_option, digits_option, file_argument, flush_option, lm_option, quiet_option


@click.command(short_help="Score text by a language model.")
@file_argument("text", default="-", required=False)
@lm_option
@click.option("--per-word", is_flag=True, help="Add a third column: the words and </s>, each followed by its log p.")
@flush_option
@digits_option
@device_option("cpu")
@quiet_option
def command(text: str, lm: str, per_word: bool, flush: bool, digits: int, device: str, quiet: bool) -> None:
    """Score tokenized TEXT, a sentence a line; standard input by default. For every line, write a line with natural log p, </s>
    included, tab, the number of words that the model does not know.

    \b
    phrase-rescore score-lm dev.fr -m lm > dev.scores
    set -o pipefail; echo 'bonjour à tous' | phrase-rescore score-lm -m lm --per-word

    At the end, the perplexity of the text is shown on standard error in the words of KenLM's query: with unknown words (OOVs),
    scored as the unknown word, and without.
    """
    from phrase_rescore.commands.progress import say, write_out
    from phrase_rescore.files.blocks import read_rows
    from phrase_rescore.files.paths import Role, Use, check_paths
    from phrase_rescore.files.streams import open_input
    from phrase_rescore.inference.ngram_scorer import NgramScorer
    from phrase_rescore.models.language_model import load
    from phrase_rescore.runtime import prepare, resolve_device, usable_cores
    from phrase_rescore.text_scoring import BATCH, TextScorer, score_text

    check_paths([Use("TEXT", text, Role.READ), Use("-m", lm, Role.READ_DIRECTORY)])
    prepare(usable_cores())
    model = load(lm)
    if model.unk_share == 0:
        say("warning: no word was unknown in training: scores of unknown words mean nothing")
    scorer = TextScorer(NgramScorer(model, resolve_device(device)), per_word, digits)
    with open_input(text) as stream:
        at_once = 1 if flush or stream.isatty() else BATCH
        write_out(score_text(read_rows(stream), scorer, at_once))
    if not quiet:
        for line in scorer.totals.lines():
            say(line)
