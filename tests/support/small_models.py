"""Small models and pairs for tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import torch

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.lm.checkpoint import save as save_lm
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes
from phrase_rescore.lm.network import initialise as initialise_lm
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nmt.checkpoint import save as save_translation
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes
from phrase_rescore.nmt.network import initialise as initialise_translation
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.scorer import Scorer


def vocabulary(words: int, letter: str = "w") -> Vocabulary:
    return Vocabulary(tuple(f"{letter}{i}".encode() for i in range(words)), tuple(range(words, 0, -1)))


def disturb_weights(model: RNNEncoderDecoder | FeedforwardLM, seed: int, spread: float = 0.5) -> None:
    """Take every weight, every bias included, far from its initial value, so that any slip shows in a score."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in model.named_weights():
            weight.add_(torch.randn(weight.shape, generator=generator) * spread)


def small_checkpoint(
    seed: int = 1, hidden: int = 7, words: int = 10, spread: float = 0.5, dtype=torch.float32, **structure
) -> Checkpoint:
    """A model far from its initial weights. ``structure``: cell, layers, encoder."""
    src, tgt = vocabulary(words, "s"), vocabulary(words + 1, "t")
    model = RNNEncoderDecoder(ModelConfig(len(src), len(tgt), hidden, 5, 4, 3, **structure))
    initialise(model, seed, paper=False)
    disturb_weights(model, seed, spread)
    return Checkpoint(model.to(dtype).requires_grad_(False), src, tgt, (0.1, 0.1), {}, "test")


def weights(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    return {name: weight.numpy() for name, weight in checkpoint.model.named_weights()}


def structure(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the oracle must know of a model beside its weights."""
    return {name: getattr(checkpoint.model.config, name) for name in ("cell", "layers", "encoder")}


def random_pairs(n: int, seed: int = 0, top: int = 5, longest: int = 6) -> list[tuple[list[int], list[int]]]:
    """Pairs of few words, so that prefixes, sources and whole pairs repeat. UNK (id 1) is among them."""
    rng = np.random.default_rng(seed)

    def phrase() -> list[int]:
        return rng.integers(1, top, rng.integers(1, longest)).tolist()

    return [(phrase(), phrase()) for _ in range(n)]


def encoded(pairs) -> EncodedPairs:
    return EncodedPairs(Ragged.of([src for src, _ in pairs]), Ragged.of([tgt for _, tgt in pairs]))


def phrases_of(donor: Checkpoint, n: int = 40) -> list[tuple[bytes, bytes]]:
    """Pairs of the donor's words, a few of them unknown to it."""
    rng = np.random.default_rng(2)
    sides = [(*vocabulary.words, b"unheard-of") for vocabulary in (donor.src_vocab, donor.tgt_vocab)]
    return [tuple(b" ".join(rng.choice(side, rng.integers(1, 5)).tolist()) for side in sides) for _ in range(n)]


def scores_of(scorer: Scorer, pairs: Sequence[tuple[bytes, bytes]]) -> np.ndarray:
    """Log p of source and target phrases, words between single blanks."""
    return scorer.log_probs(scorer.encode_phrases([src for src, _ in pairs], [tgt for _, tgt in pairs]))


def by_the_oracle(checkpoint: Checkpoint, phrases: list[bytes]) -> np.ndarray:
    encoded = [checkpoint.vocabs[0].encode(phrase.split()) for phrase in phrases]
    return np.array([oracle.summary(weights(checkpoint), ids, **structure(checkpoint)) for ids in encoded])


def language_model(
    words: tuple[bytes, ...] = (b"a", b"b", b".", b"the", b"house"), order: int = 4, tied: bool = True
) -> LanguageModel:
    """A language model far from its initial weights."""
    model = FeedforwardLM(LanguageModelSizes(len(words) + 2, order, 4, 5, 4, tied=tied))
    initialise_lm(model, 2, paper=False)
    disturb_weights(model, 3)
    vocab = Vocabulary(words, tuple(range(len(words), 0, -1)))
    return LanguageModel(model.requires_grad_(False), vocab, 0.1, {"steps": 3, "shorten": 0.1})


def small_lm(directory: Path, *words: tuple[bytes, ...]) -> Path:
    """Write that model into a new directory."""
    directory.mkdir()
    save_lm(language_model(*words), str(directory))
    return directory


def small_nmt(directory: Path, source: tuple[bytes, ...], target: tuple[bytes, ...], scale: float = 1) -> Path:
    """Write a translation model into a new directory, its weights multiplied by ``scale``."""
    vocabularies = [Vocabulary(words, tuple(range(len(words), 0, -1))) for words in (source, target)]
    model = TranslationModel(TranslationSizes(*map(len, vocabularies), 4, embedding=4), dropout=0.0)
    initialise_translation(model, 1, np.log(np.full(len(vocabularies[1]), 1 / len(vocabularies[1]))))
    scaled(model, scale)
    directory.mkdir()
    save_translation(Translation(model, *vocabularies, (0.02, 0.02), {}), str(directory))
    return directory


def scaled(model: Any, scale: float) -> None:
    """Multiply all weights: with 1e38, as a training leaves them that diverged."""
    with torch.no_grad():
        for _, weight in model.named_weights():
            weight.mul_(scale)
