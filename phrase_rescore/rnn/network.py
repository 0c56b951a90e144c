"""The RNN Encoder–Decoder of Cho et al. (EMNLP 2014, arXiv 1406.1078), appendix A.

It departs from the paper's formulas in two ways: gates, c, h'_0, s' and the logits have biases, and the output layer sees
the embedding of the previous word. docs/model.md says why the units are not ``torch.nn.GRU``.

Sizes: H hidden units, E embedding, M maxout units of 2 numbers each, R rank of the output matrix, K words of a vocabulary.
Log-probabilities are natural logs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from phrase_rescore.data.ragged import Ragged, prefix_levels
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.nn.cells import LSTM, RNN, RecurrentCell, ResetAfter, ResetBefore, Rows, Stack, rows_of, tanh
from phrase_rescore.nn.linear import gathered_gradients, times
from phrase_rescore.nn.packed import PackedSequences
from phrase_rescore.nn.softmax import cross_entropy
from phrase_rescore.rnn.config import ENCODERS


class CellPair(NamedTuple):
    """The cells of both sides of a network."""

    encoder: type[RecurrentCell]
    decoder: type[RecurrentCell]


CELLS = {"gru": CellPair(ResetBefore, ResetAfter), "lstm": CellPair(LSTM, LSTM), "rnn": CellPair(RNN, RNN)}
POOL = 2  # numbers that a maxout unit takes the largest of


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of a network (vocabularies count EOS and UNK) and its structure."""

    src_vocabulary: int
    tgt_vocabulary: int
    hidden: int
    embedding: int
    maxout: int
    rank: int
    cell: str = "gru"  # of encoder and decoder: one of CELLS
    layers: int = 1  # of encoder and decoder
    encoder: str = "forward"  # one of ENCODERS


class Encoder(nn.Module):
    """Maps source phrases to their summaries c = tanh(V h + b_V), h being the uppermost output after EOS, of each direction."""

    products = ("V",)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        H, E = config.hidden, config.embedding
        self._reversed = ENCODERS[config.encoder]
        self.embedding = nn.Parameter(torch.empty(config.src_vocabulary, E))
        self.stacks = nn.ModuleList(Stack(CELLS[config.cell].encoder, config.layers, E, H) for _ in self._reversed)
        self.V = nn.Parameter(torch.empty(H, len(self.stacks) * H))
        self.b_V = nn.Parameter(torch.empty(H))

    def named_stacks(self) -> dict[str, Stack]:
        """Return the stack of each direction, under its name in the tensors' names."""
        return dict(zip(self._reversed, self.stacks, strict=True))  # type: ignore[arg-type]

    def summary(self, *h: Tensor) -> Tensor:
        """Return c = tanh(V [h; …] + b_V), h being the output of each stack after EOS: (n, H) each -> (n, H)."""
        return tanh(times(h[0] if len(h) == 1 else torch.cat(h, 1), self.V, self.b_V))

    def forward(self, phrases: PackedSequences) -> Tensor:
        """Return c of every phrase, in the caller's order: (m, H)."""
        stacks = self.named_stacks().items()
        h = [self._read(stack, phrases.reversed() if self._reversed[name] else phrases) for name, stack in stacks]
        return self.summary(*h).index_select(0, phrases.place)

    def _read(self, stack: Stack, phrases: PackedSequences) -> Tensor:
        """Return the stack's output after the last word of every row of the phrases: (n, H)."""
        state = stack.empty(phrases.counts[0])
        ended: list[Tensor] = []  # outputs after the last word, of the shortest phrases first
        for row in stack.word_rows(embedding(phrases.ids, self.embedding)).split(phrases.counts):
            n = len(row)
            if n < len(state[0]):
                ended.append(state[0][n:])
                state = tuple(part[:n] for part in state)
            state = stack.step(stack.project(state), state, row)
        return torch.cat([state[0], *reversed(ended)])

    def word_rows(self) -> Rows:
        """Return W e + b of every source word, for each direction: (K, G H)."""
        return tuple(stack.word_rows(self.embedding) for stack in self.named_stacks().values())

    def summaries(self, sources: Ragged, word_rows: Rows) -> Tensor:
        """Return c of distinct phrases (without EOS), read once where they share words, given ``word_rows()``: (n, H)."""
        h = []
        for (name, stack), rows in zip(self.named_stacks().items(), word_rows, strict=True):
            h.append(_read_distinct(stack, (sources.reversed() if self._reversed[name] else sources).with_eos(), rows))
        return self.summary(*h)


