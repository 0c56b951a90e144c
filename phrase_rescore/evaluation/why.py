"""Two systems' outputs on one source are compared, phrase by phrase, beside the table that both used."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore

from phrase_rescore.errors import InputError, OptionError, counted, shown
from phrase_rescore.evaluation.corpora import read_lines
from phrase_rescore.evaluation.regions import (
    Choice,
    ComparedSegment,
    UsedTable,
    differing_regions,
    source_of,
    take_words,
    text_of,
)
from phrase_rescore.evaluation.why_totals import BestTargets, Sums, Usage, add_to, changes_of
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import is_stream
from phrase_rescore.moses.segmentation import Derivation, not_utf8, read_derivations
from phrase_rescore.moses.table import SEPARATOR, words
from phrase_rescore.moses.text import look, mismatch
from phrase_rescore.ranges import COLUMNS, SHOWN_SEGMENTS, Checked, ranged

_FEW = 0.001  # of the phrases may be missing from the table without a word: those that were pruned, say


@dataclass(frozen=True)
class WhyOptions(Checked):
    """What is asked for; of the two systems (name, output) the second is the one that is asked about."""

    source: str
    reference: str
    table: str
    systems: Sequence[tuple[str, str]]
    segments: int = ranged(10, SHOWN_SEGMENTS)  # most gained, and as many most lost, to be shown
    score_column: int | None = ranged(None, COLUMNS)  # None: the one that the sidecar names
    phi_column: int | None = ranged(None, COLUMNS)  # None: the usual place


def _segment(
    i: int, source: list[bytes], reference: bytes, outputs: Sequence[Derivation], scores: _BleuScores, table: UsedTable
) -> ComparedSegment:
    found = differing_regions(*outputs)
    regions = [region for region in found if not region.recut]
    choices, left = [], Counter[bytes]()
    for system, phrases in enumerate(outputs):
        apart = [phrase for region in regions for phrase in region.phrases[system]]
        left = Counter(words(reference))
        right = take_words([phrase for phrase in phrases if phrase not in apart], left)
        right |= take_words(apart, left.copy())
        of_system = {}
        for phrase in phrases:
            src = source_of(source, phrase)
            pair = table.pairs.get((src, phrase.tgt))
            of_system[phrase] = Choice(src, phrase.tgt, len(phrase.tgt.split()), right[phrase], phrase in apart, pair)
        choices.append(of_system)
    recut = len(found) - len(regions)
    return ComparedSegment(i + 1, source, reference, choices, scores.sentence(i), scores.effect(i), regions, recut, left)


class _BleuScores:
    """BLEU of both systems, by sacrebleu's counts of every segment; tokens are what blanks separate. All text must be UTF-8."""

    def __init__(self, references: Sequence[bytes], outputs: Sequence[Sequence[Derivation]]) -> None:
        self._metric = BLEU(tokenize="none", force=True)
        self._of_sentence = BLEU(tokenize="none", force=True, effective_order=True)  # no orders that it is too short for
        lines = [reference.decode() for reference in references]
        texts = [[text_of(phrases).decode() for phrases in of_system] for of_system in outputs]
        self._counts = [np.array(self._metric._extract_corpus_statistics(text, [lines])) for text in texts]
        self.corpus: list[BLEUScore] = [self._score(counts.sum(0)) for counts in self._counts]

    def _score(self, counts: NDArray[np.int64]) -> Any:
        return self._metric._compute_score_from_stats(counts.tolist())

    def sentence(self, i: int) -> list[float]:
        """Return sentence BLEU of both outputs of a segment."""
        return [self._of_sentence._compute_score_from_stats(counts[i].tolist()).score for counts in self._counts]

    def effect(self, i: int) -> float:
        """Return what the first system's BLEU would gain if this segment alone were the second system's."""
        one, other = self._counts
        moved = self._score(one.sum(0) - one[i] + other[i])
        return float(moved.score - self.corpus[0].score) if (one[i] != other[i]).any() else 0.0


