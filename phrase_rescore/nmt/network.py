"""A translation model of whole sentences with attention (Bahdanau et al. 2015; the attention of Luong et al. 2015).

Two bidirectional layers of gated recurrent units read the source; a_j is the sum of their outputs at word j. Of the target, a
layer reads the words so far: h_t. It attends to the source, and a second layer reads what it found:

    z_t = Σ_j α_tj a_j,    α_t = softmax_j(Q h_t · a_j / √H)
    s_t = GRU([h_t, z_t], s_{t-1})
    p(y_t) = softmax(E tanh(O [s_t, z_t, h_t] + b_O) + b)

E are the target's embeddings, which are read too (Press and Wolf 2017). No h depends on a z, so all h of a sentence come first.
The units are ``nn.cells.ResetAfter`` (Cho et al. 2014), without a summary. Sizes: H units, E embedding, A annotation, K words;
natural logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from phrase_rescore.nn.cells import ResetAfter
from phrase_rescore.nn.dropout import Drop, dropout
from phrase_rescore.nn.linear import gathered_gradients, times
from phrase_rescore.nn.packed import PackedSequences
from phrase_rescore.nn.recurrence import outputs
from phrase_rescore.nn.softmax import cross_entropy

_INPUT = 4.0  # times an embedding is what a layer reads: the output wants small ones


@dataclass(frozen=True)
class TranslationSizes:
    """The sizes of a network. Vocabularies count EOS and UNK."""

    src_vocabulary: int
    tgt_vocabulary: int
    hidden: int
    embedding: int


class TranslationModel(nn.Module):
    """Gives log p(target | source) of sentence pairs."""

    def __init__(self, config: TranslationSizes, dropout: float = 0.0) -> None:
        super().__init__()
        self.config, self.dropout = config, dropout
        self.loss_dtype: torch.dtype | None = None  # of the softmax' products when a gradient is wanted
        H, E, A = config.hidden, config.embedding, config.hidden + config.hidden % 2  # A: half for each direction
        self.src_embedding = nn.Parameter(torch.empty(config.src_vocabulary, E))
        self.tgt_embedding = nn.Parameter(torch.empty(config.tgt_vocabulary, E))
        self.lower, self.upper = (nn.ModuleList(ResetAfter(inputs, A // 2) for _ in range(2)) for inputs in (E, A))  # both ways
        self.first, self.second = ResetAfter(E, H), ResetAfter(H + A, H)
        self.Q = nn.Parameter(torch.empty(A, H))
        self.O = nn.Parameter(torch.empty(E, 2 * H + A))
        self.b_O = nn.Parameter(torch.empty(E))
        self.b_G = nn.Parameter(torch.empty(config.tgt_vocabulary))

    def forward(
        self,
        src: PackedSequences,
        tgt: PackedSequences,
        seed: Sequence[int] | None = None,
        left_out: Sequence[int] | None = None,
    ) -> Tensor:
        """Return -Σ_n log p(y_n | x_n), a scalar in nats. Seeds: of the words that the softmax is over, of dropout."""
        drop, counts = dropout(self.dropout, left_out, self.b_G.device), tgt.counts
        with gathered_gradients(self.loss_dtype):
            annotations, words = self.annotations(src, drop)
            rows = src.place[tgt.order]  # of each target its source
            h, padded = self.states(tgt, drop)
            z = self.attend(padded, annotations[rows], words[rows])
            z = z.flatten(0, 1).index_select(0, tgt.padded_places())
            s = self._outputs((self.second,), (drop(torch.cat((h, z), 1)),), counts).squeeze(0)
            g = drop(self.output(s, z, h))
        return cross_entropy(g, self.tgt_embedding, self.b_G, tgt.ids, dtype=self.loss_dtype, seed=seed)

    def states(self, tgt: PackedSequences, drop: Drop = lambda x: x) -> tuple[Tensor, Tensor]:
        """Return h before every word of targets, laid out as they are (Σ counts, H), and in their rows (n, t, H)."""
        before = [ids[:n] for ids, n in zip(tgt.ids.split(tgt.counts), tgt.counts[1:], strict=False)]
        words = torch.cat([tgt.ids.new_full((tgt.counts[0],), -1), *before])
        h = self._outputs((self.first,), (drop(self.read(words)),), tgt.counts).squeeze(0)
        return h, _padded(h, tgt)

    def annotations(self, src: PackedSequences, drop: Drop = lambda x: x) -> tuple[Tensor, Tensor]:
        """Return the annotations a of sources in the order of their rows (n, T, A), and which are of words (n, T)."""
        counts, back = src.counts, src.backwards()

        def both_ways(cells: nn.ModuleList, x: Tensor) -> Tensor:
            forwards, backwards = self._outputs(cells, (x, x[back]), counts)
            return torch.cat((forwards, backwards[back]), 1)

        lower = both_ways(self.lower, drop(_INPUT * embedding(src.ids, self.src_embedding)))
        upper = both_ways(self.upper, drop(lower))
        return _padded(lower + upper, src), _padded(lower.new_ones(len(lower), 1), src).squeeze(2) > 0

    def read(self, words: Tensor) -> Tensor:
        """Return what the first layer reads of words (n,): (n, E). Before the first word, -1, it is 0."""
        return _INPUT * embedding(words.clamp(min=0), self.tgt_embedding) * (words >= 0).unsqueeze(1)

    def attend(self, h: Tensor, annotations: Tensor, there: Tensor) -> Tensor:
        """Return z of h (n, t, H), from annotations (n, T, A), of words where ``there`` (n, T): (n, t, A)."""
        return self.attention(h, annotations, there) @ annotations

    def attention(self, h: Tensor, annotations: Tensor, there: Tensor) -> Tensor:
        """Return the weights α of the words of the source, as ``attend`` takes them: (n, t, T)."""
        weights = h @ self.Q.T @ annotations.transpose(1, 2) / math.sqrt(self.config.hidden)
        return weights.masked_fill(~there[:, None], -torch.inf).softmax(-1)

    def output(self, s: Tensor, z: Tensor, h: Tensor) -> Tensor:
        """Return g (n, E); the logits are E g + b."""
        return torch.tanh(times(torch.cat((s, z, h), 1), self.O, self.b_O))

    def _outputs(self, cells: Iterable[nn.Module], inputs: Iterable[Tensor], counts: Sequence[int]) -> Tensor:
        """Return the outputs of cells, each for its inputs (Σ counts, in), laid out like them: (cells, Σ counts, H)."""
        layers = [cast(ResetAfter, cell) for cell in cells]
        rows = _layers([times(x, layer.W, layer.b) for layer, x in zip(layers, inputs, strict=True)])
        return outputs(rows, _layers([layer.U for layer in layers]), counts, self.loss_dtype if rows.requires_grad else None)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight under its name in the files (docs/nmt-model.md lists them)."""
        return self.named_parameters()


def _padded(x: Tensor, sequences: PackedSequences) -> Tensor:
    """Return what words have (Σ counts, m) in the rows of their sequences, (n, longest, m); the rest is 0."""
    rows = x.new_zeros(sequences.counts[0] * len(sequences.counts), x.shape[1])
    return rows.index_copy(0, sequences.padded_places(), x).view(sequences.counts[0], -1, x.shape[1])


def _layers(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of one size as one, without a copy if there is one."""
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


@torch.no_grad()
def initialise(model: TranslationModel, seed: int, unigram: Sequence[float]) -> None:
    """Set every weight from ``seed``: embeddings Gaussian, others uniform, biases 0, that of the logits ``unigram`` (K,)."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_weights():
        if name.endswith((".b", "b_O")):
            weight.zero_()
        elif "embedding" in name:
            weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5)
        elif name != "b_G":
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * weight.shape[1] ** -0.5)
    model.b_G.copy_(torch.as_tensor(unigram))
