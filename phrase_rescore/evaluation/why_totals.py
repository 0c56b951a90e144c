"""Totals over the phrases of two systems: by length and frequency, by kind of change, and who knew the right target."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from phrase_rescore.evaluation.regions import CUTS, Choice, ComparedSegment, Region, TableSource, UsedTable, occurs, source_of
from phrase_rescore.moses.columns import ScoreColumn

COPIED, MISSING, UNCOUNTED = "a word copied", "not in the table", "the table does not say"
_SEEN = ((1, "1"), (2, "2"), (3, "3–9"), (10, "10–99"), (100, "100–999"), (1000, "1,000 or more"))  # by the least of each
_ONCE = ("1, its source 1 too", "1, its source more")
_LONGEST = 8  # source words from here on share a bin
_SOURCE_BINS = (*(name for _, name in _SEEN), UNCOUNTED, COPIED, MISSING)
BINS = {  # the bins of phrases, by what sorts phrases into them
    "source words": (*map(str, range(1, _LONGEST)), f"{_LONGEST} or more"),
    "source seen": _SOURCE_BINS,
    "pair seen": (*_ONCE, *_SOURCE_BINS[1:]),
}
CHANGES = {  # how the second system's choice for a region differs, by what is looked at
    "source phrases": CUTS,
    "rarest pair": ("its rarest pair seen more often", "its rarest pair seen as often", "its rarest pair seen less often"),
    "unknown": tuple(f"{many} words unknown to the network" for many in ("fewer", "as many", "more")),
    "target": ("a shorter target", "a target of the same length", "a longer target"),
}
VERDICTS = ("only φ's best", "only the score's best", "both", "neither")  # are in the reference


Sums = dict[str, list[float]]


def add_to(sums: Sums, key: str, values: Sequence[float]) -> None:
    sums[key] = [one + other for one, other in zip(sums.get(key, [0] * len(values)), values, strict=True)]


@dataclass
class Usage:
    """What a system used in all segments.

    ``bins``: phrases, differing phrases, target words of these, right words, and differing phrases all of whose words are right
    and stand in the reference as they do here; by the names of BINS, and ``all``.
    """

    bins: dict[str, Sums] = field(default_factory=lambda: {name: {} for name in (*BINS, "all")})
    copied: int = 0  # words that the table does not have
    missing: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)  # pairs that the table should have
    target_words: int = 0  # of all phrases
    in_table: int = 0  # of those of pairs that the table has
    sums: Sums = field(default_factory=dict)  # logs: every column's sum over these pairs

    @property
    def phrases(self) -> float:
        return self.bins["all"]["all"][0] if self.bins["all"] else 0

    def add(self, choice: Choice, length: int, table: UsedTable, reference: bytes) -> None:
        """Count a phrase of ``length`` source words."""
        pair, src, tgt = choice.pair, choice.src, choice.tgt
        whole = choice.right == choice.words and occurs(tgt, reference)
        tally = [1, 1, choice.words, choice.right, whole] if choice.differs else [1, 0, 0, 0, 0]
        self.target_words += choice.words
        if pair is not None:
            of_source, of_pair = _seen(pair.source), _seen(pair.joint)
            if of_pair == "1":
                of_pair = _ONCE[1 if pair.source > 1 else 0]
            self.in_table += choice.words
            add_to(self.sums, "logs", pair.logs)
        elif length == 1 and src not in table.sources:
            of_source = of_pair = COPIED
            self.copied += 1
        else:
            of_source = of_pair = MISSING
            self.missing[src, tgt] += 1
        names = (BINS["source words"][min(length, _LONGEST) - 1], of_source, of_pair, "all")
        for bins, name in zip(self.bins.values(), names, strict=True):
            add_to(bins, name, tally)


def _seen(count: float) -> str:
    """Name the bin of a number of times.

    >>> _seen(1), _seen(9), _seen(10), _seen(float("nan"))
    ('1', '3–9', '10–99', 'the table does not say')
    """
    return next((name for least, name in reversed(_SEEN) if count >= least), UNCOUNTED)


def changes_of(region: Region, choices: Sequence[Sequence[Choice]], unknown: ScoreColumn | None) -> Iterator[str]:
    """Name the changes of a region; ``choices``: both systems' for it."""

    def changed(what: str, one: float, other: float) -> str:
        return CHANGES[what][0 if other < one else 1 if other == one else 2]

    yield "all"
    yield region.cut
    one, other = (sum(choice.words for choice in of_system) for of_system in choices)
    yield changed("target", one, other)
    pairs = [[choice.pair for choice in of_system if choice.pair] for of_system in choices]
    if list(map(len, pairs)) != list(map(len, choices)):
        return
    rarest = [min(pair.joint for pair in of_system) for of_system in pairs]
    if not math.isnan(sum(rarest)):
        yield changed("rarest pair", rarest[1], rarest[0])
    if unknown is not None:
        first, second = (round(sum(unknown.of(pair.logs) for pair in of_system)) for of_system in pairs)
        yield changed("unknown", first, second)


@dataclass
class BestTargets:
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
    chosen: Counter[tuple[str, int, str]] = field(default_factory=Counter)  # verdict, system, phi | score | other
    words: list[int] = field(default_factory=lambda: [0, 0])  # of φ's best and the score's best where they disagree

    def add(self, segment: ComparedSegment, region: Region, sources: dict[bytes, TableSource]) -> None:
        """Count the source phrases of a region."""
        spans = {(phrase.first, phrase.last): phrase for phrases in region.phrases for phrase in phrases}
        for span, phrase in spans.items():
            found = sources.get(source_of(segment.source, phrase))
            if found is None:
                continue
            score, tied = found.by_score, found.by_phi
            if found.targets == 1:
                self.alone += 1
            elif len(tied) > 1:
                self.tied += 1
                self.tied_right += segment.has(score)
                self.tied_chance += sum(map(segment.has, tied)) / len(tied)
            elif tied[0] == score:
                self.agree += 1
            else:
                self._judge(segment, region, span, tied[0], score)

    def _judge(self, segment: ComparedSegment, region: Region, span: tuple[int, int], phi: bytes, score: bytes) -> None:
        verdicts = {(True, False): 0, (False, True): 1, (True, True): 2, (False, False): 3}
        name = VERDICTS[verdicts[segment.has(phi), segment.has(score)]]
        self.disagree += 1
        self.verdicts[name] += 1
        self.words = [self.words[0] + len(phi.split()), self.words[1] + len(score.split())]
        for system, used in enumerate(region.phrases):
            for phrase in used:
                if (phrase.first, phrase.last) == span:
                    self.chosen[name, system, {phi: "phi", score: "score"}.get(phrase.tgt, "other")] += 1
