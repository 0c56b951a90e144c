"""Products x Mᵀ in float32 and bf16, and what scores in bf16 owe to the rows beside them: nothing."""

import numpy as np
from small_models import encoded, random_pairs, small_checkpoint

from phrase_rescore.rnn.scorer import Scorer


def test_scores_in_bf16():
    """Near the exact ones, not equal to them, and whatever else is in the batch."""
    checkpoint, pairs = small_checkpoint(), encoded(random_pairs(200))
    exact, scorer = Scorer(checkpoint).log_probs(pairs), Scorer(checkpoint, precision="bf16")
    found = scorer.log_probs(pairs)
    assert 1e-4 < abs(found - exact).mean() < 0.2
    assert abs(found - exact).max() < 1.0
    order = np.random.default_rng(1).permutation(200)
    again = scorer.log_probs(pairs.take(order))
    assert np.median(abs(again - found[order])) < 1e-5, "now and then a number is rounded the other way"
    np.testing.assert_array_equal(Scorer(checkpoint).log_probs(pairs), exact, "the checkpoint's own weights stay")
