"""All of ``embed``: words, lines with phrases, or a table in; vectors out."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from phrase_rescore.data.coverage import untrained_unk
from phrase_rescore.data.sorting import SortedPairs, sorted_pairs
from phrase_rescore.errors import InputError, OptionError, silent
from phrase_rescore.files.inputs import batches, display_name, standard_input
from phrase_rescore.moses.pairs import PairBlock, read_pair_blocks
from phrase_rescore.moses.text import PhraseReader
from phrase_rescore.queries.lines import line_batches
from phrase_rescore.queries.vector_files import check_output, format_of, vector_output
from phrase_rescore.rnn.checkpoint import SIDES, Checkpoint, load
from phrase_rescore.rnn.vectors import BATCH, PhraseEncoder, Side, embedded_words, word_embeddings
from phrase_rescore.runtime import prepare, resolve_device, usable_cores

_MEMORY = 1 << 28  # bytes that sorting takes


def embed(
    out: str | os.PathLike[str], model_dir: str | os.PathLike[str], *, table: str | os.PathLike[str] | None = None,
    side: Side | None = None, form: str | None = None, scratch: str | None = None, device: str = "cpu",
    on_read: Callable[[int], object] = silent, on_phrases: Callable[[int, int | None], object] = silent,
    warn: Callable[[str], object] = silent,
) -> str:  # fmt: skip
    """Write the vectors of phrases, or of the words of a ``side``, to a file as ``phrase-rescore embed`` does.

    Phrases are the distinct ones of a ``table``, or else lines of standard input. ``form``: txt, npy or tsv; by default, the
    name of ``out`` (``-``: standard output) says it. ``on_read`` gets the bytes read of the table, ``on_phrases`` how many
    more phrases were written, and how many there are if that is known. Returns what was written, in words.

    Raises InputError, with the line, for a bad line or row.
    """
    out = os.fspath(out)
    if side is not None and table is not None:
        raise OptionError("--words takes no TABLE: it writes the words of the model")
    form = format_of(out, form)
    check_output(out, form)
    prepare(usable_cores())
    checkpoint = load(os.fspath(model_dir))
    if side is not None:
        of_words = word_embeddings(checkpoint, side)
        with vector_output(out, form, of_words.shape[1], len(of_words)) as writer:
            writer.write(embedded_words(checkpoint, side), of_words)
        return writer.summary()
    encoder = PhraseEncoder(checkpoint, resolve_device(device))
    read = checkpoint.sides[0]
    share = checkpoint.unk_shares[SIDES.index(read)]
    for warning in untrained_unk({read: share}, "vectors of phrases with such a word mean nothing"):
        warn(warning)
    with contextlib.ExitStack() as opened:
        phrases: Iterator[Sequence[bytes]]
        if table is None:
            count, phrases = None, _phrases_of_lines(standard_input(), checkpoint)
        else:
            found = opened.enter_context(_sorted(os.fspath(table), checkpoint, scratch or tempfile.gettempdir(), on_read))
            count, phrases = len(found), batches(chain.from_iterable(block.src for block in found), BATCH)
        writer = opened.enter_context(vector_output(out, form, encoder.width, count))
        for some in phrases:
            writer.write(some, encoder.vectors_as_read(some))
            on_phrases(len(some), count)
    return writer.summary()


def _phrases_of_lines(lines: io.BufferedReader, checkpoint: Checkpoint) -> Iterator[Sequence[bytes]]:
    """Yield the phrases of lines as the model reads them."""
    hint = "write a phrase a line, or name the phrase table ('-': a table on standard input)"
    read = PhraseReader(checkpoint.sides[0], hint=hint)
    return line_batches(lines, lambda line: checkpoint.as_read([read(line)])[0], BATCH)


@contextlib.contextmanager
def _sorted(table: str, checkpoint: Checkpoint, scratch: str, on_read: Callable[[int], object]) -> Iterator[SortedPairs]:
    """Sort the distinct phrases of the side of a table that the model reads, for as long as the ``with`` block lasts.

    They are the sources of the pairs, whose targets are empty; in the order of their bytes, in files in ``scratch``. Raises
    InputError for a bad row and for a table without rows.
    """
    side, factors = checkpoint.sides[0], checkpoint.factors
    of_side = (factors[0], None) if side == "source" else (None, factors[1])
    blocks = read_pair_blocks(table, "table", on_read, factors=of_side)
    columns = (block.src if side == "source" else block.tgt for block in blocks)
    pairs = (PairBlock(phrases, [b""] * len(phrases)) for phrases in columns)
    with sorted_pairs(pairs, scratch, _MEMORY, usable_cores()) as found:
        if not found:
            raise InputError(display_name(table), "is empty", "pass a phrase table")
        yield found
