r"""ARPA files, and the probabilities of the n-gram model in one.

KenLM and SRILM write these files; probabilities are log10 there, and here as well. ``\data\`` and the numbers of n-grams come
first, then a section an order, then ``\end\``. A line has log10 p, a tab, the words, a tab and the log10 of the back-off
weight. With h' the context h without its oldest word, p(w | h) stands for an n-gram (h, w) of the file. For any other it is
bo(h) p(w | h'), with bo(h) = 1 for a context that the file does not have.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from phrase_rescore.errors import InputError, shown
from phrase_rescore.moses.table import NUMBER
from phrase_rescore.moses.text import END, START

UNKNOWN = b"<unk>"
_HINT = "pass the ARPA file that lmplz or ngram-count wrote"
_OTHERS = (  # how other files begin, whose they are, what to do
    (rb"[iq]ARPA|Q?blmt", "IRSTLM", "write it as ARPA: compile-lm --text=yes {0} {0}.arpa"),
    (rb"SRILM_BINARY", "SRILM", "write it as ARPA: ngram -lm {0} -write-lm {0}.arpa"),
    (rb"mmap lm ", "KenLM", "pass the ARPA file that build_binary read"),
)
_COUNT = re.compile(rb"[ \t]*ngram \s*\+?(\d{1,2}) *=[ \t]*\+?(\d{1,15})(?!\d)")


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
        """Yield the n-grams of two words and more."""
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
        usual, any_form = _forms(order, last)
        is_usual, left = usual.fullmatch, count
        while left:
            row = next(self._rows, b"\\")  # like a title, which ends a section too early
            self._line += 1
            if not (fields := is_usual(row) or any_form.fullmatch(row)):
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
            if log10_backoff and (last or not -math.inf < log10_backoff <= 300.0):  # beyond, its power is no double
                hint = f"the longest n-grams, {order}-grams here, have none" if last else "make the file again"
                raise self.error(f"back-off {log10_backoff:g} of {shown(text)}", hint)
            words = tuple(re.split(rb"[ \t\r]+", text) if fields.re is any_form else text.split(b" "))
            if b"<UNK>" in words:
                words = tuple(UNKNOWN if word == b"<UNK>" else word for word in words)
            yield Ngram(words, log10_p, log10_backoff)
            left -= 1
        self._expect(b"\\end\\" if last else b"\\%d-grams:" % (order + 1), f", after {count:,} {order}-grams")


def _forms(order: int, last: bool) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the form of most lines: log10 p, tab, words, perhaps tab and log10 of the back-off; and of all KenLM reads."""
    number, blank, words = rb"[ \t\r\v\f]*+(%b|[+-]?inf)" % NUMBER, rb"[ \t\r]", [rb"[^ \t\r\n]++"] * order
    first, end = rb"\t%b*+" % blank if order == 1 else blank + b"++", rb"[ \t\r]*+" if last else b""
    of_all = rb"%b%b(%b)(?:\t%b%b)?+\r?+\n?+" % (number, first, (blank + b"++").join(words), number, end)
    return re.compile(rb"(%b)\t(%b)(?:\t(%b))?+\n" % (NUMBER, b" ".join(words), NUMBER)), re.compile(of_all)


class BackoffModel:
    """The part of an ARPA file that some sentences need; the file is never held. ``unigrams``: log10 p of all its words."""

    def __init__(self, reader: ArpaReader, sentences: Sequence[Sequence[bytes]]) -> None:
        self.order = len(reader.counts)
        self.unigrams = {word: ngram.log10_p for word, ngram in reader.unigrams.items()}
        self._ngrams = {ngram.words: ngram for ngram in reader.unigrams.values()}
        ends = chain.from_iterable(map(self._ngrams_of, sentences))
        wanted = {words[start:] for words in ends for start in range(len(words) - 1)}
        for ngram in reader.ngrams():
            if ngram.words in wanted:
                if (context := ngram.words[:-1]) not in self._ngrams:
                    raise reader.error(f"n-grams after {shown(b' '.join(context))}, which the file lacks", "is the file whole?")
                self._ngrams.setdefault(ngram.words, ngram)

    def has(self, word: bytes) -> bool:
        """Return whether the file has a word of a text, where ``<s>`` and the like do not count."""
        return word in self.unigrams and word not in (START, END, UNKNOWN)

    def _ngrams_of(self, sentence: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
        """Yield each word of a sentence and its end, with the words before it; ``<unk>`` for those that the file lacks."""
        words = (START, *(word if self.has(word) else UNKNOWN for word in sentence), END)
        return (words[max(0, end - self.order) : end] for end in range(2, len(words) + 1))

    def log10_probs(self, sentence: Sequence[bytes]) -> list[float]:
        """Return log10 p of every word of a sentence, and of its end."""
        return [self._log10_p(words) for words in self._ngrams_of(sentence)]

    def _log10_p(self, words: tuple[bytes, ...]) -> float:
        backoff = 0.0
        for start in range(len(words)):
            if found := self._ngrams.get(words[start:]):
                return found.log10_p + backoff
            if context := self._ngrams.get(words[start:-1]):
                backoff += context.log10_backoff
        return -100.0 + backoff  # KenLM's log10 p of other words, where the file has no <unk>
