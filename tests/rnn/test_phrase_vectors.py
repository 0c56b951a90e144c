"""Embeddings and summaries are those of the model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import by_the_oracle, small_checkpoint, weights

from phrase_rescore.errors import RowError
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.scorer import BATCH, END, UNKNOWN, PhraseEncoder, embedded_words, word_embeddings

ROUNDING = 1e-5


def inverse(forward: Checkpoint) -> Checkpoint:
    """The same network, its source the table's target."""
    return replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True)


def some_phrases(checkpoint: Checkpoint, n: int) -> list[bytes]:
    """Phrases of few words, so that prefixes and whole phrases repeat; some of them are unknown."""
    rng = np.random.default_rng(1)
    some = (*checkpoint.vocabs[0].words[:5], b"unheard-of")
    return [b" ".join(rng.choice(some, rng.integers(1, 7)).tolist()) for _ in range(n)]


@pytest.mark.parametrize("make", [small_checkpoint, lambda: inverse(small_checkpoint())], ids=["forward", "inverse"])
def test_phrase_vectors_are_the_oracle_s(make) -> None:
    checkpoint = make()
    phrases = some_phrases(checkpoint, 200)
    vectors = PhraseEncoder(checkpoint).vectors(phrases)
    assert (vectors.shape, vectors.dtype) == ((200, 7), np.float32)
    np.testing.assert_allclose(vectors, by_the_oracle(checkpoint, phrases), atol=ROUNDING)
    assert len(np.unique(vectors.round(3), axis=0)) == len({p.replace(b"unheard-of", b"?") for p in phrases})


def test_batches_do_not_change_them() -> None:
    checkpoint = small_checkpoint()
    encoder, phrases = PhraseEncoder(checkpoint), some_phrases(checkpoint, 2 * BATCH + 5)
    whole = encoder.vectors(phrases)
    np.testing.assert_array_equal(encoder.vectors(phrases), whole)
    alone = np.concatenate([encoder.vectors([phrase]) for phrase in phrases[:50]])
    np.testing.assert_allclose(alone, whole[:50], atol=ROUNDING)
    turned = encoder.vectors(phrases[::-1])[::-1]
    np.testing.assert_allclose(turned, whole, atol=ROUNDING)


def test_blanks_and_nothing_at_all() -> None:
    encoder = PhraseEncoder(small_checkpoint())
    np.testing.assert_array_equal(encoder.vectors([b" s1\t  s2 "]), encoder.vectors([b"s1 s2"]))
    assert encoder.vectors([]).shape == (0, 7)


def test_factors() -> None:
    whole = small_checkpoint()
    factored = replace(whole, factors=(1, None))
    encoder = PhraseEncoder(factored)
    phrases = [b"a|s1 b|s2|x", b"a|s3"]
    assert list(factored.as_read(phrases)) == [b"s1 s2", b"s3"]
    np.testing.assert_array_equal(encoder.vectors(phrases), PhraseEncoder(whole).vectors([b"s1 s2", b"s3"]))
    with pytest.raises(RowError, match="source word 's1' has no factor 1"):
        encoder.vectors([b"s1"])
    of_target = replace(inverse(whole), factors=(None, 0))
    assert list(of_target.as_read([b"s1|N"])) == [b"s1"], "an inverse model reads the target's factor"


def test_word_embeddings_are_the_rows_of_their_words() -> None:
    forward = small_checkpoint()
    for checkpoint, sides in ((forward, ("source", "target")), (inverse(forward), ("target", "source"))):
        for side, part in zip(sides, ("encoder", "decoder"), strict=True):
            words, vectors = embedded_words(checkpoint, side), word_embeddings(checkpoint, side)
            np.testing.assert_array_equal(vectors, weights(checkpoint)[f"{part}.embedding"])
            assert words[:3] == (END, UNKNOWN, b"s0" if part == "encoder" else b"t0")
            assert len(words) == len(vectors)
    vectors = word_embeddings(forward, "source")
    vectors[:] = 0
    assert forward.model.encoder.embedding.abs().max() > 0, "it is a copy"


@pytest.mark.gpu
def test_a_gpu_reads_as_the_cpu_does() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    checkpoint = small_checkpoint()
    phrases = some_phrases(checkpoint, 300)
    np.testing.assert_allclose(
        PhraseEncoder(checkpoint, "cuda").vectors(phrases), PhraseEncoder(checkpoint).vectors(phrases), atol=ROUNDING
    )
