"""Two systems' outputs on one source are compared, phrase by phrase, beside the table that both used."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import add
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.evaluation.corpora import read_lines, segments_of
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import Path, check_one_stream, is_stream
from phrase_rescore.messages import counted, shown
from phrase_rescore.moses.columns import TableColumns
from phrase_rescore.moses.hypotheses import Derivation, UsedPhrase, read_derivations
from phrase_rescore.moses.table import SEPARATOR, TableBlock, read_table, words
from phrase_rescore.moses.text import look, mismatch
from phrase_rescore.progress import Progress
from phrase_rescore.ranges import SHOWN_SEGMENTS, check

CUTS = (
    "the same source phrases, other targets", "fewer, longer source phrases", "more, shorter source phrases",
    "as many source phrases, cut elsewhere",
)  # fmt: skip


class Region(NamedTuple):
    """Source words ``first`` to ``last``, from 0, and the phrases that each system uses for them, in its target order."""

    first: int
    last: int
    phrases: tuple[Derivation, Derivation]

    @property
    def cut(self) -> str:
        """How the second system cuts the region, one of CUTS."""
        one, other = ({(phrase.first, phrase.last) for phrase in phrases} for phrases in self.phrases)
        return CUTS[0 if one == other else 1 if len(other) < len(one) else 2 if len(other) > len(one) else 3]


def text_of(phrases: Iterable[UsedPhrase]) -> bytes:
    """Return what phrases say, single blanks between words."""
    return b" ".join(phrase.tgt for phrase in phrases if phrase.tgt)


def differing_regions(one: Derivation, other: Derivation) -> list[Region]:
    """Return the smallest regions whose phrases differ, in the order of the source. Both must cover the same source.

    >>> def used(*phrases): return tuple(UsedPhrase(*phrase) for phrase in phrases)
    >>> both = used((0, 0, b"a"), (1, 2, b"b c")), used((0, 0, b"a"), (2, 2, b"c"), (1, 1, b"b"))
    >>> [(region.first, region.last, region.cut) for region in differing_regions(*both)]
    [(1, 2, 'more, shorter source phrases')]
    """
    regions, first = list[Region](), 0
    for last in sorted({phrase.last for phrase in one} & {phrase.last for phrase in other}):
        mine, its = (tuple(phrase for phrase in used if first <= phrase.first <= last) for used in (one, other))
        if set(mine) != set(its):
            regions.append(Region(first, last, (mine, its)))
        first = last + 1
    return regions


class TablePair(NamedTuple):
    """A phrase pair of the table."""

    logs: list[float]  # natural logarithm of every score
    source: float  # how often the source was seen, nan where the table does not say
    joint: float  # how often both were


class UsedTable:
    """The phrase pairs of a table that were used, and which of their sources it has. Raises InputError if it cannot be read."""

    def __init__(self, table: str) -> None:
        self.name, self.columns = table, TableColumns.read(table)
        self.unknown = self.columns.unknown(self.columns.score())  # words unknown to the network
        self.sources = set[bytes]()
        self.pairs: dict[tuple[bytes, bytes], TablePair] = {}

    def read(self, wanted: Collection[tuple[bytes, bytes]], on_read: Progress | None) -> None:
        """Read the table once and keep these pairs (source, target)."""
        sources, n = {src for src, _ in wanted}, len(self.columns)
        for rows in read_table(self.name, n, on_read):
            at = [i for i, src in enumerate(rows.src) if src in sources]
            heads, src, tgt, tails = ([of[i] for i in at] for of in (rows.heads, rows.src, rows.tgt, rows.tails))
            some = TableBlock(at, heads, src, tgt, tails)
            self.sources.update(src)
            logs = self.columns.logs(some.values(n)).tolist()
            for key, of_row, seen in zip(zip(src, tgt, strict=True), logs, some.occurrences().tolist(), strict=True):
                if key in wanted:
                    self.pairs[key] = TablePair(of_row, *seen)


CHANGES = {  # how the second system's choice for a region differs, by what is looked at
    "source phrases": CUTS,
    "rarest pair": ("its rarest pair seen more often", "its rarest pair seen as often", "its rarest pair seen less often"),
    "unknown": tuple(f"{many} words unknown to the network" for many in ("fewer", "as many", "more")),
    "target": ("a shorter target", "a target of the same length", "a longer target"),
}
_FEW = 0.001  # of the phrases may be missing from the table without a word: those that were pruned, say


class Choice(NamedTuple):
    """A phrase that a system used."""

    src: bytes
    tgt: bytes
    words: int  # of the target
    right: int  # of these words in the reference; phrases outside of differing regions come first
    pair: TablePair | None  # None: the table does not have it


class ComparedSegment:
    """A line of the source (``number`` from 1), what both systems make of it, and where they differ.

    ``bleu``: sentence BLEU of both. ``effect`` on the first one's corpus BLEU, if this segment alone were the second one's.
    """

    def __init__(
        self, table: UsedTable, number: int, source: list[bytes], reference: bytes, outputs: Sequence[Derivation],
        bleu: list[float], effect: float,
    ) -> None:  # fmt: skip
        self.number, self.source, self.reference, self.bleu, self.effect = number, source, reference, bleu, effect
        found = differing_regions(*outputs)
        self.regions = [of for of in found if text_of(of.phrases[0]) != text_of(of.phrases[1])]
        self.recut = len(found) - len(self.regions)  # where both have the same words from other phrases
        self.choices = list[dict[UsedPhrase, Choice]]()  # of both systems, in target order
        for system, phrases in enumerate(outputs):
            apart = [phrase for region in self.regions for phrase in region.phrases[system]]
            left, right = Counter(words(reference)), Counter[UsedPhrase]()  # together BLEU's right unigrams
            for phrase in [*(phrase for phrase in phrases if phrase not in apart), *apart]:
                for word in phrase.tgt.split(b" "):
                    right[phrase] += left[word] > 0
                    left[word] -= 1
            sources = {phrase: _source_of(source, phrase) for phrase in phrases}
            self.choices.append({
                phrase: Choice(src, phrase.tgt, len(phrase.tgt.split()), right[phrase], table.pairs.get((src, phrase.tgt)))
                for phrase, src in sources.items()
            })  # fmt: skip

    def text(self, system: int) -> bytes:
        """Return a system's output, single blanks between words."""
        return text_of(self.choices[system])

    def chosen(self, region: Region, system: int) -> list[Choice]:
        """Return a system's choices for a region."""
        return [self.choices[system][phrase] for phrase in region.phrases[system]]


