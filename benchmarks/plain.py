"""The plain scorer: padded batches in file order, every state by itself, one full softmax a word.

The method of the authors' released scorer (GroundHog, experiments/nmt/score.py), on all threads of torch: what anybody
would write, as the yardstick of `make bench`. It shares the model's weights and nothing else with our scorer.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.rnn.config import ENCODERS
from phrase_rescore.rnn.network import RNNEncoderDecoder

BATCH = 256
GATES = {"gru": ("_z", "_r", ""), "lstm": ("_i", "_f", "_g", "_o"), "rnn": ("",)}


def padded(phrases: Ragged) -> tuple[Tensor, Tensor]:
    """Ids with EOS, (n, longest + 1), and whether each is a word of its phrase (EOS counts)."""
    lengths = phrases.lengths
    ids = np.full((len(phrases), int(lengths.max()) + 1), EOS, dtype=np.int64)
    within = np.arange(ids.shape[1]) < lengths[:, None]
    ids[within] = phrases.ids
    return torch.from_numpy(ids), torch.from_numpy(np.arange(ids.shape[1]) <= lengths[:, None])


class PlainScorer:
    """log p of pairs by padded batches, with one layer of any cell."""

    def __init__(self, model: RNNEncoderDecoder) -> None:
        assert model.config.layers == 1
        self.w = {name: weight.detach() for name, weight in model.named_weights()}
        self.cell, self.backwards = model.config.cell, ENCODERS[model.config.encoder]
        self.gates = {
            f"{side}.{kind}": torch.cat([self.w[f"{side}.{kind}{gate}"] for gate in GATES[self.cell]])
            for side, kinds in (
                *((f"encoder.layer0.{name}", "WUb") for name in self.backwards),
                ("decoder.layer0.forward", "WUCb"),
            )
            for kind in kinds
        }

    def next_state(self, h: Tensor, m: Tensor, word: Tensor, U: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        H = h.shape[1]
        if self.cell in ("lstm", "rnn"):
            gates = word + h @ U.T if context is None else word + h @ U.T + context
            if self.cell == "rnn":
                return torch.tanh(gates), m
            i, f, g, o = gates.chunk(4, 1)
            m = torch.sigmoid(f) * m + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(m), m
        if context is None:
            z, r = torch.sigmoid(word[:, : 2 * H] + h @ U[: 2 * H].T).chunk(2, 1)
            candidate = torch.tanh(word[:, 2 * H :] + (r * h) @ U[2 * H :].T)
        else:
            shared = h @ U.T + context
            z, r = torch.sigmoid(word[:, : 2 * H] + shared[:, : 2 * H]).chunk(2, 1)
            candidate = torch.tanh(word[:, 2 * H :] + r * shared[:, 2 * H :])
        return z * h + (1 - z) * candidate, m

    def encode(self, phrases: Ragged) -> Tensor:
        outputs = []
        for name, backwards in self.backwards.items():
            ids, mask = padded(phrases.reversed() if backwards else phrases)
            at = f"encoder.layer0.{name}"
            words = self.w["encoder.embedding"][ids] @ self.gates[f"{at}.W"].T + self.gates[f"{at}.b"]
            h = m = words.new_zeros(len(ids), self.w["encoder.V"].shape[0])
            for t in range(ids.shape[1]):
                after = self.next_state(h, m, words[:, t], self.gates[f"{at}.U"])
                h = torch.where(mask[:, t, None], after[0], h)
                if self.cell == "lstm":
                    m = torch.where(mask[:, t, None], after[1], m)
            outputs.append(h)
        return torch.tanh(torch.cat(outputs, 1) @ self.w["encoder.V"].T + self.w["encoder.b_V"])

    def batch(self, pairs: EncodedPairs) -> Tensor:
        w, at = self.w, "decoder.layer0.forward"
        c = self.encode(pairs.src)
        ids, mask = padded(pairs.tgt)
        e = w["decoder.embedding"][ids[:, :-1]]
        e = torch.cat((e.new_zeros(len(e), 1, e.shape[2]), e), 1)
        words = e @ self.gates[f"{at}.W"].T + self.gates[f"{at}.b"]
        context, out = c @ self.gates[f"{at}.C"].T, c @ w["output.O_c"].T + w["output.b_O"]
        m = c @ w[f"{at}.V"].T + w[f"{at}.b_V"]
        h = torch.tanh(m)
        total = c.new_zeros(len(c), dtype=torch.float64)
        for t in range(ids.shape[1]):
            h, m = self.next_state(h, m, words[:, t], self.gates[f"{at}.U"], context)
            deep = h @ w["output.O_h"].T + e[:, t] @ w["output.O_y"].T + out
            s = torch.maximum(deep[:, 0::2], deep[:, 1::2])
            logits = linear(s @ w["output.G_r"].T, w["output.G_l"], w["output.b_G"])
            log_p = torch.log_softmax(logits, 1).gather(1, ids[:, t, None]).squeeze(1)
            total += torch.where(mask[:, t], log_p, 0.0)
        return total

    @torch.inference_mode()
    def log_probs(self, pairs: EncodedPairs, by_length: int = 0) -> np.ndarray:
        """log p of every pair; ``by_length`` rows at a time are sorted by their lengths first (0: file order)."""
        n = len(pairs)
        order = np.arange(n)
        if by_length:
            keys = pairs.src.lengths * 1000 + pairs.tgt.lengths
            order = np.concatenate([a + np.argsort(keys[a : a + by_length], kind="stable") for a in range(0, n, by_length)])
        result = np.empty(n)
        for start in range(0, n, BATCH):
            rows = order[start : start + BATCH]
            result[rows] = self.batch(pairs.take(rows)).numpy()
        return result
