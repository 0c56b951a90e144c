"""The features that rescore adds to the entries of an n-best list: scores of models, and numbers of a file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import UNK, misfits
from phrase_rescore.errors import OptionError, RowError, percent, share
from phrase_rescore.files.score_files import ScoreFiles, natural_log
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.moses.hypotheses import Entry, check_cover, of_each
from phrase_rescore.moses.table import check_factors
from phrase_rescore.moses.text import Sentences
from phrase_rescore.nmt import checkpoint as translation
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.nn.storage import BITEXT, PAIRS, TEXT, Config
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.scorer import Scorer

Pair = tuple[bytes, bytes]


def beyond(segment: int, sources: int) -> RowError:
    """Return the error for a segment that the source lacks."""
    return RowError(f"segment {segment}, but the source has {sources:,}", "give the text that was decoded with --source")


@dataclass
class ScorerTally:
    """What a scorer counts."""

    usual: float  # share of the words that were unknown in training
    words: int = 0
    unknown: int = 0  # words that the model does not know
    read: Sentences = field(default_factory=Sentences)

    def lines(self) -> tuple[str, list[str]]:
        """Return a line of the report, and warnings: of many unknown words, and of marks that were left out."""
        warnings = misfits(self.unknown, self.words, self.usual) + self.read.warnings()
        return f"{percent(share(self.unknown, self.words))} unknown words", warnings


class TextFeature:
    """log p of the hypothesis by a language model."""

    def __init__(self, scorer: NgramScorer) -> None:
        self._scorer = scorer
        self.tally = ScorerTally(scorer.lm.unk_share)

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return log p of the hypotheses: (entries, 1)."""
        tally = self.tally
        found = self._scorer.sentences(of_each(entries, name, lambda entry: tally.read.bare(entry.hypothesis())))
        tally.words += len(found.log_probs) - len(entries)
        tally.unknown += int(found.unknown.sum())
        return found.sums()[:, None]


class PairFeature:
    """log p, at least -87.3 of a pair, and the number of unknown words, summed over the phrase pairs of the hypothesis.

    If the model scores ``whole`` sentences, source and hypothesis are the one pair, and log p may be any number.
    """

    def __init__(self, scorer: Scorer, sources: Sequence[Sequence[bytes]], whole: bool) -> None:
        self._scorer, self._sources, self._whole = scorer, sources, whole
        self.tally = ScorerTally(scorer.checkpoint.unk_shares[0 if scorer.checkpoint.inverse else 1])

    def _pairs(self, entry: Entry) -> list[Pair]:
        """Return the phrase pairs of the hypothesis, those without a target left out."""
        if entry.segment >= len(self._sources):
            raise beyond(entry.segment, len(self._sources))
        source = self._sources[entry.segment]
        if self._whole:
            pairs = [(b" ".join(source), b" ".join(entry.hypothesis()))]
            if not all(pairs[0]):
                raise RowError("an empty source or hypothesis", "take the entry out; a model of pairs scores words")
        else:
            derivation = entry.derivation()
            check_cover(derivation, source)
            pairs = [(b" ".join(source[first : last + 1]), tgt) for first, last, tgt in derivation if tgt]
        for src, tgt in pairs:
            check_factors(src, tgt, self._scorer.checkpoint.factors)
        return pairs

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return the sums of log p and of unknown words: (entries, 2)."""
        places: dict[Pair, int] = {}
        which = [[places.setdefault(pair, len(places)) for pair in pairs] for pairs in of_each(entries, name, self._pairs)]
        of_pair = np.zeros((len(places), 2))
        if places:
            if not self.tally.words:  # the first ones, before anything is written
                self._scorer.checkpoint.refuse_swapped(name, [src for src, _ in places], [tgt for _, tgt in places])
            encoded = self._scorer.encode_phrases([src for src, _ in places], [tgt for _, tgt in places])
            of_pair[:, 0] = np.maximum(self._scorer.log_probs(encoded), -np.inf if self._whole else MIN_LOG_P)
            predicted = self._scorer.checkpoint.for_model(encoded).tgt
            of_pair[:, 1] = predicted.counts_of(UNK)
            self.tally.words += len(predicted.ids)
            self.tally.unknown += int(of_pair[:, 1].sum())
        return np.stack([of_pair[pairs].sum(0) for pairs in which])


class SentenceFeature:
    """log p(hypothesis | source) by a translation model."""

    def __init__(self, scorer: SentenceScorer, sources: Sequence[Sequence[bytes]]) -> None:
        self._scorer, self._sources = scorer, sources
        self.tally = ScorerTally(scorer.translation.unk_shares[1])

    def _hypothesis(self, entry: Entry) -> list[bytes]:
        if entry.segment >= len(self._sources):
            raise beyond(entry.segment, len(self._sources))
        return entry.hypothesis()

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return log p of the hypotheses: (entries, 1)."""
        hypotheses, scorer = of_each(entries, name, self._hypothesis), self._scorer
        if not self.tally.words:  # the first ones, before anything is written
            sources = chain.from_iterable(self._sources[segment] for segment in {entry.segment for entry in entries})
            scorer.translation.refuse_swapped(name, sources, chain.from_iterable(hypotheses))
        found, at = [], 0
        for segment, group in groupby(entries, key=lambda entry: entry.segment):
            some = hypotheses[at : at + len(list(group))]
            at += len(some)
            source, targets = scorer.encode([self._sources[segment]], 0), scorer.encode(some, 1)
            self.tally.words += len(targets.ids)
            self.tally.unknown += int(targets.counts_of(UNK).sum())
            found.append(scorer.log_probs(source, targets))
        return np.concatenate(found)[:, None]


class FileFeature:
    """Numbers of a file that has one for every entry: natural logarithms with ``log``, else probabilities."""

    def __init__(self, path: str, log: bool, file: ScoreFiles) -> None:
        self._path, self._log, self._file = path, log, file
        self.tally = None

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return the natural logarithms of the next entries: (entries, 1)."""
        lines = enumerate(self._file.take(len(entries))[0], self._file.taken - len(entries) + 1)
        return np.array([natural_log(self._path, number, line, self._log) for number, line in lines])[:, None]


EntryScorer = TextFeature | PairFeature | SentenceFeature | FileFeature


def load_features(
    models: Sequence[str], labels: Sequence[str], sources: Sequence[Sequence[bytes]] | None, whole: bool, device: str,
    warnings: list[str],
) -> Iterator[tuple[str, EntryScorer]]:  # fmt: skip
    """Load models: a label and the scorer of a feature for each; labels that are not given are CSLM0, …, RNN0, …, NMT0, …

    Raises ModelError, OptionError for a model of pairs without ``sources``.
    """
    bases = {TEXT: "CSLM", PAIRS: "RNN", BITEXT: "NMT"}
    numbers = dict.fromkeys(bases.values(), 0)
    for i, directory in enumerate(models):
        base = bases[kind := Config(directory).model_of()]
        label = labels[i] if i < len(labels) else f"{base}{numbers[base]}"
        numbers[base] += 1
        if kind == TEXT:
            lm = language_model.load(directory)
            warnings += [f"{directory}: {warning}" for warning in language_model.warnings(lm)]
            yield label, TextFeature(NgramScorer(lm, device))
        elif sources is None:
            raise OptionError(f"-m {directory} scores pairs; give the text that was decoded with --source")
        elif kind == BITEXT:
            yield label, SentenceFeature(SentenceScorer(translation.load(directory), device), sources)
        else:
            yield label, PairFeature(Scorer(checkpoint.load(directory), device), sources, whole)
