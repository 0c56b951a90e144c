"""The features of rescore that are scores of models."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from phrase_rescore.data.log_probs import diverged
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.vocabulary import SIDES, UNK, factor_counts, fit_warnings, misfits, refuse_swapped, refuse_target
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.moses.hypotheses import Entry, check_cover, map_entries
from phrase_rescore.moses.table import check_factors
from phrase_rescore.moses.text import Sentences
from phrase_rescore.nmt import checkpoint as translation
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.nn.storage import BITEXT, TEXT, Config
from phrase_rescore.rescoring.features import Values
from phrase_rescore.rescoring.sources import Texts, source_of
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.runtime import in_threads

Pair = tuple[bytes, bytes]


@dataclass
class WordCounts:
    """The words that a model was asked for, how many of them it does not know, and which share was unknown in training."""

    usual: float
    words: int = 0
    unknown: int = 0
    log_p: float = 0.0

    def add(self, words: int, unknown: int, log_p: float) -> None:
        self.words += words
        self.unknown += unknown
        self.log_p += log_p

    def warnings(self) -> list[str]:
        return misfits(self.unknown, self.words, self.usual) or diverged(self.log_p, self.words)


class TextFeature:
    """log p of the hypothesis by a language model."""

    LABEL = "CSLM"

    def __init__(self, scorer: NgramScorer) -> None:
        self._scorer, self._sentences = scorer, Sentences()
        self.counts = WordCounts(scorer.lm.unk_share)

    def values(self, entries: Sequence[Entry], name: str) -> Values:
        """Return log p of the hypotheses: (entries, 1)."""
        hypotheses = map_entries(entries, name, lambda entry: self._sentences.bare(entry.hypothesis()))
        scored = self._scorer.sentences(hypotheses)
        log_p = scored.sums()
        self.counts.add(len(scored.log_probs) - len(entries), int(scored.unknown.sum()), log_p.sum())  # </s> is no word
        return log_p[:, None]

    def check_source(self, seen: Counter[bytes], name: str) -> list[str]:
        """Return nothing: it reads no source."""
        return []

    def warnings(self) -> list[str]:
        """Return warnings of the model, of many unknown words, and of marks that were left out."""
        return language_model.warnings(self._scorer.lm) + self.counts.warnings() + self._sentences.warnings()


class PairFeature:
    """log p, at least -87.3 of a pair, and the number of unknown words, summed over the phrase pairs of the hypothesis."""

    LABEL = "RNN"

    def __init__(self, scorer: Scorer, sources: Texts, threads: int = 1) -> None:
        self._scorer, self._sources, self._threads = scorer, sources, threads
        self.counts = WordCounts(scorer.checkpoint.unk_shares[1])
        self.warnings = self.counts.warnings

    def check_source(self, seen: Counter[bytes], name: str) -> list[str]:
        """Return a warning if too many of the source's words are unknown. Raises InputError for a text of the target."""
        model = self._scorer.checkpoint
        with suppress(RowError):  # of a word without the factor, whose entry says so
            return _misfits_of_source(factor_counts(seen, model.factors[0], SIDES[0]), name, model)
        return []

    def values(self, entries: Sequence[Entry], name: str) -> Values:
        """Return the sums of log p and of unknown words: (entries, 2)."""
        of_entries = map_entries(entries, name, self._pairs)
        rows: dict[Pair, int] = {}  # of each different pair, in what is scored: the entries of a segment share most pairs
        for pairs in of_entries:
            for pair in pairs:
                rows.setdefault(pair, len(rows))
        scores = self._scores(list(rows), name)
        return np.stack([scores[[rows[pair] for pair in pairs]].sum(0) for pairs in of_entries])

    def _pairs(self, entry: Entry) -> list[Pair]:
        """Return the phrase pairs of the hypothesis, those without a target left out."""
        source = source_of(entry, self._sources)
        derivation = entry.derivation()
        check_cover(derivation, source)
        pairs = [(b" ".join(source[first : last + 1]), tgt) for first, last, tgt in derivation if tgt]
        for src, tgt in pairs:
            check_factors(src, tgt, self._scorer.checkpoint.factors)
        return pairs

    def _scores(self, pairs: Sequence[Pair], name: str) -> Values:
        """Return log p and unknown words of each pair: (pairs, 2)."""
        if not pairs:
            return np.zeros((0, 2))
        src, tgt = zip(*pairs, strict=True)
        model = self._scorer.checkpoint
        if not self.counts.words:  # the first ones, before anything is written
            model.refuse_swapped(name, src, tgt)
        encoded = self._scorer.encode_phrases(src, tgt)
        batch = self._scorer.batch
        parts = [encoded.take(np.arange(start, min(start + batch, len(encoded)))) for start in range(0, len(encoded), batch)]
        log_probs = np.concatenate(in_threads(self._scorer.log_probs, parts, self._threads))
        log_probs = np.where(np.isfinite(log_probs), np.maximum(log_probs, MIN_LOG_P), np.nan)
        unknown = model.for_model(encoded).tgt.counts_of(UNK)
        self.counts.add(len(encoded.tgt.ids), int(encoded.tgt.counts_of(UNK).sum()), log_probs.sum())
        return np.stack([log_probs, unknown], axis=1)


