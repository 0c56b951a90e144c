"""Turn the options of ``phrase-rescore embed`` into library calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import (
    device_option,
    model_option,
    number_option,
    path_argument,
    path_option,
    quiet_option,
)
from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role, Use
from phrase_rescore.ranges import NEIGHBOURS

_STDIN = "<stdin>"


def _index_of_out(out: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield the file of the phrases that is written beside vectors of numpy."""
    from phrase_rescore.queries.vector_files import format_of, index_of

    if values["nearest"] is None and out != "-" and format_of(out, values["form"]) == "npy":
        yield Use("the index of -o", index_of(out), Role.WRITE)


def _index_of_among(path: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield the file of the phrases that belongs to vectors."""
    from phrase_rescore.queries.vector_files import index_of

    yield Use("--among's index", index_of(path), Role.READ)


@options.command(short_help="Write vectors of words and phrases; find the nearest ones.")
@path_argument("table", required=False)
@model_option()
@path_option(
    "-o", "--out", role=Role.WRITE, derived=_index_of_out, default="-", metavar="OUT",
    help="The file to write. Its name gives the format: .txt or .vec, .bin, .npy, .tsv.  [default: standard output]",
)  # fmt: skip
@click.option(
    "--words", "side", type=click.Choice(["source", "target"]), help="Write the embeddings of one side's words, not of phrases."
)
@click.option(
    "--format", "form", type=click.Choice(["txt", "bin", "npy", "tsv"]),
    help="word2vec's text or binary format, numpy's with an index, or tabs.  [default: by OUT's name; tsv on standard output]",
)  # fmt: skip
@number_option(
    "--nearest", range=NEIGHBOURS, metavar="N",
    help="Find the N nearest by cosine to each line of standard input, among the --words or --among phrases.",
)  # fmt: skip
@path_option(
    "--among", role=Role.READ, derived=_index_of_among, metavar="FILE.npy",
    help="Let --nearest look among the phrases that 'embed -o FILE.npy' wrote.",
)  # fmt: skip
@path_option(
    "--scratch", role=Role.SCRATCH, metavar="DIR",
    help="Sort TABLE's phrases in DIR, which takes twice their text.  [default: $TMPDIR or /tmp]",
)  # fmt: skip
@device_option("cpu")
@quiet_option
def command(
    table: str | None, model_dir: str, side: str | None, out: str, form: str | None, nearest: int | None, among: str | None,
    scratch: str | None, device: str, quiet: bool,
) -> None:  # fmt: skip
    """Write the vectors c of phrases, from which the model's decoder starts. Phrases are lines of standard input, tokenized
    as in the table; or the distinct source phrases of TABLE ('-': a table on standard input), sorted by their bytes. An
    inverse model reads target phrases.

    \b
    phrase-rescore embed < phrases.txt -o c.npy
    phrase-rescore embed phrase-table.gz -o c.npy
    phrase-rescore embed --words source -o words.txt

    FORMATS. OUT.npy has a row of float32 for each phrase; line i of OUT.index is the phrase of row i. OUT.txt and OUT.bin are
    in the formats of word2vec, which gensim reads; blanks of phrases become _, and _ becomes \\_. TSV has the phrase and its
    numbers, with tabs between. Words are those of the shortlist, after <end of phrase> and <unknown word>.

    With --nearest, a line of standard output has query, neighbour and cosine, with tabs between. A query is never its own
    neighbour.

    \b
    set -o pipefail; echo house | phrase-rescore embed --nearest 10 --words source
    set -o pipefail; echo 'the house' | phrase-rescore embed --nearest 10 --among c.npy
    """
    from phrase_rescore.queries.vector_files import format_of

    if nearest is None:
        if among is not None:
            raise OptionError("--among is for --nearest N")
        if side is not None and table is not None:
            raise OptionError("--words takes no TABLE: it writes the words of the model")
        form = format_of(out, form)
        _write(table, model_dir, side, out, form, scratch, device, quiet)
        return
    if (side is None) == (among is None):
        raise OptionError("--nearest looks among --words source, --words target or --among FILE.npy; name one of them")
    if table is not None or out != "-" or form is not None:
        raise OptionError("--nearest reads from standard input and writes to standard output: no TABLE, -o or --format")
    _answer(model_dir, side, among, nearest, device)


def _write(
    table: str | None, model_dir: str, side: Any, out: str, form: str, scratch: str | None, device: str, quiet: bool
) -> None:  # fmt: skip
    import os
    import tempfile

    from phrase_rescore.cli.terminal import byte_bar, count_bar, say
    from phrase_rescore.files.blocks import read_rows
    from phrase_rescore.files.inputs import standard_input
    from phrase_rescore.queries import embed as run
    from phrase_rescore.queries.vector_files import check_output
    from phrase_rescore.rnn.checkpoint import load
    from phrase_rescore.rnn.vectors import BATCH
    from phrase_rescore.runtime import prepare, usable_cores

    check_output(out, form)
    prepare(usable_cores())
    checkpoint = load(model_dir)
    if side is not None:
        written = run.write_words(checkpoint, side, out, form)
    elif table is None:
        encoder = _encoder(checkpoint, device)
        stream = standard_input()
        at_once = 1 if stream.isatty() else BATCH
        with count_bar("embedding", "phrases", quiet) as bar:
            vectors = run.vectors_of_lines(read_rows(stream), encoder, _STDIN, at_once)
            written = run.write_phrases(vectors, encoder.width, None, out, form, bar.update)
    else:
        encoder = _encoder(checkpoint, device)
        scratch = scratch or tempfile.gettempdir()
        with contextlib.ExitStack() as stack:
            with byte_bar((table,), quiet, os.path.basename(table)) as bar:
                phrases = stack.enter_context(run.phrases_of_table(table, checkpoint, scratch, usable_cores(), bar.update))
            bar = stack.enter_context(count_bar("embedding", "phrases", quiet, len(phrases)))
            vectors = run.vectors_of_table(phrases, encoder)
            written = run.write_phrases(vectors, encoder.width, len(phrases), out, form, bar.update)
    if out != "-" and not quiet:
        say(str(written))


def _encoder(checkpoint: Any, device: str) -> Any:
    """Return the model's PhraseEncoder. Warn if no word was unknown in its training."""
    from phrase_rescore.cli.terminal import say
    from phrase_rescore.rnn.checkpoint import SIDES
    from phrase_rescore.rnn.vectors import PhraseEncoder
    from phrase_rescore.runtime import resolve_device

    encoder = PhraseEncoder(checkpoint, resolve_device(device))
    if checkpoint.unk_shares[SIDES.index(encoder.side)] == 0:
        say(f"warning: no {encoder.side} word was unknown in training: vectors of phrases with such a word mean nothing")
    return encoder


def _answer(model_dir: str, side: Any, among: str | None, n: int, device: str) -> None:
    from phrase_rescore.cli.terminal import say, write_out
    from phrase_rescore.files.blocks import read_rows
    from phrase_rescore.files.inputs import standard_input
    from phrase_rescore.queries import embed as run
    from phrase_rescore.queries.nearest import PhraseIndex
    from phrase_rescore.rnn.checkpoint import load
    from phrase_rescore.runtime import prepare, usable_cores

    prepare(usable_cores())
    checkpoint = load(model_dir)
    stream = standard_input()
    at_once = 1 if stream.isatty() else run.QUERIES
    if among is None:
        answers = run.neighbours_of_words(
            read_rows(stream), checkpoint, side, n, _STDIN, at_once, lambda message: say(f"warning: {message}")
        )
    else:
        index, encoder = PhraseIndex(among), _encoder(checkpoint, device)
        answers = run.neighbours_of_phrases(read_rows(stream), encoder, index, n, _STDIN, at_once)
    write_out(answers)