def _read_distinct(stack: Stack, phrases: Ragged, word_rows: Tensor) -> Tensor:
    """Return the stack's output after the EOS of distinct phrases, reading each prefix that they share once: (n, H)."""

    def on_device(rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(rows).to(word_rows.device)

    state = stack.empty(1)
    ended: list[Tensor] = []
    ended_rows: list[NDArray[np.int64]] = []
    for level in prefix_levels(phrases):
        continued, place = np.unique(level.parents, return_inverse=True)
        before, after = rows_of(state, on_device(continued)), on_device(place)
        projected = rows_of(stack.project(before), after)
        state = stack.step(projected, rows_of(before, after), word_rows.index_select(0, on_device(level.words)))
        ends = level.words[level.nodes] == EOS
        ended.append(state[0].index_select(0, on_device(level.nodes[ends])))
        ended_rows.append(level.rows[ends])
    return torch.cat(ended)[on_device(np.argsort(np.concatenate(ended_rows)))]


class Decoder(nn.Module):
    """Gives p(y_t | y_<t, c) of target phrases."""

    products = ("O_h", "O_c")
    OUTPUT = ("O_h", "O_y", "O_c", "b_O", "G_r", "G_l", "b_G")  # the output layer

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        H, E, M, R, K = config.hidden, config.embedding, config.maxout, config.rank, config.tgt_vocabulary
        self.embedding = nn.Parameter(torch.empty(K, E))
        self.stack = Stack(CELLS[config.cell].decoder, config.layers, E, H, summary=H)
        self.O_h = nn.Parameter(torch.empty(POOL * M, H))
        self.O_y = nn.Parameter(torch.empty(POOL * M, E))
        self.O_c = nn.Parameter(torch.empty(POOL * M, H))
        self.b_O = nn.Parameter(torch.empty(POOL * M))
        self.G_r = nn.Parameter(torch.empty(R, M))
        self.G_l = nn.Parameter(torch.empty(K, R))
        self.b_G = nn.Parameter(torch.empty(K))

    def output_context(self, c: Tensor) -> Tensor:
        """Return O_c c + b_O, the same at every step of a source: (n, H) -> (n, 2 M)."""
        return times(c, self.O_c, self.b_O)

    def low_rank(self, h: Tensor, word_row: Tensor, context: Tensor) -> Tensor:
        """Return g = G_r s (n, R), from outputs h' (n, H), O_y e(y_{t-1}) and O_c c + b_O (n, 2 M). Logits are G_l g + b_G."""
        deep = times(h, self.O_h, word_row + context)  # s' = O_h h' + O_y e(y_{t-1}) + O_c c
        s = torch.maximum(deep[:, 0::POOL], deep[:, 1::POOL])  # s_i = max(s'_{2i-1}, s'_{2i})
        return s @ self.G_r.T

    def forward(self, c: Tensor, phrases: PackedSequences) -> tuple[Tensor, Tensor]:
        """Return g (Σ counts, R) before every word of phrases, and these (Σ counts,), of c (n, H) in the caller's order."""
        c = c.index_select(0, phrases.order)
        counts = phrases.counts
        before = [ids[:n] for ids, n in zip(phrases.ids.split(counts), counts[1:], strict=False)]
        zero = self.embedding.new_zeros(counts[0], self.embedding.shape[1])  # e(y_0) = 0
        embedded = torch.cat([zero, embedding(torch.cat([phrases.ids[:0], *before]), self.embedding)])
        stack, state, outputs = self.stack, self.stack.initial(c), []
        context = stack.context(c)
        for row in stack.word_rows(embedded).split(counts):
            n = len(row)
            state = tuple(part[:n] for part in state)
            state = stack.step(stack.project(state, tuple(part[:n] for part in context)), state, row)
            outputs.append(state[0])
        by_source = self.output_context(c)
        contexts = torch.cat([by_source[:n] for n in counts])
        return self.low_rank(torch.cat(outputs), embedded @ self.O_y.T, contexts), phrases.ids


class RNNEncoderDecoder(nn.Module):
    """Gives log p(target | source) of phrase pairs."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.loss_dtype: torch.dtype | None = None  # of the large products when a gradient is wanted; None: that of the weights
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def forward(self, src: PackedSequences, tgt: PackedSequences, seed: Sequence[int] | None = None) -> Tensor:
        """Return -Σ_n log p(y_n | x_n), EOS included: a scalar in nats. With a ``seed`` Z is estimated from words it draws."""
        with gathered_gradients(self.loss_dtype):
            g, targets = self.decoder(self.encoder(src), tgt)
        return cross_entropy(g, self.decoder.G_l, self.decoder.b_G, targets, dtype=self.loss_dtype, seed=seed)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight under its name in the files, as a view of the parameter (docs/model.md lists them)."""
        encoder, decoder = self.encoder, self.decoder
        yield "encoder.embedding", encoder.embedding
        for direction, stack in encoder.named_stacks().items():
            yield from stack.named_weights("encoder", direction)
        yield from (("encoder.V", encoder.V), ("encoder.b_V", encoder.b_V))
        yield "decoder.embedding", decoder.embedding
        yield from decoder.stack.named_weights("decoder", "forward")
        for name in decoder.OUTPUT:
            yield f"output.{name}", getattr(decoder, name)


def for_scoring(model: RNNEncoderDecoder, device: str = "cpu", precision: str = "float32") -> RNNEncoderDecoder:
    """Return the model on a device, or a copy that cannot be trained. Only each module's ``products`` can be in bf16."""
    if device == "cpu" and precision == "float32":
        return model
    scoring = copy.deepcopy(model).requires_grad_(False).to(device)
    if precision == "bf16":
        for module in scoring.modules():
            for name in getattr(module, "products", ()):
                matrix = getattr(module, name)
                matrix.data = matrix.data.bfloat16()
    return scoring


@torch.no_grad()
def initialise(model: RNNEncoderDecoder, seed: int, *, paper: bool, unigram: Sequence[float] | None = None) -> None:
    """Set every weight from ``seed``.

    ``paper``: recurrent matrices are the left singular vectors of a white Gaussian matrix, other weights Gaussian with
    standard deviation 0.01, biases 0 or the cell's START (section 4.1). Otherwise the other weights' deviation is 1/√(columns),
    and the logits' bias starts at the ``unigram`` log-probabilities (K,).
    """
    generator = torch.Generator().manual_seed(seed)
    start = CELLS[model.config.cell].encoder.START | CELLS[model.config.cell].decoder.START
    for name, weight in model.named_weights():
        symbol = name.rpartition(".")[2]
        if symbol.startswith("b"):
            weight.fill_(start.get(symbol, 0.0))
        elif symbol.startswith("U"):
            weight.copy_(torch.linalg.svd(torch.randn(weight.shape, generator=generator, dtype=torch.float64))[0])
        else:
            deviation = 0.01 if paper else weight.shape[1] ** -0.5
            weight.copy_(torch.randn(weight.shape, generator=generator) * deviation)
    if not paper and unigram is not None:
        model.decoder.b_G.copy_(torch.as_tensor(unigram))
