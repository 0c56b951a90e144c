import numpy as np
import pytest
import torch

from phrase_rescore.lm.config import Regularization
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, initialise, ngrams_at
from phrase_rescore.lm.train import NgramTask, centre, held_out_figures
from phrase_rescore.nn.dropout import dropout

SIZES = LanguageModelSizes(vocabulary=7, order=3, embedding=4, hidden=8, output=6)
TEXT = np.array([2, 3, 4, 0, 5, 0, 2, 3, 4, 6, 0] * 20, np.int32)


def small(seed: int = 1, sizes: LanguageModelSizes = SIZES) -> FeedforwardLM:
    model = FeedforwardLM(sizes)
    initialise(model, seed, paper=False)
    return model


def task(model=None, text=TEXT, held_out=TEXT[:11], batch_size=16, seed=1, **more) -> NgramTask:
    regularization = Regularization(**{"dropout": 0.0, "shorten": 0.0, "self_normalize": 0.0, **more})
    return NgramTask(model or small(), text, held_out, batch_size, seed, "cpu", regularization)


def test_shortened_contexts_lose_their_oldest_words():
    sizes = LanguageModelSizes(7, 6, 4, 8, 6)
    batches = task(small(sizes=sizes), batch_size=1000, shorten=0.5).batches()
    contexts = np.concatenate([next(batches).contexts for _ in range(20)])
    lost = contexts == sizes.missing
    assert (lost[:, 1:] <= lost[:, :-1]).all()  # only from the left
    by_number = np.bincount(lost.sum(1), minlength=6) / len(contexts)
    assert by_number[0] == pytest.approx(0.5, abs=0.05)
    assert by_number[1:] == pytest.approx(0.1, abs=0.03)
    assert len(set(map(bytes, lost.reshape(20, -1)))) == 20  # others in each minibatch
    assert (next(task(batch_size=100).batches()).contexts != SIZES.missing).all()


def test_parts_make_up_the_minibatch():
    the_task = task(batch_size=13)
    batches = the_task.batches()
    batch, following = next(batches), next(batches)
    assert len({part.draw for some in (batch, following) for part in the_task.parts(some, 3)}) == 6  # what is dropped
    for parts in (1, 2, 5, 13):
        found = the_task.parts(batch, parts)
        assert [len(part) for part in found] == [len(part) for part in found if len(part)]
        assert np.array_equal(np.concatenate([part.words for part in found]), batch.words)
    whole = the_task.loss(the_task.module, batch).item()
    by_part = [the_task.loss(the_task.module, part).item() for part in the_task.parts(batch, 3)]
    assert sum(by_part) == pytest.approx(whole, rel=1e-5)


def test_dropout_leaves_out_its_share_and_keeps_the_mean():
    keep = dropout(0.25, (1, 2), "cpu")(torch.ones(16, 800))
    assert keep.mean().item() == pytest.approx(1.0, abs=0.05)
    assert keep.unique().tolist() == pytest.approx([0.0, 1 / 0.75])


def test_what_is_measured_has_neither_dropout_nor_penalty(monkeypatch):
    the_task = task(dropout=0.5, self_normalize=1.0, shorten=0.5)
    found = the_task.evaluate()
    ngrams = ngrams_at(TEXT[:11], np.arange(11), 3)
    logits = the_task.module.hidden(torch.tensor(ngrams.contexts)) @ the_task.module.G.T + the_task.module.b_G
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(ngrams.words)).item()
    assert found["loss"] == pytest.approx(expected, abs=1e-6)
    assert found["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
    monkeypatch.setattr("phrase_rescore.lm.train._EVALUATED", 4)
    assert held_out_figures(the_task.module, TEXT[:11])["loss"] == pytest.approx(expected, abs=1e-6)
    without = task(held_out=TEXT[:0])
    assert without.evaluate() is None
    for some in (the_task, without):
        assert abs(centre(some)["mean"]) > 0.1
        assert centre(some)["mean"] == pytest.approx(0, abs=1e-6)
