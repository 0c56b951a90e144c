import numpy as np
import pytest
from oracle import log_prob
from small_models import encoded, random_pairs, scores_of, small_checkpoint, weights

from phrase_rescore.rnn.scorer import Scorer


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 3, 50])
def test_batches_change_nothing_beyond_rounding(batch):
    scorer, pairs = Scorer(small_checkpoint()), encoded(random_pairs(200))
    whole = scorer.log_probs(pairs)
    scorer.batch = batch
    np.testing.assert_allclose(scorer.log_probs(pairs), whole, atol=1e-5)


def test_next_word_probabilities_sum_to_one():
    """Over all symbols after a prefix: those of every word (UNK included), and that of ending there."""
    checkpoint = small_checkpoint()
    K, prefix = len(checkpoint.tgt_vocab), [3, 1]
    pairs = [([2, 4], [*prefix, word]) for word in range(1, K)] + [([2, 4], prefix)]
    flat, offsets = Scorer(checkpoint).word_log_probs(encoded(pairs))
    after_prefix = [flat[offsets[i] + len(prefix)] for i in range(len(pairs))]
    assert sum(np.exp(after_prefix)) == pytest.approx(1.0, abs=1e-5)


def test_scoring_phrases_as_bytes():
    checkpoint = small_checkpoint()
    got = scores_of(Scorer(checkpoint), [(b"s0 s3", b"t2 nobody knows"), (b"s1", b"t0")])
    expected = [log_prob(weights(checkpoint), *pair) for pair in (([2, 5], [4, 1, 1]), ([3], [2]))]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert scores_of(Scorer(checkpoint), []).shape == (0,)
