"""All of ``embed``: words, or lines with phrases, in; vectors out."""

import os
from collections.abc import Callable

from phrase_rescore.errors import silent
from phrase_rescore.files.inputs import standard_input
from phrase_rescore.moses.text import PhraseReader
from phrase_rescore.queries.lines import line_batches, ready_model
from phrase_rescore.queries.vector_files import format_of, vector_output
from phrase_rescore.rnn.scorer import BATCH, PhraseEncoder, Side, embedded_words, word_embeddings
from phrase_rescore.runtime import resolve_device


def embed(
    out: str | os.PathLike[str], model_dir: str | os.PathLike[str], *, side: Side | None = None, form: str | None = None,
    device: str = "cpu", on_phrases: Callable[[int], object] = silent, warn: Callable[[str], object] = silent,
) -> str:  # fmt: skip
    """Write the vectors of phrases, or of the words of a ``side``, to a file as ``phrase-rescore embed`` does.

    Phrases are lines of standard input. ``form``: txt, npy or tsv; by default, the name of ``out`` (``-``: standard output)
    says it. ``on_phrases`` hears how many more phrases were written. Returns what was written, in words.

    Raises InputError, with the line, for a bad line.
    """
    out = os.fspath(out)
    form = format_of(out, form)
    if side is not None:
        checkpoint = ready_model(model_dir)
        of_words = word_embeddings(checkpoint, side)
        with vector_output(out, form, of_words.shape[1], len(of_words)) as writer:
            writer.write(embedded_words(checkpoint, side), of_words)
        return writer.summary()
    checkpoint = ready_model(model_dir, warn, "vectors of phrases with such a word mean nothing", reads_alone=True)
    encoder, read = PhraseEncoder(checkpoint, resolve_device(device)), PhraseReader(checkpoint.sides[0])
    with vector_output(out, form, encoder.width) as writer:
        for phrases in line_batches(standard_input(), lambda line: checkpoint.as_read([read(line)])[0], BATCH):
            writer.write(phrases, encoder.vectors_as_read(phrases))
            on_phrases(len(phrases))
    return writer.summary()
