"""The feed-forward language model of the paper's CSLM rows (Cho et al. 2014, section 4.1.1; Schwenk 2007; Vaswani et al. 2013).

An n-gram model p(w_t | w_{t-n+1} … w_{t-1}) of two rectified layers. With r(x) = max(0, x):

    h_1 = r(Σ_j U_j e(w_{t-j}) + b_1),  j = 1 … n - 1      U_j (H, E), one matrix a position
    h_2 = r(W h_1 + b_2)                                    W (R, H)
    p(w) = softmax_w(G h_2 + b_G)                           G (K, R)

It is the structure of an NPLM model (``lm.nplm``). EOS is also the word before the first one of a sentence, and fills a
context from there backwards. One more id, K, stands for a word that a context lacks: the model is then one of lower order.
In a tied model the rows of G are the embeddings (Press and Wolf 2017; Inan et al. 2017).

Sizes: n the order, E embedding, H hidden units, R output embedding, K words. Log-probabilities are natural logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.nn.dropout import Drop
from phrase_rescore.nn.linear import gathered_gradients, times
from phrase_rescore.nn.softmax import cross_entropy


@dataclass(frozen=True)
class Ngrams:
    """N-grams of word ids, and the seed of their dropout."""

    contexts: NDArray[np.int64]  # (m, order - 1), the oldest word first
    words: NDArray[np.int64]  # (m,)
    draw: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.words)


def ngrams_at(ids: NDArray[np.int32], places: NDArray[np.int64], order: int) -> Ngrams:
    """Cut the n-grams that end at these places of a text, whose sentences end in EOS. What is before a sentence is EOS, too."""
    around = places[:, None] + np.arange(1 - order, 0)
    contexts = np.where(around >= 0, ids[np.maximum(around, 0)], EOS)
    ends = contexts == EOS
    of_others = np.logical_or.accumulate(ends[:, ::-1], axis=1)[:, ::-1]  # up to the last EOS
    contexts[of_others] = EOS
    return Ngrams(contexts.astype(np.int64), ids[places].astype(np.int64))


@dataclass(frozen=True)
class LanguageModelSizes:
    """The sizes of a network. The vocabulary counts EOS and UNK. ``tied``: G are the embeddings, so ``output`` is theirs."""

    vocabulary: int
    order: int
    embedding: int
    hidden: int
    output: int
    tied: bool = False

    @property
    def missing(self) -> int:
        """The id of a word that a context lacks."""
        return self.vocabulary


class FeedforwardLM(nn.Module):
    """Gives log p(word | context) of n-grams. A context has order - 1 ids, the oldest word first."""

    def __init__(self, config: LanguageModelSizes) -> None:
        super().__init__()
        self.config = config
        self.loss_dtype: torch.dtype | None = None  # of the products when a gradient is wanted; None: that of the weights
        K, n, E, H, R = config.vocabulary, config.order, config.embedding, config.hidden, config.output
        self.embedding = nn.Parameter(torch.empty(K + 1, E))
        self.U = nn.Parameter(torch.empty(H, (n - 1) * E))  # U_{n-1} … U_1, as the words of a context stand
        self.b_1 = nn.Parameter(torch.empty(H))
        self.W = nn.Parameter(torch.empty(R, H))
        self.b_2 = nn.Parameter(torch.empty(R))
        self.own_G = None if config.tied else nn.Parameter(torch.empty(K, R))
        self.b_G = nn.Parameter(torch.empty(K))

    @property
    def G(self) -> Tensor:
        """The output embeddings: (K, R)."""
        return self.embedding[:-1] if self.own_G is None else self.own_G

    def forward(self, contexts: Tensor, words: Tensor, drop: Drop = lambda x: x, alpha: float = 0.0) -> Tensor:
        """Return -Σ_i log p(words_i | contexts_i) + ``alpha`` Σ_i log² Z_i, in nats, of contexts (m, n - 1), words (m,)."""
        with gathered_gradients(self.loss_dtype):
            h_2 = self.hidden(contexts, drop)
        return cross_entropy(h_2, self.G, self.b_G, words, alpha, self.loss_dtype)

    def hidden(self, contexts: Tensor, drop: Drop = lambda x: x) -> Tensor:
        """Return h_2 of contexts (m, n - 1): (m, R). ``drop`` gets the embeddings (m, (n - 1) E), h_1 (m, H) and h_2."""
        x = drop(embedding(contexts, self.embedding).flatten(1))
        h_1 = drop(times(x, self.U, self.b_1).relu())  # r(Σ_j U_j e(w_{t-j}) + b_1)
        return drop(times(h_1, self.W, self.b_2).relu())  # r(W h_1 + b_2)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight under its name in the files (docs/lm-model.md lists them)."""
        return ((name.removeprefix("own_"), weight) for name, weight in self.named_parameters())


@torch.no_grad()
def initialise(model: FeedforwardLM, seed: int, *, paper: bool, unigram: Sequence[float] | None = None) -> None:
    """Set every weight from ``seed``, as a ``paper`` does: uniform in ±0.01 (section 4.1.1), biases 0.

    Otherwise the standard deviation is √(2 / inputs) (He et al. 2015), 1 for the embeddings and 1/√R for G, which tied
    embeddings are too, and the logits' bias starts at the ``unigram`` log-probabilities (K,).
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_weights():
        if name.startswith("b"):
            weight.zero_()
        elif paper:
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * 0.01)
        else:
            inputs = weight.shape[1]
            outputs = "embedding" if model.config.tied else "G"
            deviation = {"embedding": 1.0, outputs: inputs**-0.5}.get(name, (2 / inputs) ** 0.5)
            weight.copy_(torch.randn(weight.shape, generator=generator) * deviation)
    if not paper and unigram is not None:
        model.b_G.copy_(torch.as_tensor(unigram))
