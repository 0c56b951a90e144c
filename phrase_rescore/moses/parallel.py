"""Texts that are given together, a line a segment: whether they can belong together. Who reads two asks here before the work.

A list, source or reference of another text costs hours and ends with a number. What contradicts itself is refused. What hardly
can be right is doubted: refused too, but --force goes on.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from operator import eq
from typing import TYPE_CHECKING

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.paths import is_stream
from phrase_rescore.messages import Say, counted, percent, share, silent
from phrase_rescore.moses.hypotheses import Entry, read_outline
from phrase_rescore.moses.text import unescape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ENOUGH = 100  # words of a text; from fewer nothing follows
_LEAST_BLEU = 3.0  # every translation has more
_LEAST_SHARE = 0.35  # of words: other texts of a language have 0.5 and more, of English and French up to 0.2, by names
_ONE_LANGUAGE = 0.6
_FOREIGN = 0.1  # of words: in Japanese, a fiftieth is in Latin letters
_LETTER = re.compile(r"[^\W\d_]")
_FEWEST, _MOST = 30, 300  # lines that are compared with other lines
_SURE = 4.0  # standard errors
LEAST = 50  # pairs whose lengths tell whether texts belong together
SPREAD = 0.3  # of log lengths, at least: those of titles or single words tell nothing
ALIKE = 0.25  # the rank correlation of lengths: of translations it is above, of other texts it is near 0


@dataclass(frozen=True)
class Doubts:
    """What is done about files that hardly can be right: InputError, or with ``force`` a warning."""

    force: bool = False
    warn: Say = silent

    def of(self, path: str, found: str, hint: str) -> None:
        """Doubt a file for what was ``found``; the ``hint`` says what to give instead."""
        name = display_name(path)
        if not self.force:
            raise InputError(name, found, f"{hint}; --force goes on")
        self.warn(f"{name}: {found}")


def check_lines(texts: Mapping[str, Sized]) -> None:
    """Raise InputError if outputs and references, by path, have different numbers of lines."""
    first = next(iter(texts))
    for path, text in texts.items():
        if len(text) != len(texts[first]):
            found = f"{counted(len(text), 'line')} where {display_name(first)} has {len(texts[first]):,}"
            hint = "outputs and references have a line for every segment, in the same order"
            raise InputError(display_name(path), found, hint)


def check_bleu(
    path: str, scores: Iterable[float], words: float, doubts: Doubts, texts: Iterable[tuple[Sequence[str], Sequence[str]]] = ()
) -> None:
    """Doubt a reference, of so many ``words``, if none of the ``scores`` is the BLEU, 0 to 100, of a translation.

    evaluate asks for all outputs of a set, tune for the totals of its lists. ``texts``, outputs and their references, may show
    that a bad system or lines of a word or two are the cause.
    """
    best = max(scores, default=_LEAST_BLEU)
    if words >= _ENOUGH and best < _LEAST_BLEU and not any(_belong(*pair) for pair in texts):
        found = f"BLEU is {best:.2f} at most; no translation has so little"
        doubts.of(path, found, "is this the reference? Text without blanks needs --tokenize zh or char")


def check_texts(outputs: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], doubts: Doubts) -> None:
    """Doubt outputs and references, by path, of which the words, or their order, are those of other texts.

    tune gives the hypotheses with the highest totals as the output. Of words, only letters that have a case are looked at.
    """
    for texts, others, what, other in (
        (references, outputs, "reference", "outputs"),
        (outputs, references, "output", "reference"),
    ):
        words = list(chain.from_iterable(others.values()))
        for path, text in texts.items():
            if (known := _share_known(text, words)) < _LEAST_SHARE:
                doubts.of(path, f"{percent(known, 0)} of its words are in the {other}", f"is this the {what}?")
    first = next(iter(references))
    for path, text in {**references, **outputs}.items():
        if path != first:
            _check_order(path, text, first, references[first], doubts)


def is_rewritten(lines: Iterable[str], source: Iterable[str]) -> bool:
    """Return whether a reference is in the language of its source: the task is to simplify, correct or normalize text."""
    return _share_known(lines, source) > _ONE_LANGUAGE


def _share_known(lines: Iterable[str], others: Iterable[str]) -> float:
    """Return the share of the words that are also in the others; nan if there are too few to tell."""
    words, known = _letters(lines), _letters(others)
    if words.total() < _ENOUGH or known.total() < _ENOUGH:
        return math.nan
    return sum(n for word, n in words.items() if word in known) / words.total()


def _letters(lines: Iterable[str]) -> Counter[str]:
    """Count the words of letters that have a case; none where they are foreign ones, as in Japanese."""
    words = Counter(chain.from_iterable(line.casefold().split() for line in lines))
    cased = Counter({word: n for word, n in words.items() if word.isalpha() and word != word.upper()})
    return cased if cased.total() > _FOREIGN * words.total() else Counter()


def _belong(lines: Sequence[str], reference: Sequence[str]) -> bool:
    """Return whether lines share a tenth of their words with their lines of the reference, and more than with others."""
    bags, own = ([frozenset(filter(_LETTER.search, bag)) for bag in _bags(text)] for text in (lines, reference))
    shared = sum(len(bag & of_own) for bag, of_own in zip(bags, own, strict=True))
    return shared > 0.1 * sum(map(len, bags)) and _surplus(bags, own, _others(own)) > _SURE


def check_translated(
    path: str, lines: Sequence[str], source: str, of_source: Sequence[str], doubts: Doubts, least: float = 0.5
) -> None:
    """Doubt an output or reference that has the text of the source in at ``least`` so many lines, but for case and blanks."""
    filled = [(line, other) for line, other in zip(lines, of_source, strict=False) if line]
    equal = sum(_plain(line) == _plain(other) for line, other in filled)
    if equal > least * len(filled):
        found = f"{equal:,} of {counted(len(filled), 'line')} are those of the source {display_name(source)}"
        doubts.of(path, found, "give the translation")


def _plain(line: str) -> bytes:
    return unescape("".join(line.split()).casefold().encode())


def _check_order(path: str, lines: Sequence[str], reference: str, of_reference: Sequence[str], doubts: Doubts) -> None:
    """Doubt an output whose lines have more words in common with other lines of the reference than with their own."""
    name, n = display_name(reference), len(lines)
    bags, own = _bags(lines), _bags(of_reference)
    last = range(max(0, n - min(max(n // 5, 2 * _FEWEST), _MOST)), n)  # from where a line is lost, all that follow are moved
    for lag in (1, -1, 2, -2, 3, -3):
        at = [i for i in last if 0 <= i + lag < n]
        if _surplus([bags[i] for i in at], [own[i + lag] for i in at], [own[i] for i in at]) > _SURE:
            found = f"its last lines have the words of {name} {counted(abs(lag), 'line')} {'later' if lag > 0 else 'earlier'}"
            doubts.of(path, found, "look for a line that is missing or too many")
            return
    others = _others(own)
    by_chance = sum(len(bag & other) for bag, other in zip(bags, others, strict=True))
    if by_chance > _ENOUGH / 2 and _surplus(bags, own, others) < _SURE:
        found = f"its lines have no more words in common with their lines of {name} than with others"
        doubts.of(path, found, "is this the reference of this text?")


Bags = Sequence[frozenset[str]]  # the words of every line


def _bags(lines: Sequence[str]) -> Bags:
    return [frozenset(line.casefold().split()) for line in lines]


def _others(own: Bags) -> Bags:
    half = len(own) // 2
    return [*own[half:], *own[:half]]


def _surplus(bags: Bags, ones: Bags, others: Bags) -> float:
    """Return by how many standard errors there are more words in common with ``ones``; nan if too few lines are different."""
    lines = zip(bags, ones, others, strict=True)
    more = [len(bag & one) - len(bag & other) for bag, one, other in lines if one != other]
    if len(more) < _FEWEST:
        return math.nan
    mean, deviation = statistics.fmean(more), statistics.stdev(more)
    return mean / deviation * math.sqrt(len(more)) if deviation else math.copysign(math.inf, mean) if mean else math.nan


def check_segments(
    lists: Sequence[str], path: str, lines: Sequence[Sized], doubts: Doubts, check: Callable[[Entry], object] = silent
) -> None:
    """Compare the segments of n-best lists with the ``lines`` of a source or reference, in words.

    Raises InputError for a list that has more segments, where ``check``, of the first entry of every segment and the last of
    the list, raises RowError, and as ``read_outline``. Doubts a list that ends before the last line with words. Lists that
    cannot be read twice are left out: a segment without a line is noticed there.
    """
    name = display_name(path)
    wanted = max((number for number, line in enumerate(lines, 1) if len(line)), default=0)
    for of_list in lists:
        if is_stream(of_list):
            continue
        first, last, wrong = _segments(of_list, len(lines), check)
        found = f"its last segment is {last}, but {name} has {counted(len(lines), 'line')}"
        hint = "give the text of this list"
        if last == len(lines) and first == 1:
            raise InputError(of_list, found, "numbers begin at 0, and this list begins with 1: subtract 1 from each")
        if last >= len(lines):
            raise InputError(of_list, found, hint)
        if wrong:
            raise wrong
        if last + 1 < wanted:
            doubts.of(of_list, found, f"{hint}, cut to its segments")


def _segments(path: str, lines: int, check: Callable[[Entry], object]) -> tuple[int, int, InputError | None]:
    """Return the first and last segment of a list, and the first error of ``check``. Raises InputError as ``read_outline``."""
    numbers, wrong = list[int](), None
    with open_input(path) as stream:
        for entry in read_outline(read_rows(stream), path):
            numbers.append(entry.segment)
            if entry.segment < lines and not wrong:
                try:
                    check(entry)
                except RowError as error:
                    wrong = error.at(path, entry.number)
    return numbers[0], numbers[-1], wrong


def check_lengths(name: str, lengths: Sequence[tuple[int, int]], path: str, doubts: Doubts) -> None:
    """Doubt the text ``path`` if lengths in words, of lines of ``name`` and of it, are those of other texts.

    It takes LEAST pairs of varying lengths to tell. Ranks, not lengths: a few long lines must not decide.
    """
    pairs = [pair for pair in lengths if all(pair)]
    sides = list(zip(*pairs, strict=True))
    if len(pairs) < LEAST or any(statistics.stdev(map(math.log, side)) < SPREAD for side in sides):
        return
    likeness = statistics.correlation(*map(_ranks, sides))
    if likeness < ALIKE:
        found = f"lengths of its lines and of {display_name(path)} are as of other texts: correlation {likeness:.2f}"
        doubts.of(
            name, f"{found} over {counted(len(pairs), 'segment')}", "give the text of the same segments, in the same order"
        )


def _ranks(values: Sequence[int]) -> list[float]:
    """Return how many values are below each, and half of those that are equal."""
    below, ranks = 0, dict[int, float]()
    for value, n in sorted(Counter(values).items()):
        ranks[value] = below + n / 2
        below += n
    return [ranks[value] for value in values]


_SHIFTS = 5  # lines that one side may be ahead of the other
_STRETCH, _LOOKED_AT = 500, 1 << 20  # pairs whose lengths tell whether they belong together, and how many are looked at
# Correlations of log lengths in stretches of nine real bitexts: 0.87 to 0.97; of other lines of the same texts up to 0.26
_TOGETHER = 0.6
_LONG = 1.1  # mean of log lengths that it takes: entries of a dictionary are short
_SOME = 0.02  # share of the stretches


class Sides:
    """What shows while the pairs of a training go by: one text on both sides, or lines that do not belong together."""

    def __init__(self, line_by_line: bool) -> None:
        self._pairs = self._equal = 0
        self._line_by_line = line_by_line  # two files, of which one may be of another text or lack a line
        self._lengths: tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]] = [], []  # (2, pairs): in words, in bytes

    def add(self, src: Sequence[bytes], tgt: Sequence[bytes]) -> None:
        """Take the next pairs, words with single blanks between them."""
        import numpy as np  # here and below, so that the help of commands that know Doubts need not wait for it

        self._equal += sum(map(eq, src, tgt))
        if self._line_by_line and self._pairs < _LOOKED_AT:
            for side, lengths in zip((src, tgt), self._lengths, strict=True):
                words, in_bytes = [sentence.count(b" ") for sentence in side], [*map(len, side)]
                lengths.append(np.log1p(np.array([words, in_bytes], np.float32)))
        self._pairs += len(src)

    def check(self, name: str, warn: Say, all_there_is: bool = True) -> None:
        """Raise InputError if both sides are one text and ``all_there_is``; warn of what hardly can be right."""
        if all_there_is and self._equal and self._equal == self._pairs:
            found = "source and target are the same text"
            raise InputError(name, found, "give the source and its translation")
        if self._equal > self._pairs / 2:
            warn(f"{name}: source and target are equal in {self._equal / self._pairs:.0%} of the pairs; are both right?")
        if self._line_by_line and self._pairs >= _STRETCH:
            import numpy as np

            src, tgt = (np.concatenate(lengths, axis=1) for lengths in self._lengths)
            by_words, by_bytes = (list(_doubts(*sides)) for sides in zip(src, tgt, strict=True))
            for doubt in by_words if by_bytes else ():  # in Khmer and others words have no blanks between them
                warn(f"{name}: {doubt}")


def _doubts(src: NDArray[np.float32], tgt: NDArray[np.float32]) -> Iterator[str]:
    """Yield why lines hardly can belong together by the logarithms of their lengths: (pairs,) each."""
    import numpy as np

    within = tgt[_SHIFTS:-_SHIFTS][None]
    shifted = {shift: src[_SHIFTS + shift :][: within.size][None] for shift in range(-_SHIFTS, _SHIFTS + 1)}
    fits = {shift: float(np.nan_to_num(_correlations(side, within))[0]) for shift, side in shifted.items()}
    best = max(fits, key=lambda shift: fits[shift])
    if fits[best] > _TOGETHER and fits[0] < fits[best] / 2:
        yield f"to judge by their lengths, line N of the target is of line N{best:+d} of the source; are lines missing?"
        return
    stretches = len(src) // _STRETCH
    cut = (side[: stretches * _STRETCH].reshape(stretches, _STRETCH) for side in (src, tgt))
    apart = np.flatnonzero(_correlations(*cut) < ALIKE)
    if len(apart) > _SOME * stretches:
        where = f"{share(len(apart), stretches):.0%} of the pairs, the first near pair {apart[0] * _STRETCH + 1:,}"
        yield f"the lengths of source and target hardly go together in {where}; do the lines belong together?"


def _correlations(src: NDArray[np.float32], tgt: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the correlation in each row: (rows, n) twice -> (rows,); nan where a side is short or hardly varies."""
    import numpy as np

    means = [side.mean(1, keepdims=True, dtype=np.float64) for side in (src, tgt)]
    x, y = (side - mean for side, mean in zip((src, tgt), means, strict=True))
    tells = (np.minimum(x.std(1), y.std(1)) > SPREAD) & (np.minimum(*means)[:, 0] > _LONG)
    with np.errstate(invalid="ignore"):
        fits = (x * y).mean(1) / (x.std(1) * y.std(1))
    return np.where(tells, fits, np.nan)