def _source_of(source: Sequence[bytes], phrase: UsedPhrase) -> bytes:
    return b" ".join(source[phrase.first : phrase.last + 1])


def _bleu(
    references: Sequence[str], outputs: Sequence[Sequence[Derivation]]
) -> tuple[list[BLEUScore], list[list[float]], list[float]]:
    """Return both systems' BLEU; their sentence BLEU, and the effect, of every segment. All text must be UTF-8."""
    metric = BLEU(tokenize="none", force=True)  # tokens are what blanks separate
    of_sentence = BLEU(tokenize="none", force=True, effective_order=True)  # no orders that it is too short for
    texts = [[text_of(phrases).decode() for phrases in of_system] for of_system in outputs]
    one, other = (np.array(metric._extract_corpus_statistics(text, [references])) for text in texts)
    corpus = [metric._compute_score_from_stats(counts.sum(0).tolist()) for counts in (one, other)]
    rows = zip(one.tolist(), other.tolist(), strict=True)
    sentences = [[of_sentence._compute_score_from_stats(row).score for row in both] for both in rows]
    moved = (one.sum(0) - one + other).tolist()
    return corpus, sentences, [metric._compute_score_from_stats(row).score - corpus[0].score for row in moved]


class Usage:
    """What a system used in all segments."""

    def __init__(self, segments: Sequence[ComparedSegment], system: int, table: UsedTable) -> None:
        self.logs = [0.0] * len(table.columns)  # every column's sum over the pairs that the table has
        self.missing = Counter[tuple[bytes, bytes]]()  # pairs that the table should have
        self.phrases = self.copied = 0  # copied: words that the table does not have
        self.target_words = self.in_table = 0  # of all phrases; of those of pairs that the table has
        for phrase, choice in chain.from_iterable(segment.choices[system].items() for segment in segments):
            self.phrases += 1
            self.target_words += choice.words
            if choice.pair is not None:
                self.in_table += choice.words
                self.logs = list(map(add, self.logs, choice.pair.logs))
            elif phrase.first == phrase.last and choice.src not in table.sources:
                self.copied += 1
            else:
                self.missing[choice.src, choice.tgt] += 1


@dataclass
class Comparison:
    """The result; pairs of values are those of the two systems."""

    names: tuple[str, str]
    source: str  # the file of the source
    shown: int  # segments most gained, and as many most lost, to be shown
    bleu: list[BLEUScore]
    segments: list[ComparedSegment]
    table: UsedTable
    usage: tuple[Usage, Usage]
    changes: dict[str, list[int]]  # by change: regions; words and right words of one, and of the other
    warnings: list[str] = field(default_factory=list)

    @property
    def differing(self) -> list[ComparedSegment]:
        """Return the segments whose outputs differ as text."""
        return [segment for segment in self.segments if segment.text(0) != segment.text(1)]