class SentenceFeature:
    """log p(hypothesis | source) by a translation model."""

    LABEL = "NMT"

    def __init__(self, scorer: SentenceScorer, sources: Texts) -> None:
        self._scorer, self._sources, self._sentences = scorer, sources, Sentences()
        self.counts = WordCounts(scorer.translation.unk_shares[1])

    def check_source(self, seen: Counter[bytes], name: str) -> list[str]:
        """Return a warning if too many of the source's words are unknown. Raises InputError for a text of the target."""
        return _misfits_of_source(seen, name, self._scorer.translation)

    def values(self, entries: Sequence[Entry], name: str) -> Values:
        """Return log p of the hypotheses: (entries, 1)."""
        sources = map_entries(entries, name, lambda entry: source_of(entry, self._sources))
        hypotheses = map_entries(entries, name, lambda entry: self._sentences.bare(entry.hypothesis()))
        segments = [entry.segment for entry in entries]
        if not self.counts.words:  # the first ones, before anything is written
            of_segments = dict(zip(segments, sources, strict=True)).values()
            src, tgt = (Counter(chain.from_iterable(texts)) for texts in (of_segments, hypotheses))
            model = self._scorer.translation
            refuse_swapped(name, (src, tgt), (model.src_vocab, model.tgt_vocab))
        _, first, which = np.unique(segments, return_index=True, return_inverse=True)  # each source is looked up once
        encoded = self._scorer.encode([sources[i] for i in first], 0).take(which)
        pairs = EncodedPairs(encoded, self._scorer.encode(hypotheses, 1))
        log_p = self._scorer.log_probs(pairs)
        self.counts.add(len(pairs.tgt.ids), int(pairs.tgt.counts_of(UNK).sum()), log_p.sum())
        return log_p[:, None]

    def warnings(self) -> list[str]:
        """Return warnings of many unknown words, and of marks that were left out."""
        return self.counts.warnings() + self._sentences.warnings()


def _misfits_of_source(seen: Counter[bytes], name: str, model: checkpoint.Checkpoint | translation.Translation) -> list[str]:
    """Return the warnings of ``check_source`` by the words that a model reads."""
    vocabs = model.src_vocab, model.tgt_vocab
    refuse_target(name, seen, vocabs)
    return list(fit_warnings((seen, Counter()), vocabs, model.unk_shares))


ModelFeature = TextFeature | PairFeature | SentenceFeature


def load_model(directory: str, sources: Texts | None, device: str, threads: int) -> ModelFeature:
    """Load a model as a feature that computes on so many cores. Raises ModelError, and OptionError if it needs the source."""
    kind = Config(directory).model_of()
    if kind == TEXT:
        return TextFeature(NgramScorer(language_model.load(directory), device, threads))
    if sources is None:
        raise OptionError(f"-m {directory} scores pairs; give the text that was decoded with --source")
    if kind == BITEXT:
        return SentenceFeature(SentenceScorer(translation.load(directory), device, threads), sources)
    return PairFeature(Scorer(checkpoint.load(directory), device), sources, threads)
