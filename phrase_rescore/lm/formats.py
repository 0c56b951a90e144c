r"""The files of language models that decoders read: ARPA and NPLM.

ARPA (n-gram models with back-off, as KenLM and SRILM write them; probabilities are log10 there, and here as well): ``\data\``
and the numbers of n-grams, then a section an order, then ``\end\``. A line has log10 p, a tab, the words, a tab and the log10
of the back-off weight. With h' the context h without its oldest word, p(w | h) stands for an n-gram (h, w) of the file; for any
other it is bo(h) p(w | h'), with bo(h) = 1 for a context that the file does not have.

NPLM (https://github.com/moses-smt/nplm, src/model.cpp; Moses' feature NeuralLM): sections, each ended by an empty line:
``\config``, the words of both sides, the matrices a row a line.

    p(w) ∝ exp(output_weights · h_2 + output_biases)
    h_2 = r(hidden_weights 2 · h_1 + hidden_biases 2)      r(x) = max(0, x)
    h_1 = r(hidden_weights 1 · (e_1, …, e_{n-1}) + hidden_biases 1), e_1 the input embedding of the oldest word

Moses pads with ``<s>`` before a sentence, and with ``<null>`` where it does not know what stands before a phrase. It takes
scores as they are, without dividing by their sum (moses/LM/NeuralLMWrapper.cpp), and as natural logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import InputError, RescoreError, shown
from phrase_rescore.files.inputs import open_plain, read_rows
from phrase_rescore.files.outputs import Writable
from phrase_rescore.moses.table import is_number

if TYPE_CHECKING:
    from phrase_rescore.lm.checkpoint import LanguageModel

START, END, UNKNOWN = b"<s>", b"</s>", b"<unk>"
NULL = b"<null>"
NEVER = -99.0  # log10 of the probability of what is never predicted
_MOST = 300.0  # the largest logarithm, either way, whose power is a double
_HINT = "pass the ARPA file that lmplz or ngram-count wrote"
_COUNT = re.compile(rb"ngram +(\d{1,2}) *= *(\d{1,15})")
_SEPARATORS = b" \t\n"  # a word with one of them cannot stand in a file of NPLM
_FLOOR = -100.0  # the score in NPLM of what is never predicted: Moses' floor of log-probabilities


class Ngram(NamedTuple):
    """A line of an ARPA file."""

    words: tuple[bytes, ...]
    log10_p: float
    log10_backoff: float  # 0 where the line has none


class ArpaReader:
    """Reads an ARPA file: ``counts``, the numbers of n-grams by order, then the n-grams. Raises InputError, with the line."""

    def __init__(self, rows: Iterable[bytes], name: str) -> None:
        self._rows, self._name, self._line, self._newline = iter(rows), name, 0, b"\n"
        self.counts = self._read_counts()

    def _next(self) -> bytes:
        row = next(self._rows, None)
        if row is None:
            raise self._error("the file ends before \\end\\", "is it cut off?")
        if not self._line:
            self._newline = b"\r\n" if row.endswith(b"\r\n") else b"\n"
        self._line += 1
        return row.removesuffix(self._newline)

    def _error(self, found: str, hint: str = _HINT) -> InputError:
        return InputError(self._name, found, hint, max(1, self._line))

    def _read_counts(self) -> tuple[int, ...]:
        row = self._next_filled()
        if row != b"\\data\\":
            raise self._error(f"{shown(row)} where \\data\\ should be")
        counts = list[int]()
        while row := self._next().strip():
            found = _COUNT.fullmatch(row)
            if not found or int(found[1]) != len(counts) + 1:
                raise self._error(f"{shown(row)} where 'ngram {len(counts) + 1}=' should be")
            counts.append(int(found[2]))
        if not counts:
            raise self._error("no numbers of n-grams")
        return tuple(counts)

    def _next_filled(self) -> bytes:
        while not (row := self._next().strip()):
            pass
        return row

    def ngrams(self) -> Iterator[Ngram]:
        """Yield all n-grams, unigrams first."""
        for order, count in enumerate(self.counts, 1):
            title = self._next_filled()
            if title != b"\\%d-grams:" % order:
                raise self._error(f"{shown(title)} where \\{order}-grams: should be")
            for _ in range(count):
                yield self._parse(self._next(), order)
            if row := self._next().strip():
                raise self._error(f"{shown(row)} after the {count:,} {order}-grams that \\data\\ tells of")
        if (row := self._next_filled()) != b"\\end\\":
            raise self._error(f"{shown(row)} where \\end\\ should be")

    def _parse(self, row: bytes, order: int) -> Ngram:
        columns = row.split(b"\t")
        if len(columns) in (2, 3) and all(map(is_number, columns[::2])):
            words = tuple(columns[1].split(b" "))
            found = Ngram(words, float(columns[0]), float(columns[2]) if len(columns) == 3 else 0.0)
            if len(words) == order and all(words) and -_MOST <= found.log10_p <= 0.0 and abs(found.log10_backoff) <= _MOST:
                return found
        what = f"{shown(row)} is no {order}-gram"
        raise self._error(what, "a line has log10 p, tab, the words, tab and the back-off weight")


def write_arpa(stream: Writable, counts: Sequence[int], ngrams: Iterable[Ngram]) -> None:
    """Write an ARPA file of n-grams, order after order, with nine digits."""
    stream.write(b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % item for item in enumerate(counts, 1)))
    lines, last = iter(ngrams), len(counts)
    for order, count in enumerate(counts, 1):
        stream.write(b"\n\\%d-grams:\n" % order)
        for _ in range(count):
            words, log10_p, backoff = next(lines)
            end = b"\t%.9g\n" % backoff if order < last else b"\n"
            stream.write(b"%.9g\t%b%b" % (log10_p, b" ".join(words), end))
    stream.write(b"\n\\end\\\n")


def write_nplm(stream: Writable, lm: LanguageModel) -> None:
    """Write a model: its words by our ids, then the start of a sentence (EOS in our contexts) and the missing word.

    Raises RescoreError for a word that NPLM would read as none or as two.
    """
    words = (END, UNKNOWN, *lm.vocab.words, START, NULL)
    if len(set(words)) < len(words):
        raise RescoreError("a word stands twice in the vocabulary, or is spelt like a mark of NPLM; train the model again")
    for word in words:
        if not word or any(byte in _SEPARATORS for byte in word):
            raise RescoreError(f"the word {shown(word)} cannot stand in a file of NPLM; train without it")
    config, V = lm.model.config, len(words)
    sizes = {
        b"ngram_size": config.order, b"input_vocab_size": V, b"output_vocab_size": V,
        b"input_embedding_dimension": config.embedding, b"num_hidden": config.hidden,
        b"output_embedding_dimension": config.output,
    }  # fmt: skip
    weights = {name: weight.detach().float().cpu().numpy() for name, weight in lm.model.named_weights()}
    embeddings, G = weights["embedding"], lm.model.G.detach().float().cpu().numpy()
    matrices = {
        b"\\input_embeddings": np.concatenate((embeddings[:-1], embeddings[EOS : EOS + 1], embeddings[-1:])),
        b"\\hidden_weights 1": weights["U"],
        b"\\hidden_biases 1": weights["b_1"],
        b"\\hidden_weights 2": weights["W"],
        b"\\hidden_biases 2": weights["b_2"],
        b"\\output_weights": np.concatenate((G, np.zeros((2, G.shape[1]), np.float32))),
        b"\\output_biases": np.concatenate((weights["b_G"], np.full(2, _FLOOR, np.float32))),
    }
    stream.write(b"\\config\nversion 1\n" + b"".join(b"%b %d\n" % size for size in sizes.items()))
    stream.write(b"activation_function rectifier\n\n")
    for title in (b"\\input_vocab", b"\\output_vocab"):
        stream.write(b"%b\n%b\n\n" % (title, b"\n".join(words)))
    for title, matrix in matrices.items():
        stream.write(title + b"\n")
        for row in matrix.reshape(len(matrix), -1):
            stream.write(b" ".join([b"%.9g" % x for x in row.tolist()]) + b"\n")  # all digits of a float32
        stream.write(b"\n")
    stream.write(b"\\end\n")


def read_order(path: str) -> int:
    """Return the order of the model in a file of NPLM. Raises InputError for another file."""
    with open_plain(path) as stream:
        rows = [row.rstrip(b"\n") for row in islice(read_rows(stream), 9)]
        for row in rows[1:]:
            name, _, value = row.partition(b" ")
            if rows[0] == b"\\config" and name == b"ngram_size" and value.isdigit() and len(value) < 4:
                return int(value)
    raise InputError(path, "not a model of NPLM", "pass the file that export-lm wrote")
