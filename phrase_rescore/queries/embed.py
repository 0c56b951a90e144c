"""All of ``embed``: words, or lines with phrases, in; vectors out, as tsv or in the text format of word2vec."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import standard_input
from phrase_rescore.files.outputs import asks_for_gzip, atomic_output
from phrase_rescore.files.paths import Path, is_stream
from phrase_rescore.messages import Progress, Say, silent
from phrase_rescore.moses.text import PhraseReader, tokenizer_for
from phrase_rescore.queries.score import line_batches, ready_model
from phrase_rescore.rnn.scorer import BATCH, PhraseEncoder, Side, Vectors, embedded_words, word_embeddings
from phrase_rescore.runtime import resolve_device

ENDINGS = {".txt": "txt", ".vec": "txt", ".tsv": "tsv"}  # of names, and their formats
_DIGITS = 12  # of a count that is written at the end; zeros before it, which every reader of numbers takes
_ESCAPED = re.compile(rb"[\\_]")


def vector_name(phrase: bytes) -> bytes:
    r"""Return a phrase's name in word2vec's format: UTF-8 without blanks, another name for each phrase.

    Blanks become ``_``; a ``_`` or backslash gets a backslash before it, a byte that is not UTF-8 becomes ``\xff``.

    >>> [vector_name(phrase).decode() for phrase in (b"in the end", b"snake_case", b"caf\xe9")]
    ['in_the_end', 'snake\\_case', 'caf\\xe9']
    """
    name = _ESCAPED.sub(rb"\\\g<0>", phrase).replace(b" ", b"_")
    return name if name.isascii() else name.decode("utf-8", "backslashreplace").encode()


def format_of(out: str, asked: str | None) -> str:
    """Return the format asked for, or that of the name; TSV on a stream (``-``). Raises OptionError for any other name."""
    asks_for_gzip(out, "vectors are not compressed; pipe them through a compressor", read_gzip=False)
    form = asked or ENDINGS.get(os.path.splitext(out)[1]) or ("tsv" if is_stream(out) else None)
    if form is None:
        raise OptionError(f"-o {out} does not end in {', '.join(ENDINGS)}; choose a --format")
    return form


class VectorWriter:
    """Writes named vectors in one of the formats; nine digits of text are the very float32."""

    def __init__(self, stream: BinaryIO, form: str) -> None:
        self._stream, self._form = stream, form
        self.rows = 0

    def write(self, phrases: Sequence[bytes], vectors: Vectors) -> None:
        """Write phrases (n) with single blanks and their vectors (n, width)."""
        self.rows += len(phrases)
        names: Iterable[bytes] = phrases if self._form == "tsv" else map(vector_name, phrases)
        template = (b"\t%.9g" if self._form == "tsv" else b" %.9g") * vectors.shape[1] + b"\n"
        rows = (template % tuple(row) for row in vectors.tolist())
        self._stream.writelines(name + row for name, row in zip(names, rows, strict=True))
        if self._form == "tsv":  # somebody may be waiting for it
            self._stream.flush()


@contextlib.contextmanager
def vector_output(out: str, form: str, width: int, count: int | None = None) -> Iterator[VectorWriter]:
    """Open a file that takes its name when the ``with`` block ends well; ``-``: standard output.

    ``count``: the number of vectors, None if it is unknown. Raises OptionError for a stream if the format begins with it.
    """
    with atomic_output(out) as stream:
        writer = VectorWriter(stream, form)
        if form == "tsv":
            yield writer
        elif count is not None:
            stream.write(b"%d %d\n" % (count, width))
            yield writer
        elif is_stream(out):
            hint = "name a regular file with -o, or write --format tsv"
            raise OptionError(f"--format {form} begins with the number of phrases, known only at the end; {hint}")
        else:
            head = b"%0*d %d\n"
            stream.write(head % (_DIGITS, 0, width))
            yield writer
            stream.seek(0)
            stream.write(head % (_DIGITS, writer.rows, width))
        stream.flush()


def embed(
    out: Path, model_dir: Path, *, side: Side | None = None, tokenize: str | None = None, form: str | None = None,
    device: str = "cpu", threads: int | None = None, on_phrases: Progress = silent, warn: Say = silent,
) -> str:  # fmt: skip
    """Write the vectors of phrases, or of the words of a ``side``, to a file as ``phrase-rescore embed`` does.

    Phrases are lines of standard input; ``tokenize`` is the language of typed ones. ``form`` is txt or tsv; by default the
    name of ``out`` says it, and standard output (``-``) gets tsv. ``on_phrases`` gets the number of phrases of each write.
    Returns a line of the report. Raises InputError for a bad line.
    """
    out = os.fspath(out)
    form = format_of(out, form)
    if side is not None:
        checkpoint = ready_model(model_dir, threads)
        of_words = word_embeddings(checkpoint, side)
        width = of_words.shape[1]
        with vector_output(out, form, width, len(of_words)) as writer:
            writer.write(embedded_words(checkpoint, side), of_words)
    else:
        checkpoint = ready_model(model_dir, threads, warn, reads_alone=True)
        encoder = PhraseEncoder(checkpoint, resolve_device(device))
        read = PhraseReader(checkpoint.sides[0], tokenize=tokenizer_for(tokenize, checkpoint.vocabs[0].ids))
        width = encoder.width
        with vector_output(out, form, width) as writer:
            for phrases in line_batches(standard_input(), lambda line: checkpoint.as_read([read(line)])[0], BATCH):
                writer.write(phrases, encoder.vectors(phrases))
                on_phrases(len(phrases))
    return f"{writer.rows:,} vectors of {width} numbers"
