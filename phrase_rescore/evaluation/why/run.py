"""Two systems' outputs on one source, phrase by phrase, beside the table that both used."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sacrebleu.metrics.bleu import BLEU, BLEUScore

from phrase_rescore.errors import InputError, OptionError, counted, shown
from phrase_rescore.evaluation.why.regions import Region, differing_regions, occurs, take_words
from phrase_rescore.evaluation.why.table import Lookup, find_columns, read_table
from phrase_rescore.evaluation.why.totals import Best, Change, Usage, add_region
from phrase_rescore.files.blocks import read_rows
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.files.paths import is_stream
from phrase_rescore.moses.segmentation import Derivation, UsedPhrase, not_utf8, read_derivations
from phrase_rescore.moses.table import SEPARATOR, words
from phrase_rescore.moses.text import look, mismatch
from phrase_rescore.pages.theme import altair
from phrase_rescore.ranges import COLUMNS, SHOWN_SEGMENTS, Checked, ranged

_FEW = 0.001  # of the phrases may be missing from the table without a word: those that were pruned, say


@dataclass(frozen=True)
class Options(Checked):
    """What is asked for; of the two systems (name, output) the second is the one that is asked about."""

    source: str
    reference: str
    table: str
    systems: tuple[tuple[str, str], ...]
    segments: int = ranged(10, SHOWN_SEGMENTS)  # most gained, and as many most lost, to be shown
    score_column: int | None = ranged(None, COLUMNS)  # None: the one that the sidecar names
    phi_column: int | None = ranged(None, COLUMNS)  # None: the usual place
    out: str | None = None  # the page; None: none is wanted
    command: str = ""  # the line that asked, for the page


@dataclass(frozen=True)
class Segment:
    """A line of the source, what both systems make of it, and where they differ."""

    number: int  # from 1
    source: list[bytes]
    reference: bytes
    outputs: tuple[Derivation, Derivation]
    bleu: tuple[float, float]  # sentence BLEU
    effect: float  # on the first system's corpus BLEU, if this segment alone were the second system's
    regions: list[Region]  # those whose words differ
    recut: int  # regions where both have the same words from other phrases
    right: tuple[dict[UsedPhrase, int], dict[UsedPhrase, int]]  # how many words of each phrase the reference has
    left: Counter[bytes]  # the words of the reference that the phrases outside of the regions have left

    def has(self, phrase: bytes) -> bool:
        """Tell whether a phrase stands in the reference, of words that are left."""
        return occurs(phrase, self.reference) and Counter(words(phrase)) <= self.left

    def text(self, system: int) -> bytes:
        """Return a system's output, single blanks between words."""
        return output_text(self.outputs[system])


def output_text(phrases: Derivation) -> bytes:
    """Join the target phrases of an output."""
    return b" ".join(phrase.tgt for phrase in phrases if phrase.tgt)


