"""The language model against loops in NumPy, float64, written from the equations."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import disturb_weights

from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, initialise
from phrase_rescore.nn.storage import numbers_of

SIZES = LanguageModelSizes(vocabulary=11, order=4, embedding=4, hidden=5, output=4)


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def model(request: pytest.FixtureRequest) -> FeedforwardLM:
    made = FeedforwardLM(replace(SIZES, tied=request.param))
    initialise(made, 1, paper=False, unigram=[-i / 4 for i in range(11)])
    disturb_weights(made, 2, 0.3)
    return made


def log_probs(model: FeedforwardLM, context: list[int]) -> tuple[list[float], float]:
    """Return log p of every word after a context, and log Z."""
    w = {name: weight.detach().double().numpy() for name, weight in model.named_weights()}
    w.setdefault("G", w["embedding"])  # of a tied model
    E = SIZES.embedding
    h_1 = w["b_1"].copy()
    for j in range(1, SIZES.order):  # the word j places before the next one
        e = w["embedding"][context[-j]]
        U_j = w["U"][:, (SIZES.order - 1 - j) * E : (SIZES.order - j) * E]
        for i in range(SIZES.hidden):
            h_1[i] += sum(U_j[i, k] * e[k] for k in range(E))
    h_1 = [max(0.0, x) for x in h_1]
    h_2 = [max(0.0, w["b_2"][i] + sum(w["W"][i, k] * h_1[k] for k in range(SIZES.hidden))) for i in range(SIZES.output)]
    logits = [w["b_G"][i] + sum(w["G"][i, k] * h_2[k] for k in range(SIZES.output)) for i in range(SIZES.vocabulary)]
    log_z = math.log(sum(map(math.exp, logits)))
    return [x - log_z for x in logits], log_z


def some_ngrams(n: int) -> tuple[list[list[int]], list[int]]:
    rng = np.random.default_rng(5)
    return rng.integers(0, SIZES.vocabulary + 1, (n, SIZES.order - 1)).tolist(), rng.integers(0, SIZES.vocabulary, n).tolist()


def test_it_computes_its_equations(model):
    contexts, words = some_ngrams(30)
    expected = [log_probs(model, context)[0][word] for context, word in zip(contexts, words, strict=True)]
    for i in range(30):
        found = -model(torch.tensor(contexts[i : i + 1]), torch.tensor(words[i : i + 1])).item()
        assert found == pytest.approx(expected[i], abs=2e-6)
    assert -model(torch.tensor(contexts), torch.tensor(words)).item() == pytest.approx(sum(expected), abs=1e-4)


def test_dropout_multiplies_embeddings_and_both_layers(model):
    contexts, _ = some_ngrams(8)
    generator = torch.Generator().manual_seed(1)
    keep = [torch.rand((8, width), generator=generator) for width in (3 * SIZES.embedding, SIZES.hidden, SIZES.output)]
    w = dict(model.named_weights())
    x = w["embedding"][torch.tensor(contexts)].flatten(1) * keep[0]
    h_1 = (x @ w["U"].T + w["b_1"]).clamp(min=0) * keep[1]
    h_2 = (h_1 @ w["W"].T + w["b_2"]).clamp(min=0) * keep[2]
    kept = iter(keep)
    assert torch.allclose(model.hidden(torch.tensor(contexts), lambda x: x * next(kept)), h_2, atol=1e-6)


def test_the_paper_s_parameter_count(model):
    assert numbers_of(model) == sum(weight.numel() for _, weight in model.named_weights())
    with torch.device("meta"):  # section 4.1.1: 7-grams, 512 dimensions, layers of 1,536 and 1,024
        paper = FeedforwardLM(LanguageModelSizes(10_000, 7, 512, 1536, 1024))
    assert numbers_of(paper) == 10_001 * 512 + 3072 * 1536 + 1536 + 1536 * 1024 + 1024 + 1024 * 10_000 + 10_000


def test_initial_weights_follow_the_seed_alone():
    a, b, c = (FeedforwardLM(SIZES) for _ in range(3))
    for made, seed in ((a, 7), (b, 7), (c, 8)):
        initialise(made, seed, paper=True)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.U, c.U)
    assert a.U.abs().max() <= 0.01
    assert a.U.abs().max() > 0.008
    assert not a.b_G.any()
