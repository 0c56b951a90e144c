"""ARPA files: n-gram models with back-off, as KenLM and SRILM write them. Probabilities are log10 there, and here as well.

``\\data\\`` and the numbers of n-grams, then a section an order, then ``\\end\\``. A line has log10 p, a tab, the words, a tab
and the log10 of the back-off weight. With h' the context h without its oldest word, p(w | h) stands for an n-gram (h, w) of
the file; for any other it is bo(h) p(w | h'), with bo(h) = 1 for a context that the file does not have.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phrase_rescore.errors import InputError, shown
from phrase_rescore.files.outputs import Writable
from phrase_rescore.moses.table import is_number

START, END, UNKNOWN = b"<s>", b"</s>", b"<unk>"
NEVER = -99.0  # log10 of the probability of what is never predicted
_MOST = 300.0  # the largest logarithm, either way, whose power is a double
_HINT = "pass the ARPA file that lmplz or ngram-count wrote"
_COUNT = re.compile(rb"ngram +(\d{1,2}) *= *(\d{1,15})")


class Ngram(NamedTuple):
    """A line of an ARPA file."""

    words: tuple[bytes, ...]
    log10_p: float
    log10_backoff: float  # 0 where the line has none


class ArpaReader:
    """Reads an ARPA file: ``counts``, the numbers of its n-grams by order, then the n-grams. Messages call the file ``name``.

    Raises InputError, with the line, for what is no ARPA file, one that is cut off or has other numbers than it says.
    """

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