def _changes(segments: Sequence[ComparedSegment], table: UsedTable) -> dict[str, list[int]]:
    sums: dict[str, list[int]] = {}
    for segment in segments:
        for region in segment.regions:
            choices = [segment.chosen(region, system) for system in (0, 1)]
            figures = [sum(figure) for of in choices for figure in zip(*((c.words, c.right) for c in of), strict=True)]
            for name in _changes_of(region, choices, table):
                sums[name] = list(map(add, sums.get(name, [0] * 5), [1, *figures]))
    return sums


def _changes_of(region: Region, choices: Sequence[Sequence[Choice]], table: UsedTable) -> Iterator[str]:
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
    if (unknown := table.unknown) is not None:
        first, second = (round(sum(unknown.of(pair.logs) for pair in of_system)) for of_system in pairs)
        yield changed("unknown", first, second)


def why(
    systems: Sequence[tuple[str, Path]], *, source: Path, reference: Path, table: Path, segments: int = 10,
    on_read: Progress | None = None,
) -> Comparison:  # fmt: skip
    """Compare the outputs of two systems (name, output) as ``phrase-rescore why`` does: the baseline, then the other one.

    ``segments``: how many that gained most are to be shown, and as many that lost most. Raises OptionError for anything but two
    systems and for a table that is a stream, InputError for files that cannot be read or do not go together.
    """
    check("segments", segments, SHOWN_SEGMENTS)
    source, reference, table = (os.fspath(path) for path in (source, reference, table))
    if len(systems) != 2:
        raise OptionError(f"{counted(len(systems), 'system')}: name two, the baseline first, as baseline=OUT rnn=OUT")
    (one, _), (other, _) = systems
    if one == other:
        raise OptionError(f"two systems are called {shown(os.fsencode(one))}; give each a name of its own")
    if is_stream(table):
        raise OptionError("--table is read more than once; name a file")
    outputs = [os.fspath(path) for _, path in systems]
    check_one_stream(source, reference, *outputs)
    used = UsedTable(table)
    sources, references = ([words(row.rstrip(b"\r\n")) for row in read_lines(path)] for path in (source, reference))
    if len(sources) != len(references):
        what = f"{counted(len(references), 'line')} where {display_name(source)} has {len(sources):,}"
        raise InputError(display_name(reference), what, "the reference has a line for every line of the source")
    derivations = [read_derivations(path, sources, source) for path in outputs]
    joined = [b" ".join(reference) for reference in references]
    bleu, of_segments, effects = _bleu(segments_of(display_name(reference), joined), derivations)
    pairs = list(zip(*derivations, strict=True))
    phrases = ((words, phrase) for words, both in zip(sources, pairs, strict=True) for phrase in chain(*both))
    used.read({(_source_of(words, phrase), phrase.tgt) for words, phrase in phrases}, on_read)
    each = zip(range(1, len(sources) + 1), sources, joined, pairs, of_segments, effects, strict=True)
    compared = [ComparedSegment(used, *of_segment) for of_segment in each]
    usage = Usage(compared, 0, used), Usage(compared, 1, used)
    found = Comparison((one, other), source, segments, bleu, compared, used, usage, _changes(compared, used))
    found.warnings += _warnings(found, outputs, reference)
    return found


def _warnings(found: Comparison, outputs: Sequence[str], reference: str) -> Iterator[str]:
    table = found.table
    missing = found.usage[0].missing + found.usage[1].missing
    phrases = sum(usage.phrases for usage in found.usage)
    if missing.total() > _FEW * phrases:
        (src, tgt), times = missing.most_common(1)[0]
        row = shown(b" ".join((src, SEPARATOR, tgt)))
        lacks = f"{table.name} lacks {missing.total():,} of the {phrases:,} phrases, {row} {times:,} times"
        yield f"{lacks}: did the systems use another table, or was it pruned later?"
    its = look([segment.reference.decode() for segment in found.segments])
    for system, path in enumerate(outputs):
        if why := mismatch(its, look([segment.text(system).decode() for segment in found.segments])):
            yield f"{display_name(path)}: {why} ({display_name(reference)}); right words then count as wrong ones"
    if table.columns.guessed:
        yield f"{table.name} has no .columns.json; its last two columns look like annotate's and are used"
