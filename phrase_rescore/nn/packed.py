"""Sequences of words, phrases or sentences, laid out for a recurrent network that reads many of them at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.ragged import EncodedPairs, Ragged, distinct_phrases


@dataclass(frozen=True)
class PackedSequences:
    """Phrases laid out by position, longest first, so that step t works on its first ``counts[t]`` rows and on no padding."""

    order: Tensor  # (n,) which phrase each row is
    place: Tensor  # (n,) which row each phrase is; (m,) when m phrases share the rows
    ids: Tensor  # (Σ counts,) words of step 0, then of step 1, …
    counts: list[int]  # rows that have a word at step t; never rises

    @classmethod
    def of(cls, phrases: Ragged, device: torch.device | str = "cpu", which: NDArray[np.int64] | None = None) -> PackedSequences:
        """Pack phrases of at least one id each, which end in EOS. ``which`` (m,): the row of each of m phrases."""
        lengths = phrases.lengths
        order = np.argsort(-lengths, kind="stable")
        counts = [int(np.count_nonzero(lengths > t)) for t in range(int(lengths.max()))]
        ids = np.concatenate([phrases.ids[phrases.offsets[order[:n]] + t] for t, n in enumerate(counts)])
        place = np.argsort(order)
        arrays = (order, place if which is None else place[which], ids.astype(np.int64))
        order_t, place_t, ids_t = (torch.from_numpy(array).to(device) for array in arrays)
        return cls(order_t, place_t, ids_t, counts)

    def reversed(self) -> PackedSequences:
        """Return the phrases with the words of each from the last one to the first, then EOS."""
        return replace(self, ids=self.ids[self.backwards(eos_last=True)])

    def padded_places(self) -> Tensor:
        """Return where each word lies in rows that are all as long as the longest, one after the other: (Σ counts,)."""
        places = [np.arange(n) * len(self.counts) + t for t, n in enumerate(self.counts)]
        return torch.from_numpy(np.concatenate(places)).to(self.ids.device)

    def backwards(self, eos_last: bool = False) -> Tensor:
        """Return the places of each phrase's words, from EOS back to the first; ``eos_last``: EOS stays last. (Σ counts,)."""
        step = np.repeat(np.arange(len(self.counts)), self.counts)  # of each word
        row = np.concatenate([np.arange(n) for n in self.counts])
        words = np.bincount(row)[row] - 1  # of its phrase
        back = np.where(step < words, words - 1 - step, step) if eos_last else words - step
        return torch.from_numpy(np.cumsum([0, *self.counts[:-1]])[back] + row).to(self.ids.device)


def pack_pairs(pairs: EncodedPairs, device: torch.device | str = "cpu") -> tuple[PackedSequences, PackedSequences]:
    """Pack source and target phrases for the network, with EOS. Pairs of equal sources share a row."""
    first, which = distinct_phrases(pairs.src)
    return PackedSequences.of(pairs.src.take(first).with_eos(), device, which), PackedSequences.of(pairs.tgt.with_eos(), device)
