"""Turn the options of ``phrase-rescore embed`` into a call of the library."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import device_option, model_option, path_option, quiet_option
from phrase_rescore.files.paths import Role, Use


def _index_of_out(out: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield the file of the phrases that is written beside vectors of numpy."""
    from phrase_rescore.queries.embed import format_of, index_of

    if out != "-" and format_of(out, values["form"]) == "npy":
        yield Use("the index of -o", index_of(out), Role.WRITE)


@options.command(short_help="Write vectors of words and phrases.")
@model_option()
@path_option(
    "-o", "--out", role=Role.WRITE, derived=_index_of_out, default="-", metavar="OUT",
    help="The file to write. Its name gives the format: .txt or .vec, .npy, .tsv.  [default: standard output]",
)  # fmt: skip
@click.option(
    "--words", "side", type=click.Choice(["source", "target"]), help="Write the embeddings of one side's words, not of phrases."
)
@click.option(
    "--format", "form", type=click.Choice(["txt", "npy", "tsv"]),
    help="word2vec's text format, numpy's with an index, or tabs.  [default: by OUT's name; tsv on standard output]",
)  # fmt: skip
@device_option("cpu")
@quiet_option
def command(model_dir: str, out: str, side: Any, quiet: bool, **settings: Any) -> None:
    """Write the vectors c of phrases, from which the model's decoder starts. Phrases are lines of standard input, tokenized
    as in the table. An inverse model reads target phrases.

    \b
    phrase-rescore embed < phrases.txt -o c.npy
    phrase-rescore embed --words source -o words.txt

    FORMATS. OUT.npy has a row of float32 for each phrase; line i of OUT.index is the phrase of row i. OUT.txt is in the text
    format of word2vec, which gensim reads; blanks of phrases become _, and _ becomes \\_. TSV has the phrase and its
    numbers, with tabs between. Words are those of the shortlist, after <end of phrase> and <unknown word>.
    """
    from phrase_rescore.api import embed
    from phrase_rescore.cli.terminal import count_bar, say, warn

    with count_bar("embedding", "phrases", quiet or side is not None) as bar:
        written = embed(out, model_dir, side=side, **settings, on_phrases=bar.update, warn=warn)
    if out != "-" and not quiet:
        say(written)
