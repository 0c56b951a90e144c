import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_models import language_model, scaled

from phrase_rescore.errors import ModelError
from phrase_rescore.lm import scorer as ngram_scorer
from phrase_rescore.lm.network import Ngrams
from phrase_rescore.lm.scorer import NgramScorer, TextModel

LM = language_model(tuple(b"abcdefg"[i : i + 1] for i in range(7)))
ROWS = st.tuples(*[st.integers(0, 9)] * 3, st.integers(0, 8))  # a context, in which words may be missing, and a word


def one_by_one(ngrams: Ngrams) -> list[float]:
    found = []
    for context, word in zip(ngrams.contexts, ngrams.words, strict=True):
        logits = (LM.model.hidden(torch.tensor(context[None])) @ LM.model.G.T + LM.model.b_G)[0].double()
        found.append((logits[word] - torch.logsumexp(logits, 0)).item())
    return found


@settings(deadline=None)
@example([(0, 0, 0, 0), (7, 6, 8, 1)], 2)  # -11.8, which float32 rounds to a millionth
@given(st.lists(ROWS, min_size=1, max_size=40), st.integers(1, 7))
def test_sharing_changes_nothing(rows, contexts):
    array = np.array(rows, np.int64)
    ngrams = Ngrams(array[:, :3], array[:, 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_scorer, "CONTEXTS", contexts)
        patch.setattr(ngram_scorer, "PAIRS", 2)
        found = NgramScorer(LM).log_probs(ngrams)
    expected = one_by_one(ngrams)
    assert found == pytest.approx(expected, abs=2e-6, rel=5e-7)  # float32: four units of the last place


def test_scores_that_are_not_finite_are_no_scores():
    lm = language_model()
    scaled(lm.model, 1e38)
    with pytest.raises(ModelError, match="not finite.*--learning-rate"):
        TextModel(lm).score(["a b"])


def test_memory_is_bounded(monkeypatch):
    """However many contexts there are, and words after each."""
    sizes, place = [], NgramScorer._on_device
    monkeypatch.setattr(ngram_scorer, "CONTEXTS", 5)
    monkeypatch.setattr(ngram_scorer, "PAIRS", 3)
    monkeypatch.setattr(NgramScorer, "_on_device", lambda scorer, ids: sizes.append(len(ids)) or place(scorer, ids))
    contexts = np.repeat(np.random.default_rng(1).integers(0, 9, (20, 3)), 9, 0)
    assert len(NgramScorer(LM).log_probs(Ngrams(contexts, np.tile(np.arange(9), 20)))) == 180
    assert max(sizes) == 5, "the words of five contexts are scored three at a time"
