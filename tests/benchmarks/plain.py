"""The plain scorer: padded batches in file order, every state by itself, one full softmax a word.

The method of the authors' released scorer (GroundHog, experiments/nmt/score.py), on all threads of torch: what anybody
would write, as the yardstick of `make bench`. It shares the model's weights and nothing else with our scorer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.models.encoder_decoder import RNNEncoderDecoder

BATCH = 256


def padded(phrases: Ragged) -> tuple[Tensor, Tensor]:
    """Ids with EOS, (n, longest + 1), and whether each is a word of its phrase (EOS counts)."""
    lengths = phrases.lengths
    ids = np.full((len(phrases), int(lengths.max()) + 1), EOS, dtype=np.int64)
    within = np.arange(ids.shape[1]) < lengths[:, None]
    ids[within] = phrases.ids
    return torch.from_numpy(ids), torch.from_numpy(np.arange(ids.shape[1]) <= lengths[:, None])


class PlainScorer:
    """log p of pairs by padded batches."""

    def __init__(self, model: RNNEncoderDecoder) -> None:
        self.w = {name: weight.detach() for name, weight in model.named_weights()}
        self.gates = {
            f"{side}.{kind}": torch.cat([self.w[f"{side}.layer0.forward.{kind}{gate}"] for gate in ("_z", "_r", "")])
            for side, kinds in (("encoder", "WUb"), ("decoder", "WUCb"))
            for kind in kinds
        }

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        H = self.w["encoder.V"].shape[0]
        U = self.gates["encoder.U"]
        words = self.w["encoder.embedding"][ids] @ self.gates["encoder.W"].T + self.gates["encoder.b"]
        h = words.new_zeros(len(ids), H)
        for t in range(ids.shape[1]):
            z, r = torch.sigmoid(words[:, t, : 2 * H] + h @ U[: 2 * H].T).chunk(2, 1)
            candidate = torch.tanh(words[:, t, 2 * H :] + (r * h) @ U[2 * H :].T)
            h = torch.where(mask[:, t, None], z * h + (1 - z) * candidate, h)
        return torch.tanh(h @ self.w["encoder.V"].T + self.w["encoder.b_V"])

    def batch(self, pairs: EncodedPairs) -> Tensor:
        w = self.w
        c = self.encode(*padded(pairs.src))
        ids, mask = padded(pairs.tgt)
        H = c.shape[1]
        e = w["decoder.embedding"][ids[:, :-1]]
        e = torch.cat((e.new_zeros(len(e), 1, e.shape[2]), e), 1)
        words = e @ self.gates["decoder.W"].T + self.gates["decoder.b"]
        context, out = c @ self.gates["decoder.C"].T, c @ w["output.O_c"].T + w["output.b_O"]
        h = torch.tanh(c @ w["decoder.layer0.forward.V"].T + w["decoder.layer0.forward.b_V"])
        total = c.new_zeros(len(c), dtype=torch.float64)
        for t in range(ids.shape[1]):
            shared = h @ self.gates["decoder.U"].T + context
            z, r = torch.sigmoid(words[:, t, : 2 * H] + shared[:, : 2 * H]).chunk(2, 1)
            h = z * h + (1 - z) * torch.tanh(words[:, t, 2 * H :] + r * shared[:, 2 * H :])
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
