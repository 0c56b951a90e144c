"""Turn the options of ``phrase-rescore score`` into a call of the library."""

from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import TEXT, device_option, digits_option, flush_option, lowercase_option, model_option


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
def command(model_dir: str, **settings: Any) -> None:
    """Score phrase pairs from standard input, a pair a line: 'source ||| target', as in the rows of a phrase table, whose
    other fields are ignored; or source, tab, target.

    For every line, write a line with natural log p(target | source), tab, the number of target words that the model does
    not know. An inverse model gives log p(source | target) and counts source words.

    \b
    phrase-rescore score < pairs.tsv
    set -o pipefail; echo 'search ||| rechercher' | phrase-rescore score --per-word

    Phrases must be tokenized as in the table, special characters escaped (&apos; &#91;), unless --tokenize does it.
    """
    from phrase_rescore.api import score
    from phrase_rescore.cli.terminal import warn, write_out
    from phrase_rescore.files.inputs import standard_input

    write_out(score(standard_input(), model_dir, **settings, warn=warn))
