"""Turn the options of ``phrase-rescore score-lm`` into library calls."""

from __future__ import annotations

import contextlib

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import (
    device_option,
    digits_option,
    flush_option,
    lm_option,
    path_argument,
    path_option,
)
from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role


@options.command(short_help="Score text by a language model.")
@path_argument("text", default="-", required=False)
@lm_option()
@click.option("--per-word", is_flag=True, help="Add a third column: the words and </s>, each followed by its log p.")
@path_option(
    "--interpolate", role=Role.READ, metavar="ARPA",
    help="Mix with this n-gram model: find the weight, show the perplexities.",
)  # fmt: skip
@flush_option
@digits_option
@device_option("cpu")
def command(text: str, lm: str, per_word: bool, interpolate: str | None, flush: bool, digits: int, device: str) -> None:
    """Score tokenized TEXT, a sentence a line; standard input by default. For every line, write a line with natural log p, </s>
    included, tab, the number of words that the model does not know.

    \b
    phrase-rescore score-lm dev.fr -m lm > dev.scores
    set -o pipefail; echo 'bonjour à tous' | phrase-rescore score-lm -m lm --per-word

    With --interpolate, the weight λ of λ p + (1 − λ) p(ARPA) is found on TEXT by EM, and the perplexities of the n-gram
    model, of the network and of the mixture are shown; log p are those of the network as before.

    At the end, the perplexity of the text is shown on standard error in the words of KenLM's query: with unknown words (OOVs),
    scored as the unknown word, and without.
    """
    from phrase_rescore.cli.terminal import say, write_out
    from phrase_rescore.files.blocks import read_rows
    from phrase_rescore.files.inputs import display_name, open_input, standard_input
    from phrase_rescore.lm.arpa import ArpaReader
    from phrase_rescore.lm.checkpoint import load, warnings
    from phrase_rescore.lm.mixture import fit_mixture
    from phrase_rescore.lm.scorer import NgramScorer
    from phrase_rescore.moses.table import words
    from phrase_rescore.queries.score_lm import BATCH, TextScorer, score_text
    from phrase_rescore.runtime import prepare, resolve_device, usable_cores

    if interpolate and (flush or text == interpolate == "-"):
        what = "--flush answers line by line" if flush else "standard input cannot be both"
        raise OptionError(f"--interpolate reads TEXT and ARPA whole, and {what}; leave one out")
    prepare(usable_cores())
    model = load(lm)
    for warning in warnings(model):
        say(f"warning: {warning}")
    scorer = TextScorer(NgramScorer(model, resolve_device(device)), per_word, digits)
    with contextlib.ExitStack() as opened:
        at_once = flush or (text == "-" and standard_input().isatty())  # what decompresses would wait for more
        rows = read_rows(standard_input() if at_once and text == "-" else opened.enter_context(open_input(text)))
        if interpolate:
            arpa = opened.enter_context(open_input(interpolate))
            reader = ArpaReader(read_rows(arpa), display_name(interpolate))
            lines = list(rows)
            mixture = fit_mixture(scorer.scorer, reader, [words(line.rstrip(b"\r\n")) for line in lines])
            rows = iter(lines)
        write_out(score_text(rows, scorer, 1 if at_once else BATCH))
    if interpolate and not mixture.has_unk:
        say(f"warning: {display_name(interpolate)} has no <unk>: perplexities including OOVs mean nothing; make it with lmplz")
    for line in [*scorer.totals.lines(), *(mixture.lines() if interpolate else [])]:
        say(line)