@dataclass
class Comparison:
    """All that was found; pairs of values are those of the two systems."""

    options: Options
    bleu: tuple[BLEUScore, BLEUScore]
    segments: list[Segment]
    lookup: Lookup
    usage: tuple[Usage, Usage]
    changes: dict[str, Change] = field(default_factory=dict)  # by the names in CHANGES, and all
    recut: int = 0  # regions where both have the same words from other phrases
    order_only: int = 0  # segments whose outputs are the same phrases in another order
    best: Best = field(default_factory=Best)
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of the systems."""
        (one, _), (other, _) = self.options.systems
        return one, other

    @property
    def differing(self) -> list[Segment]:
        """Return the segments whose outputs differ as text."""
        return [segment for segment in self.segments if segment.text(0) != segment.text(1)]


def _check(options: Options) -> None:
    """Raise OptionError for anything but two systems, and for one input read twice."""
    if len(options.systems) != 2:
        found = counted(len(options.systems), "system")
        raise OptionError(f"{found}: name two, the one to compare with first, as baseline=OUT rnn=OUT")
    (one, _), (other, _) = options.systems
    if one == other:
        raise OptionError(f"two systems are called {shown(os.fsencode(one))}; give each a name of its own")
    if is_stream(options.table):
        raise OptionError("--table is read more than once; name a file")
    if [options.source, options.reference, *(path for _, path in options.systems)].count("-") > 1:
        raise OptionError("'-', standard input, can be read once; name files for the rest")
    if options.out is not None:
        altair("why")


def compare(options: Options, on_read: Callable[[int], object] | None = None) -> Comparison:
    """Read everything and compare; ``on_read`` hears of the bytes of the table.

    Raises OptionError as ``_check``, InputError for files that cannot be read or do not go together.
    """
    _check(options)
    columns = find_columns(options.table, options.score_column, options.phi_column)
    sources, references = _lines(options.source), _lines(options.reference)
    if len(sources) != len(references):
        what = f"{counted(len(references), 'line')} where {display_name(options.source)} has {len(sources):,}"
        raise InputError(display_name(options.reference), what, "the reference has a line for every line of the source")
    outputs = [read_derivations(path, sources, options.source) for _, path in options.systems]
    pairs = list(zip(*outputs, strict=True))
    joined = [b" ".join(reference) for reference in references]
    for line, reference in enumerate(joined, 1):
        if error := not_utf8(reference):
            raise error.at(display_name(options.reference), line)
    scores = _Scores(joined, pairs)
    wanted = {
        (b" ".join(source[phrase.first : phrase.last + 1]), phrase.tgt)
        for source, both in zip(sources, pairs, strict=True) for phrases in both for phrase in phrases
    }  # fmt: skip
    lookup = read_table(options.table, columns, wanted, on_read)
    segments = [_segment(i, sources[i], joined[i], pairs[i], scores) for i in range(len(sources))]
    found = Comparison(options, scores.corpus, segments, lookup, (Usage(), Usage()))
    for segment in segments:
        _count(found, segment)
    found.warnings += _warnings(found)
    return found


def _segment(i: int, source: list[bytes], reference: bytes, outputs: tuple[Derivation, Derivation], scores: _Scores) -> Segment:
    found = differing_regions(*outputs)
    regions = [region for region in found if not region.recut]
    recut = len(found) - len(regions)
    apart = [[phrase for region in regions for phrase in region.phrases[system]] for system in (0, 1)]
    right, left = [], Counter[bytes]()
    for phrases, its in zip(outputs, apart, strict=True):
        left = Counter(words(reference))
        agreed = take_words([phrase for phrase in phrases if phrase not in its], left)
        right.append(agreed | take_words(its, left.copy()))
    bleu, effect = scores.sentence(i), scores.effect(i)
    return Segment(i + 1, source, reference, outputs, bleu, effect, regions, recut, (right[0], right[1]), left)


def _lines(path: str) -> list[list[bytes]]:
    """Read the words of every line. Raises InputError for an empty file."""
    with open_input(path) as stream:
        lines = [words(row.rstrip(b"\r\n")) for row in read_rows(stream)]
    if not lines:
        raise InputError(display_name(path), "an empty file", "a line for every segment is needed")
    return lines


class _Scores:
    """BLEU of both systems, by the counts of every segment; tokens are what blanks separate. All text must be UTF-8."""

    def __init__(self, references: Sequence[bytes], pairs: Sequence[tuple[Derivation, Derivation]]) -> None:
        metric = BLEU(tokenize="none", force=True, effective_order=True)
        self._counts: list[list[list[int]]] = [[], []]  # of both systems: for each segment right n-grams, n-grams, lengths
        for reference, both in zip(references, pairs, strict=True):
            for counts, phrases in zip(self._counts, both, strict=True):
                score = metric.sentence_score(output_text(phrases).decode(), [reference.decode()])
                counts.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
        self._totals = [[sum(column) for column in zip(*counts, strict=True)] for counts in self._counts]
        self.corpus = (_bleu(self._totals[0]), _bleu(self._totals[1]))

    def sentence(self, i: int) -> tuple[float, float]:
        one, other = (_bleu(counts[i], sentence=True).score for counts in self._counts)
        return one, other

    def effect(self, i: int) -> float:
        one, other = (counts[i] for counts in self._counts)
        if one == other:
            return 0.0
        moved = [total - a + b for total, a, b in zip(self._totals[0], one, other, strict=True)]
        return float(_bleu(moved).score - self.corpus[0].score)


def _bleu(counts: Sequence[int], sentence: bool = False) -> Any:
    """Compute BLEU of summed counts as sacrebleu does for a corpus, or for a sentence (no orders that it is too short for)."""
    order = (len(counts) - 2) // 2
    return BLEU.compute_bleu(
        list(counts[:order]), list(counts[order:-2]), counts[-2], counts[-1], smooth_method="exp", effective_order=sentence
    )


def _count(found: Comparison, segment: Segment) -> None:
    """Add a segment to the totals."""
    for system, usage in enumerate(found.usage):
        differing = {phrase for region in segment.regions for phrase in region.phrases[system]}
        for phrase in segment.outputs[system]:
            its = segment.right[system][phrase] if phrase in differing else None
            usage.add(segment.source, phrase, found.lookup, its, segment.reference)
    found.recut += segment.recut
    for region in segment.regions:
        add_region(found.changes, region, segment.source, found.lookup, segment.right)
        if found.lookup.columns.score is not None:
            found.best.add(segment.source, region, found.lookup, segment.has)
    found.order_only += not segment.regions and segment.text(0) != segment.text(1)


def _warnings(found: Comparison) -> Iterator[str]:
    """Yield what makes the figures other than they seem."""
    options = found.options
    missing = sum(usage.missing.total() for usage in found.usage)
    phrases = sum(usage.all.phrases for usage in found.usage)
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
    if found.lookup.columns.score is None:
        yield (
            f"{options.table} has no score of a model that could be compared with φ; --score-column N names any other column"
        )
    elif found.lookup.columns.all.guessed and options.score_column is None:
        yield f"{options.table} has no .columns.json; its last two columns look like annotate's and are taken for them"
