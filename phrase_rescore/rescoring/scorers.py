"""What a model adds to the entries of an n-best list: the values of its feature, natural logs and counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.coverage import too_many_unknown
from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.errors import RowError
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.moses.factors import check_factors
from phrase_rescore.moses.nbest import Entry, of_each
from phrase_rescore.moses.segmentation import check_cover
from phrase_rescore.rnn.scorer import Scorer

Pair = tuple[bytes, bytes]


def beyond(segment: int, sources: int) -> RowError:
    """Return the error of a segment that the source does not have."""
    return RowError(f"segment {segment}, and the source has {sources:,}", "give the text that was decoded with --source")


@dataclass
class ScorerTally:
    """What a scorer counts."""

    usual: float  # share of the words that were unknown in training
    asked: int = 0  # so many scores of n-grams or phrase pairs were needed,
    computed: int = 0  # and so many were computed
    words: int = 0
    unknown: int = 0  # words that the model does not know

    def lines(self) -> tuple[str, str]:
        """Return what is to be said, and a warning of unknown words, empty if they are not many."""
        share, used = self.unknown / max(1, self.words), self.asked / max(1, self.computed)
        unknown = f"{share:.1%} of the words are unknown to the model"
        misfit = f"{unknown}, {self.usual:.1%} in its training: is it of this language?"
        said = f"{unknown}; each score was computed once and used {used:.1f} times"
        return said, misfit if too_many_unknown(share, self.usual) else ""


class TextFeature:
    """log p of the hypothesis by a language model."""

    def __init__(self, scorer: NgramScorer) -> None:
        self._scorer = scorer
        self.tally = ScorerTally(scorer.lm.unk_share)

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return log p of the hypotheses: (entries, 1)."""
        found, tally = self._scorer.sentences(of_each(entries, name, Entry.hypothesis)), self.tally
        tally.asked += len(found.log_probs)
        tally.computed = self._scorer.computed
        tally.words += len(found.log_probs) - len(entries)
        tally.unknown += int(found.unknown.sum())
        return found.sums()[:, None]


class PairFeature:
    """log p and the number of unknown words, summed over the phrase pairs of the hypothesis.

    As in an annotated table log p of a pair is at least -87.3. A word that the decoder passed through is a pair with itself.
    """

    def __init__(self, scorer: Scorer, sources: Sequence[Sequence[bytes]]) -> None:
        self._scorer, self._sources = scorer, sources
        self.tally = ScorerTally(scorer.checkpoint.unk_shares[0 if scorer.checkpoint.inverse else 1])

    def _pairs(self, entry: Entry) -> list[Pair]:
        """Return the phrase pairs of the hypothesis, those without a target left out."""
        if entry.segment >= len(self._sources):
            raise beyond(entry.segment, len(self._sources))
        source, derivation = self._sources[entry.segment], entry.derivation()
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
            encoded = self._scorer.encode_phrases([src for src, _ in places], [tgt for _, tgt in places])
            of_pair[:, 0] = np.maximum(self._scorer.log_probs(encoded), MIN_LOG_P)
            predicted = self._scorer.checkpoint.for_model(encoded).tgt
            of_pair[:, 1] = predicted.counts_of(UNK)
            self.tally.words += len(predicted.ids)
            self.tally.unknown += int(of_pair[:, 1].sum())
        self.tally.asked += sum(map(len, which))
        self.tally.computed += len(places)
        return np.stack([of_pair[pairs].sum(0) for pairs in which])


EntryScorer = TextFeature | PairFeature
