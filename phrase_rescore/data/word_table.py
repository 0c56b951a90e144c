"""The ids of all words of a text at once: a hash table held in arrays, looked up without a Python object per word.

A word of up to 23 bytes is taken as three 64-bit integers: its bytes, the blank that ends it, zeros. As no word has a blank
within, two words are equal when these are, whatever bytes they are made of: a match is exact and needs no second look.
Each slot of the table holds one word. What it cannot tell (longer words, and words whose slot another one has) is looked up
in a dictionary, one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_LANES = 3  # integers a word
_LONGEST = 8 * _LANES - 1  # bytes; the blank takes one
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)  # odd, bits all over
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], "<u8")  # masks of the first n bytes
_BLANK = ord(" ")

Lanes = NDArray[np.uint64]


class WordTable:
    """Finds the ids of words, ``missing`` for those that it does not hold.

    ``ids``: best the frequent words first, for they take the slots.
    """

    def __init__(self, ids: Mapping[bytes, int], missing: int) -> None:
        self._ids, self._missing = ids, missing
        words = [word for word in ids if len(word) <= _LONGEST]
        self._bits = max(4, (4 * len(words)).bit_length())  # four to eight slots a word
        starts, ends, text = _words_of(b"".join(word + b" " for word in words))
        lanes = _lanes(text, starts, ends)
        slots, first = np.unique(self._slots(lanes), return_index=True)
        self._at = np.zeros(1 << self._bits, np.int32)  # number of the word in each slot, 0: none
        self._at[slots] = first + 1
        self._known = np.concatenate((np.zeros((_LANES, 1), np.uint64), lanes), axis=1)  # by number
        self._id_of = np.fromiter(chain((missing,), (ids[word] for word in words)), np.int32, len(words) + 1)

    def _slots(self, lanes: Lanes) -> NDArray[np.int64]:
        mixed: NDArray[np.uint64] = lanes[0] * _FACTORS[0]
        for lane, factor in zip(lanes[1:], _FACTORS[1:], strict=True):
            mixed ^= mixed >> np.uint64(29)
            mixed += lane * factor
        mixed ^= mixed >> np.uint64(32)
        mixed *= _FACTORS[0]
        return (mixed >> np.uint64(64 - self._bits)).astype(np.int64)

    def look_up(self, text: bytes) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids of the words of a text and where each ends: (words,), (words,).

        Every word of ``text``, the last one too, ends in one blank; there are no other blanks.
        """
        starts, ends, padded = _words_of(text)
        lanes = _lanes(padded, starts, ends)
        numbers = self._at[self._slots(lanes)]
        differ = self._known[0][numbers] ^ lanes[0]
        for known, lane in zip(self._known[1:], lanes[1:], strict=True):
            differ |= known[numbers] ^ lane
        ids = self._id_of[numbers]
        untold = np.flatnonzero(((differ != 0) & (numbers != 0)) | (ends - starts > _LONGEST))
        spans = zip(starts[untold].tolist(), ends[untold].tolist(), strict=True)
        ids[untold] = [self._ids.get(text[start:end], self._missing) for start, end in spans]
        return ids, ends


def _words_of(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Where words begin and where the blanks stand that end them, (words,) each; the text with room for lanes behind it."""
    padded = np.frombuffer(text + bytes(8 * _LANES), np.uint8)
    ends = np.flatnonzero(padded == _BLANK)
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = 0, ends[:-1] + 1
    return starts, ends, padded


def _lanes(padded: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Lanes:
    """The integers of every word, (_LANES, words); of a longer one, those of its beginning."""
    at_every_byte = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    lengths = ends - starts + 1  # with the blank
    lanes = np.zeros((_LANES, len(starts)), np.uint64)
    lanes[0] = at_every_byte[starts] & _FIRST_BYTES[np.minimum(lengths, 8)]
    for k in range(1, _LANES):
        longer = np.flatnonzero(lengths > 8 * k)
        lanes[k, longer] = at_every_byte[starts[longer] + 8 * k] & _FIRST_BYTES[np.minimum(lengths[longer] - 8 * k, 8)]
    return lanes
