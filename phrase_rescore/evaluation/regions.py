"""Where two outputs of one source differ: the smallest spans of source words at whose ends both cut it into phrases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from phrase_rescore.moses.segmentation import Derivation, UsedPhrase

CUTS = (
    "the same source phrases, other targets", "fewer, longer source phrases", "more, shorter source phrases",
    "as many source phrases, cut elsewhere",
)  # fmt: skip


class Region(NamedTuple):
    """Source words ``first`` to ``last``, from 0, and the phrases that each system uses for them, in its target order.

    Where the phrases differ and their words do not, the region is ``recut``.
    """

    first: int
    last: int
    phrases: tuple[Derivation, Derivation]

    @property
    def recut(self) -> bool:
        one, other = (b" ".join(phrase.tgt for phrase in phrases) for phrases in self.phrases)
        return one == other

    @property
    def cut(self) -> str:
        """How the second system cuts the region, one of CUTS."""
        one, other = ({(phrase.first, phrase.last) for phrase in phrases} for phrases in self.phrases)
        return CUTS[0 if one == other else 1 if len(other) < len(one) else 2 if len(other) > len(one) else 3]


def differing_regions(one: Derivation, other: Derivation) -> list[Region]:
    """Return the smallest regions whose phrases differ, in the order of the source. Both must cover the same source.

    >>> def used(*phrases): return tuple(UsedPhrase(*phrase) for phrase in phrases)
    >>> both = used((0, 0, b"a"), (1, 2, b"b c")), used((0, 0, b"a"), (2, 2, b"c"), (1, 1, b"b"))
    >>> [(region.first, region.last, region.cut) for region in differing_regions(*both)]
    [(1, 2, 'more, shorter source phrases')]
    """
    ends = sorted({phrase.last for phrase in one} & {phrase.last for phrase in other})
    regions = list[Region]()
    first = 0
    for last in ends:
        phrases = tuple(tuple(phrase for phrase in used if first <= phrase.first <= last) for used in (one, other))
        if set(phrases[0]) != set(phrases[1]):
            regions.append(Region(first, last, (phrases[0], phrases[1])))
        first = last + 1
    return regions


def take_words(phrases: Iterable[UsedPhrase], left: Counter[bytes]) -> dict[UsedPhrase, int]:
    """Count for every phrase how many of its words are ``left`` of the reference, and take them from there.

    Taken first for the phrases that both systems use and then for the others, they come to BLEU's number of right unigrams.
    """
    right = dict.fromkeys(phrases, 0)
    for phrase in right:
        for word in phrase.tgt.split(b" "):
            if left[word] > 0:
                left[word] -= 1
                right[phrase] += 1
    return right


def occurs(phrase: bytes, reference: bytes) -> bool:
    """Tell whether a phrase stands in the reference as a whole, both with single blanks between words.

    >>> occurs(b"a b", b"x a b c"), occurs(b"a b", b"x a bc")
    (True, False)
    """
    return b" %b " % phrase in b" %b " % reference
