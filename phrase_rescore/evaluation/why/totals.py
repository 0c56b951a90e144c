"""Totals over the phrases of two systems: by length and frequency, by kind of change, and who knew the right target."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from phrase_rescore.evaluation.why.regions import Kind, Region, occurs
from phrase_rescore.evaluation.why.table import Lookup, Pair
from phrase_rescore.moses.columns import ScoreColumn
from phrase_rescore.moses.segmentation import Derivation, UsedPhrase

COPIED, MISSING, UNCOUNTED = "a word copied", "not in the table", "the table does not say"
_SEEN = ((1, "1"), (2, "2"), (3, "3–9"), (10, "10–99"), (100, "100–999"), (1000, "1,000 or more"))  # by the least of each
_ONCE = ("1, its source 1 too", "1, its source more")
_LONGEST = 8  # source words from here on share a place
SOURCE_BINS = (*(name for _, name in _SEEN), UNCOUNTED, COPIED, MISSING)
PAIR_BINS = (*_ONCE, *SOURCE_BINS[1:])
LENGTH_BINS = (*map(str, range(1, _LONGEST)), f"{_LONGEST} or more")


@dataclass
class Tally:
    """Phrases that a system used, and of those that the other one did not use there what the reference has."""

    phrases: int = 0
    differing: int = 0
    words: int = 0  # target words of the differing ones
    right: int = 0  # of these words in the reference
    whole: int = 0  # differing phrases all of whose words are right and stand in the reference as they do here

    def __iadd__(self, other: Tally) -> Tally:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


@dataclass
class Usage:
    """What a system used in all segments."""

    all: Tally = field(default_factory=Tally)
    by_length: dict[str, Tally] = field(default_factory=dict)  # LENGTH_BINS, of source words
    by_source: dict[str, Tally] = field(default_factory=dict)  # SOURCE_BINS
    by_pair: dict[str, Tally] = field(default_factory=dict)  # PAIR_BINS
    copied: int = 0  # words that the table does not have
    missing: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)  # pairs that the table should have
    unknown: float = 0  # target words unknown to the network
    target_words: int = 0  # of all phrases
    in_table: int = 0  # of those of pairs that the table has
    logs: list[float] = field(default_factory=list)  # every column's sum over these pairs

    def add(self, source: Sequence[bytes], phrase: UsedPhrase, lookup: Lookup, right: int | None, reference: bytes) -> None:
        """Count a phrase; ``right``: how many of its words are, None if both systems use it."""
        src = b" ".join(source[phrase.first : phrase.last + 1])
        length, words = phrase.last - phrase.first + 1, phrase.tgt.count(b" ") + bool(phrase.tgt)
        tally = Tally(1)
        if right is not None:
            tally = Tally(1, 1, words, right, right == words and occurs(phrase.tgt, reference))
        pair = lookup.pairs.get((src, phrase.tgt))
        if pair is None:
            of_source = of_pair = COPIED if length == 1 and src not in lookup.sources else MISSING
            if of_pair == COPIED:
                self.copied += 1
            else:
                self.missing[src, phrase.tgt] += 1
        else:
            of_source, of_pair = _seen(pair.source), _pair_bin(pair)
            self._add_logs(pair, words, lookup.columns.unknown)
        self.target_words += words
        self.all += tally
        for bins, name in (
            (self.by_length, LENGTH_BINS[min(length, _LONGEST) - 1]), (self.by_source, of_source), (self.by_pair, of_pair),
        ):  # fmt: skip
            bins.setdefault(name, Tally()).__iadd__(tally)

    def _add_logs(self, pair: Pair, words: int, unknown: ScoreColumn | None) -> None:
        self.in_table += words
        self.logs = [one + other for one, other in zip(self.logs or [0.0] * len(pair.logs), pair.logs, strict=True)]
        self.unknown += unknown.of(pair.logs) if unknown is not None else 0


def _seen(count: float) -> str:
    """Name the bin of a number of times.

    >>> _seen(1), _seen(9), _seen(10), _seen(float("nan"))
    ('1', '3–9', '10–99', 'the table does not say')
    """
    return next((name for least, name in reversed(_SEEN) if count >= least), UNCOUNTED)


def _pair_bin(pair: Pair) -> str:
    name = _seen(pair.joint)
    return _ONCE[pair.source > 1] if name == "1" else name


CHANGES = {  # how the second system's choice for a region differs, by what is looked at
    "source phrases": tuple(kind.value for kind in Kind),
    "rarest pair": ("its rarest pair seen more often", "its rarest pair seen as often", "its rarest pair seen less often"),
    "unknown": tuple(f"{many} words unknown to the network" for many in ("fewer", "as many", "more")),
    "target": ("a shorter target", "a target of the same length", "a longer target"),
}


@dataclass
class Change:
    """Differing regions: how many, and the words and the right words of both systems in them."""

    regions: int = 0
    words: list[int] = field(default_factory=lambda: [0, 0])
    right: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, words: Sequence[int], right: Sequence[int]) -> None:
        """Count a region."""
        self.regions += 1
        self.words = [one + other for one, other in zip(self.words, words, strict=True)]
        self.right = [one + other for one, other in zip(self.right, right, strict=True)]


def add_region(
    changes: dict[str, Change], region: Region, source: Sequence[bytes], lookup: Lookup, right: Sequence[dict[UsedPhrase, int]]
) -> None:
    """Count a region in every way; ``right``: the number of right words of every phrase, for each system."""
    words = [sum(len(phrase.tgt.split(b" ")) for phrase in phrases) for phrases in region.phrases]
    its_right = [sum(right[system][phrase] for phrase in phrases) for system, phrases in enumerate(region.phrases)]
    names = ["all", region.kind.value, _changed("target", words[0], words[1])]
    pairs = [
        [lookup.pairs.get((b" ".join(source[phrase.first : phrase.last + 1]), phrase.tgt)) for phrase in phrases]
        for phrases in region.phrases
    ]
    known = [[pair for pair in of_system if pair] for of_system in pairs]
    if known == pairs:
        rarest = [min(pair.joint for pair in of_system) for of_system in known]
        if not math.isnan(sum(rarest)):
            names.append(_changed("rarest pair", rarest[1], rarest[0]))
        if (column := lookup.columns.unknown) is not None:
            unknown = [round(sum(column.of(pair.logs) for pair in of_system)) for of_system in known]
            names.append(_changed("unknown", unknown[0], unknown[1]))
    for name in names:
        changes.setdefault(name, Change()).add(words, its_right)


def _changed(what: str, one: float, other: float) -> str:
    return CHANGES[what][0 if other < one else 1 if other == one else 2]


VERDICTS = ("only φ's best", "only the score's best", "both", "neither")  # are in the reference


@dataclass
class Best:
    """The best targets of source phrases in differing regions: where φ and the score disagree, and whose is in the reference.

    A source phrase counts once for each time that a system used it, once if both did.
    """

    alone: int = 0  # the source has one target
    agree: int = 0
    disagree: int = 0
    tied: int = 0  # several targets share the best φ
    tied_right: int = 0  # the score's best is in the reference
    tied_chance: float = 0.0  # the mean share of φ's best that are
    verdicts: Counter[str] = field(default_factory=Counter)
    chosen: dict[str, tuple[Counter[str], Counter[str]]] = field(
        default_factory=lambda: {verdict: (Counter(), Counter()) for verdict in VERDICTS}
    )  # by each system: phi, score, other; a system that cut the source elsewhere chose nothing
    words: list[int] = field(default_factory=lambda: [0, 0])  # of φ's best and the score's best where they disagree

    def add(self, source: Sequence[bytes], region: Region, lookup: Lookup, has: Callable[[bytes], bool]) -> None:
        """Count the source phrases of a region; ``has`` tells of a target whether the reference has it."""
        spans = dict.fromkeys((phrase.first, phrase.last) for phrases in region.phrases for phrase in phrases)
        for first, last in spans:
            found = lookup.sources.get(b" ".join(source[first : last + 1]))
            if found is None:
                continue
            score, tied = found.by_score, found.by_phi
            if found.targets == 1:
                self.alone += 1
            elif len(tied) > 1:
                self.tied += 1
                self.tied_right += has(score)
                self.tied_chance += sum(map(has, tied)) / len(tied)
            elif tied[0] == score:
                self.agree += 1
            else:
                self._judge((first, last), tied[0], score, region.phrases, has)

    def _judge(
        self,
        span: tuple[int, int],
        phi: bytes,
        score: bytes,
        phrases: tuple[Derivation, Derivation],
        has: Callable[[bytes], bool],
    ) -> None:
        self.disagree += 1
        verdict = {(True, False): 0, (False, True): 1, (True, True): 2, (False, False): 3}
        name = VERDICTS[verdict[has(phi), has(score)]]
        self.verdicts[name] += 1
        self.words = [self.words[0] + len(phi.split()), self.words[1] + len(score.split())]
        for system, used in enumerate(phrases):
            for phrase in used:
                if (phrase.first, phrase.last) == span:
                    self.chosen[name][system][{phi: "phi", score: "score"}.get(phrase.tgt, "other")] += 1


def filled(bins: dict[str, Tally], others: dict[str, Tally], order: Sequence[str]) -> Iterator[tuple[str, Tally, Tally]]:
    """Yield the bins that either system used, in order, with the tallies of both."""
    for name in order:
        if name in bins or name in others:
            yield name, bins.get(name, Tally()), others.get(name, Tally())


def share(part: float, whole: float) -> float:
    """Divide; nan if there is nothing."""
    return part / whole if whole else math.nan
