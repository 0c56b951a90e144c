"""The features that rescore adds to the entries of an n-best list: scores of models, and numbers of a file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import UNK, misfits, refuse_swapped
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.files.score_files import ScoreFiles, natural_log
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.messages import percent, share
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.moses.hypotheses import Entry, check_cover, of_each
from phrase_rescore.moses.table import check_factors
from phrase_rescore.moses.text import Sentences
from phrase_rescore.nmt import checkpoint as translation
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.nn.storage import BITEXT, TEXT, Config
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.scorer import Scorer

Pair = tuple[bytes, bytes]
Texts = Sequence[Sequence[bytes]]  # lines, in words


def source_of(entry: Entry, sources: Texts) -> Sequence[bytes]:
    """Return the source of an entry. Raises RowError if there is none."""
    if entry.segment >= len(sources):
        found = f"segment {entry.segment}, but the source has {len(sources):,}"
        raise RowError(found, "give the text that was decoded with --source")
    return sources[entry.segment]


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

    def __init__(self, scorer: Scorer, sources: Texts, whole: bool) -> None:
        self._scorer, self._sources, self._whole = scorer, sources, whole
        self.tally = ScorerTally(scorer.checkpoint.unk_shares[0 if scorer.checkpoint.inverse else 1])

    def _pairs(self, entry: Entry) -> list[Pair]:
        """Return the phrase pairs of the hypothesis, those without a target left out."""
        source = source_of(entry, self._sources)
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
        of_pair, known = np.zeros((len(places), 2)), self._scorer.checkpoint
        if places:
            src, tgt = zip(*places, strict=True)
            if not self.tally.words:  # the first ones, before anything is written
                known.refuse_swapped(name, src, tgt)
            encoded = self._scorer.encode_phrases(src, tgt)
            of_pair[:, 0] = np.maximum(self._scorer.log_probs(encoded), -np.inf if self._whole else MIN_LOG_P)
            predicted = known.for_model(encoded).tgt
            of_pair[:, 1] = predicted.counts_of(UNK)
            self.tally.words += len(predicted.ids)
            self.tally.unknown += int(of_pair[:, 1].sum())
        return np.stack([of_pair[pairs].sum(0) for pairs in which])


class SentenceFeature:
    """log p(hypothesis | source) by a translation model."""

    def __init__(self, scorer: SentenceScorer, sources: Texts) -> None:
        self._scorer, self._sources = scorer, sources
        self.tally = ScorerTally(scorer.translation.unk_shares[1])

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return log p of the hypotheses: (entries, 1)."""
        sources, known, encode = self._sources, self._scorer.translation, self._scorer.encode
        pairs = of_each(entries, name, lambda entry: (source_of(entry, sources), entry.hypothesis()))
        if not self.tally.words:  # the first ones, before anything is written
            src = Counter(chain.from_iterable(sources[segment] for segment in {entry.segment for entry in entries}))
            tgt = Counter(chain.from_iterable(hypothesis for _, hypothesis in pairs))
            refuse_swapped(name, (src, tgt), (known.src_vocab, known.tgt_vocab))
        found = []
        for _, group in groupby(zip(entries, pairs, strict=True), key=lambda item: item[0].segment):
            of_segment = [pair for _, pair in group]
            targets = encode([hypothesis for _, hypothesis in of_segment], 1)
            self.tally.words += len(targets.ids)
            self.tally.unknown += int(targets.counts_of(UNK).sum())
            found.append(self._scorer.log_probs(encode([of_segment[0][0]], 0), targets))
        return np.concatenate(found)[:, None]


class FileFeature:
    """Numbers of a file that has one for every entry: natural logarithms with ``log``, else probabilities."""

    def __init__(self, path: str, nbest: str, log: bool) -> None:
        self._path, self._log, self.tally = path, log, None
        self.file = ScoreFiles([path], nbest, "entries")

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return the natural logarithms of the next entries: (entries, 1)."""
        lines = enumerate(self.file.take(len(entries))[0], self.file.taken - len(entries) + 1)
        return np.array([natural_log(self._path, number, line, self._log) for number, line in lines])[:, None]


EntryScorer = TextFeature | PairFeature | SentenceFeature | FileFeature


def load_models(
    models: Sequence[str], sources: Texts | None, whole: bool, device: str, warnings: list[str]
) -> Iterator[tuple[str, str, EntryScorer]]:
    """Yield of each model its option, how its usual label begins, and its scorer. Raises ModelError, OptionError."""
    for directory in models:
        option, kind = f"-m {directory}", Config(directory).model_of()
        if kind == TEXT:
            lm = language_model.load(directory)
            warnings += [f"{directory}: {warning}" for warning in language_model.warnings(lm)]
            yield option, "CSLM", TextFeature(NgramScorer(lm, device))
        elif sources is None:
            raise OptionError(f"{option} scores pairs; give the text that was decoded with --source")
        elif kind == BITEXT:
            yield option, "NMT", SentenceFeature(SentenceScorer(translation.load(directory), device), sources)
        else:
            yield option, "RNN", PairFeature(Scorer(checkpoint.load(directory), device), sources, whole)
