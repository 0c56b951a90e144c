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

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import InputError, RescoreError, shown
from phrase_rescore.files.outputs import Writable
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.moses.table import NUMBER
from phrase_rescore.moses.text import END, START

UNKNOWN, NULL = b"<unk>", b"<null>"
NEVER = -99.0  # log10 of the probability of what is never predicted
_MOST = 300.0  # the largest logarithm whose power is a double
_HINT = "pass the ARPA file that lmplz or ngram-count wrote"
_OTHERS = (  # how other files begin, whose they are, what to do
    (rb"[iq]ARPA|Q?blmt", "IRSTLM", "write it as ARPA: compile-lm --text=yes {0} {0}.arpa"),
    (rb"SRILM_BINARY", "SRILM", "write it as ARPA: ngram -lm {0} -write-lm {0}.arpa"),
    (rb"mmap lm ", "KenLM", "pass the ARPA file that build_binary read"),
)
_COUNT = re.compile(rb"[ \t]*ngram \s*\+?(\d{1,2}) *=[ \t]*\+?(\d{1,15})(?!\d)")
_SEPARATORS = b" \t\n"  # a word with one of them cannot stand in a file of NPLM
_FLOOR = -100.0  # the score in NPLM of what is never predicted: Moses' floor of log-probabilities


class Ngram(NamedTuple):
    """A line of an ARPA file."""

    words: tuple[bytes, ...]
    log10_p: float
    log10_backoff: float  # 0 where the line has none


class ArpaReader:
    """Reads an ARPA file as KenLM does (lm/read_arpa.cc), ``<UNK>`` as ``<unk>``: ``counts`` by order, then the n-grams.

    ``unigrams`` are read at once. Of an n-gram that is there twice KenLM takes the first, of ``<unk>`` the last one. Messages
    call the file ``name``. Raises InputError, with the line, for what KenLM refuses.
    """

    def __init__(self, rows: Iterable[bytes], name: str) -> None:
        self._rows, self._name, self._line = iter(rows), name, 0
        unigrams, *others = self._read_counts()
        self._expect(b"\\1-grams:")
        self.unigrams: dict[bytes, Ngram] = {}
        for ngram in self._section(1, unigrams, not others):
            if (word := ngram.words[0]) not in self.unigrams or word == UNKNOWN:
                self.unigrams[word] = ngram
        for mark in (START, END):
            if mark not in self.unigrams:
                raise self.error(f"no {mark.decode()} among the unigrams", "make it from sentences, as lmplz does")
        self.counts = (len(self.unigrams), *others)

    def _next(self) -> bytes:
        """Return the next line that is not blank, without its end."""
        for row in self._rows:
            self._line += 1
            if not row.isspace():
                return row.removesuffix(b"\n").removesuffix(b"\r")
        raise self.error("the file ends before \\end\\", "is it cut off?")

    def error(self, found: str, hint: str = _HINT) -> InputError:
        """Return the error for the line that was read last."""
        return InputError(self._name, found, hint, max(1, self._line))

    def _read_counts(self) -> list[int]:
        while (row := self._next().strip()).startswith(b"#"):
            pass
        if row != b"\\data\\":
            for start, tool, hint in _OTHERS:
                if re.match(start, row):
                    raise self.error(f"a file of {tool} that is not ARPA", hint.format(self._name))
            raise self.error(f"{shown(row)} where \\data\\ should be")
        counts = list[int]()
        for row in self._rows:
            self._line += 1
            if row.isspace():
                break
            found = _COUNT.match(row)
            if not found or int(found[1]) != len(counts) + 1:
                raise self.error(f"{shown(row.rstrip())} where 'ngram {len(counts) + 1}=' should be")
            counts.append(int(found[2]))
        if not counts:
            raise self.error("no numbers of n-grams")
        return counts

    def ngrams(self) -> Iterator[Ngram]:
        """Yield all n-grams, unigrams first."""
        yield from self.unigrams.values()
        known = {UNKNOWN, *self.unigrams}
        for order, count in enumerate(self.counts[1:], 2):
            for ngram in self._section(order, count, order == len(self.counts)):
                for word in ngram.words:
                    if word not in known:
                        raise self.error(f"{shown(word)} of the {order}-gram is not among the unigrams", "is the file whole?")
                yield ngram
        for row in self._rows:
            self._line += 1
            if not row.isspace():
                raise self.error(f"{shown(row.rstrip())} after \\end\\", "delete what follows \\end\\")

    def _expect(self, title: bytes, after: str = "") -> None:
        if (row := self._next()).strip() != title:
            raise self.error(f"{shown(row)} where {title.decode()} should be{after}")

    def _section(self, order: int, count: int, last: bool) -> Iterator[Ngram]:
        """Yield the n-grams of an order, whose title was read, and read the next title."""
        usual, any_form, left = _usual_form(order).fullmatch, _form(order, last), count
        while left:
            row = next(self._rows, b"\\")  # like a title, which ends a section too early
            self._line += 1
            if not (fields := usual(row) or any_form.fullmatch(row)):
                if row.isspace():
                    continue
                found, hint = f"{shown(row.rstrip())} is not a {order}-gram", "a line has log10 p, tab, words, tab, back-off"
                if row.startswith(b"\\"):
                    found, hint = f"the section ends after {count - left:,} of {count:,} {order}-grams", "is the file whole?"
                raise self.error(found, hint)
            p, text, backoff = fields.groups()
            log10_p, log10_backoff = float(p), float(backoff) if backoff else 0.0
            if log10_p > 0:
                hint = "make the file again, or write 0 there as KenLM's build_binary -i does"
                raise self.error(f"positive log probability {log10_p:g} of {shown(text)}", hint)
            if log10_backoff and (last or not -math.inf < log10_backoff <= _MOST):
                hint = f"the longest n-grams, {order}-grams here, have none" if last else "make the file again"
                raise self.error(f"back-off {log10_backoff:g} of {shown(text)}", hint)
            words = tuple(re.split(rb"[ \t\r]+", text) if fields.re is any_form else text.split(b" "))
            if b"<UNK>" in words:
                words = tuple(UNKNOWN if word == b"<UNK>" else word for word in words)
            yield Ngram(words, log10_p, log10_backoff)
            left -= 1
        self._expect(b"\\end\\" if last else b"\\%d-grams:" % (order + 1), f", after {count:,} {order}-grams")


def _usual_form(order: int) -> re.Pattern[bytes]:
    """Return the form of most lines: log10 p, tab, the words, tab and the log10 of the back-off weight if it is there."""
    word = rb"[^ \t\r\n]++"
    return re.compile(rb"(%b)\t(%b)(?:\t(%b))?+\n" % (NUMBER, b" ".join([word] * order), NUMBER))


def _form(order: int, last: bool) -> re.Pattern[bytes]:
    """Return the form of a line that KenLM reads."""
    number, blank, word = rb"[ \t\r\v\f]*+(%b|[+-]?inf)" % NUMBER, rb"[ \t\r]", rb"[^ \t\r\n]++"
    words = (blank + b"++").join([word] * order)
    first, end = rb"\t%b*+" % blank if order == 1 else blank + b"++", rb"[ \t\r]*+" if last else b""
    return re.compile(rb"%b%b(%b)(?:\t%b%b)?+\r?+\n?+" % (number, first, words, number, end))


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
        raise RescoreError("the vocabulary has a word twice, or one spelt like a mark of NPLM; train the model again")
    for word in words:
        if not word or any(byte in _SEPARATORS for byte in word):
            raise RescoreError(f"NPLM's format cannot write the word {shown(word)}; train without it")
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
