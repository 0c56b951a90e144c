"""Turn the options of ``phrase-rescore score-lm`` into a call of the library."""

from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import device_option, digits_option, flush_option, lm_option, path_argument, path_option
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
def command(text: str, lm: str, **settings: Any) -> None:
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
    from phrase_rescore.api import score_lm
    from phrase_rescore.cli.terminal import say, warn, write_out

    write_out(score_lm(text, lm, **settings, tell=say, warn=warn))
