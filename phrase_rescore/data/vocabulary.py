"""Shortlists: which words of a side the network knows, and under which ids."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, shown
from phrase_rescore.files.inputs import open_plain, read_rows
from phrase_rescore.moses.table import words

EOS = 0  # ends every phrase
UNK = 1  # stands for every word outside the shortlist
FIRST_WORD = 2
_DIGITS = 18  # of a count, at most: 64 bits

UNK_TYPES = 0.01  # share of a side's types that is left out so that UNK can be learnt, if the shortlist would hold all


@dataclass(frozen=True)
class Vocabulary:
    """The words of one side with ids from 2 on; EOS and UNK are ids 0 and 1 by position, not by any spelling.

    A word spelt ``UNK`` or ``</s>`` is a word like any other. Words are bytes without blank, tab or newline.
    """

    words: tuple[bytes, ...]
    counts: tuple[int, ...]
    ids: Mapping[bytes, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", {word: id for id, word in enumerate(self.words, FIRST_WORD)})

    def __len__(self) -> int:
        """The number of ids: words, EOS and UNK."""
        return len(self.words) + FIRST_WORD

    def encode(self, words: Sequence[bytes]) -> NDArray[np.int32]:
        """Return the ids of words, UNK for those that the vocabulary lacks: (words,)."""
        return np.fromiter(map(self.ids.get, words, repeat(UNK)), np.int32, len(words))


def most_frequent(counts: Counter[bytes], shortlist: int) -> tuple[Vocabulary, int]:
    """Return the ``shortlist`` most frequent words, ties in byte order, and how many words were left out to teach UNK.

    If there are no more types than the shortlist has places, UNK would never be seen in training. Then the rarest words,
    1 % of the types and at least one, are left out. A side of a single type keeps it.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    left_out = 0
    if len(ranked) <= shortlist:
        left_out = min(math.ceil(UNK_TYPES * len(ranked)), len(ranked) - 1) if ranked else 0
        shortlist = len(ranked) - left_out
    kept = ranked[:shortlist]
    return Vocabulary(tuple(word for word, _ in kept), tuple(count for _, count in kept)), left_out


def count_words(lines: Iterable[bytes]) -> Counter[bytes]:
    """Count the words of a tokenized corpus, one segment a line."""
    counts: Counter[bytes] = Counter()
    for line in lines:
        counts.update(words(line.rstrip(b"\r\n")))
    return counts


def format_vocabulary(vocabulary: Vocabulary) -> bytes:
    """Write one word a line as raw bytes, tab, count; line i (from 1) has id i + 1."""
    return b"".join(b"%b\t%d\n" % item for item in zip(vocabulary.words, vocabulary.counts, strict=True))


def read_vocabulary(path: str) -> Vocabulary:
    """Read what ``format_vocabulary`` wrote.

    Raises InputError for an empty or repeated word, a blank inside a word, or a count that is missing or not a number.
    """
    found: dict[bytes, int] = {}
    hint = "write one word, a tab and a count a line"
    with open_plain(path) as stream:
        for line_number, line in enumerate(read_rows(stream), 1):
            word, tab, count = line.removesuffix(b"\n").partition(b"\t")
            if not word or b" " in word:
                raise InputError(path, f"{shown(word)} is not a word", hint, line_number)
            if line.endswith((b"\r", b"\r\n")):
                raise InputError(path, "the line ends in CR LF", "convert it to LF line ends", line_number)
            if word in found:
                raise InputError(path, f"{shown(word)} stands twice", "name every word once", line_number)
            if not tab:
                raise InputError(path, f"{shown(word)} has no count", hint, line_number)
            if not (count.isdigit() and len(count) <= _DIGITS):
                raise InputError(path, f"count {shown(count)}", hint, line_number)
            found[word] = int(count)
    return Vocabulary(tuple(found), tuple(found.values()))


def read_shortlist(path: str, without: frozenset[bytes] = frozenset()) -> Vocabulary:
    """Read the words that a network is to know, as ``read_vocabulary`` does, those of ``without`` left out.

    Raises InputError if there are none, too.
    """
    vocabulary = read_vocabulary(path)
    if not without.isdisjoint(vocabulary.words):
        kept = [item for item in zip(vocabulary.words, vocabulary.counts, strict=True) if item[0] not in without]
        vocabulary = Vocabulary(tuple(word for word, _ in kept), tuple(count for _, count in kept))
    if not vocabulary.words:
        raise InputError(path, "is empty", "name the words of the shortlist, one a line")
    return vocabulary