@dataclass
class Comparison:
    """All that was found; pairs of values are those of the two systems."""

    options: WhyOptions
    bleu: list[BLEUScore]
    segments: list[ComparedSegment]
    table: UsedTable
    usage: tuple[Usage, Usage] = field(default_factory=lambda: (Usage(), Usage()))
    changes: Sums = field(default_factory=dict)  # by change: regions; words and right words of one, and of the other
    recut: int = 0  # regions where both have the same words from other phrases
    order_only: int = 0  # segments whose outputs are the same phrases in another order
    best: BestTargets = field(default_factory=BestTargets)
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of the systems."""
        (one, _), (other, _) = self.options.systems
        return one, other

    @property
    def differing(self) -> list[ComparedSegment]:
        """Return the segments whose outputs differ as text."""
        return [segment for segment in self.segments if segment.text(0) != segment.text(1)]

    def count(self, segment: ComparedSegment) -> None:
        """Add a segment to the totals."""
        for usage, of_system in zip(self.usage, segment.choices, strict=True):
            for phrase, choice in of_system.items():
                usage.add(choice, phrase.last - phrase.first + 1, self.table, segment.reference)
        for region in segment.regions:
            choices = [segment.chosen(region, system) for system in (0, 1)]
            figures = [sum(figure) for of in choices for figure in zip(*((c.words, c.right) for c in of), strict=True)]
            for name in changes_of(region, choices, self.table.unknown):
                add_to(self.changes, name, [1, *figures])
            if self.table.score is not None:
                self.best.add(segment, region, self.table.sources)
        self.recut += segment.recut
        self.order_only += not segment.regions and segment.text(0) != segment.text(1)


def compare(options: WhyOptions, on_read: Callable[[int], object] | None = None) -> Comparison:
    """Read everything and compare; ``on_read`` hears of the bytes of the table.

    Raises OptionError for anything but two systems and for a table that is a stream, InputError for files that cannot be read
    or do not go together.
    """
    _check(options)
    table = UsedTable(options.table, options.score_column, options.phi_column)
    sources, references = (
        [words(row.rstrip(b"\r\n")) for row in read_lines(path)] for path in (options.source, options.reference)
    )
    if len(sources) != len(references):
        what = f"{counted(len(references), 'line')} where {display_name(options.source)} has {len(sources):,}"
        raise InputError(display_name(options.reference), what, "the reference has a line for every line of the source")
    outputs = [read_derivations(path, sources, options.source) for _, path in options.systems]
    joined = [b" ".join(reference) for reference in references]
    for line, reference in enumerate(joined, 1):
        if error := not_utf8(reference):
            raise error.at(display_name(options.reference), line)
    scores = _BleuScores(joined, outputs)
    pairs = list(zip(*outputs, strict=True))
    used = ((source, phrase) for source, both in zip(sources, pairs, strict=True) for phrase in chain(*both))
    table.read({(source_of(source, phrase), phrase.tgt) for source, phrase in used}, on_read)
    segments = [_segment(i, sources[i], joined[i], pairs[i], scores, table) for i in range(len(sources))]
    found = Comparison(options, scores.corpus, segments, table)
    for segment in segments:
        found.count(segment)
    found.warnings += _warnings(found)
    return found


def _check(options: WhyOptions) -> None:
    if len(options.systems) != 2:
        found = counted(len(options.systems), "system")
        raise OptionError(f"{found}: name two, the one to compare with first, as baseline=OUT rnn=OUT")
    (one, first), (other, second) = options.systems
    if one == other:
        raise OptionError(f"two systems are called {shown(os.fsencode(one))}; give each a name of its own")
    if is_stream(options.table):
        raise OptionError("--table is read more than once; name a file")
    if [options.source, options.reference, first, second].count("-") > 1:
        raise OptionError("'-', standard input, can be read once; name files for the rest")


def _warnings(found: Comparison) -> Iterator[str]:
    """Yield what makes the figures other than they seem."""
    options, table = found.options, found.table
    missing = sum(usage.missing.total() for usage in found.usage)
    phrases = sum(usage.phrases for usage in found.usage)
    if missing > _FEW * phrases:
        (src, tgt), times = (found.usage[0].missing + found.usage[1].missing).most_common(1)[0]
        row = shown(b" ".join((src, SEPARATOR, tgt)))
        yield (
            f"{options.table} lacks {missing:,} of the {phrases:,} phrases, {row} {times:,} times: "
            "perhaps it is not the table that these systems used, or it was pruned later"
        )
    reference = look([segment.reference.decode() for segment in found.segments])
    for system, (_, path) in enumerate(options.systems):
        if why := mismatch(reference, look([segment.text(system).decode() for segment in found.segments])):
            yield f"{display_name(path)}: {why} ({display_name(options.reference)}); right words then count as wrong ones"
    if table.score is None:
        yield (
            f"{options.table} has no score of a model that could be compared with φ; --score-column N names any other column"
        )
    elif table.columns.guessed and options.score_column is None:
        yield f"{options.table} has no .columns.json; its last two columns look like annotate's and are taken for them"
