#!/usr/bin/env python3
"""How good is a model? Measured on the pairs that its training held out, beside simple baselines and a control.

usage: quality.py MODEL_DIR TABLE [--held-out 10000] [--sources 'save file,cancel']

TABLE is the one phrase table that the model was trained on; --held-out as in its training. Factors, direction, --min-count
and --max-length are those in the model directory; if the pairs are not as many as in its training, nothing is measured.
For an inverse model sources and targets change places here.

Prints negative log-likelihood per pair (nats, EOS included) and perplexity per word of the model, of a unigram and a bigram
model of the target side, and of the model with other sources; how often the true target outranks 49 random ones of its
length; for models of whole words, the rank correlation with log φ(target|source) and how much lower the held-out pairs score
than training pairs of like φ(target|source), joint count and lengths (a table is annotated as a whole: they should not); and
the best and worst targets of some sources.
"""

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable

import numpy as np

from phrase_rescore.data.pair_store import HeldOut
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.sorting import sorted_pairs
from phrase_rescore.data.vocabulary import EOS, FIRST_WORD
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.pairs import read_pair_blocks
from phrase_rescore.moses.table import WHOLE, parse_row
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.runtime import prepare, usable_cores
from phrase_rescore.training.pairs import with_other_sources


def transitions(targets: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """(previous, next) ids of all words, EOS at both ends."""
    offsets = targets.offsets + np.arange(len(targets.offsets))
    ids = np.full(offsets[-1] + 1, EOS, dtype=np.int64)
    ids[np.arange(len(targets.ids)) + np.repeat(np.arange(len(targets)), targets.lengths) + 1] = targets.ids
    return ids[:-1], ids[1:]


class Bigram:
    """Witten–Bell interpolation of bigram, unigram and uniform distribution."""

    def __init__(self, targets: Ragged, size: int) -> None:
        previous, following = transitions(targets)
        counts = np.bincount(following, minlength=size)
        seen = np.count_nonzero(counts)
        self.unigram = (counts + seen / size) / (counts.sum() + seen)
        self.size = size
        self.keys, self.counts = np.unique(previous * size + following, return_counts=True)
        self.total = np.bincount(previous, minlength=size)
        self.types = np.bincount(self.keys // size, minlength=size)

    def log_probs(self, targets: Ragged) -> tuple[float, float]:
        """Total natural log-probability by unigram and by bigram."""
        previous, following = transitions(targets)
        keys = previous * self.size + following
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        count = np.where(self.keys[at] == keys, self.counts[at], 0)
        total, types = self.total[previous], self.types[previous]
        bigram = (count + types * self.unigram[following]) / np.maximum(total + types, 1)
        bigram = np.where(total + types > 0, bigram, self.unigram[following])
        return np.log(self.unigram[following]).sum(), np.log(bigram).sum()


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, ties sharing their mean."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[which]


def show(name: str, log_p: float, pairs: int, words: int) -> None:
    print(f"{name:42s} {-log_p / pairs:8.3f} nats/pair   perplexity {math.exp(-log_p / words):8.2f}")


LogProbs = Callable[[EncodedPairs], np.ndarray]  # of pairs as the network takes them, the side that it reads first


def outranks(log_probs: LogProbs, held: EncodedPairs, pool: EncodedPairs, sources: int = 2000, rivals: int = 49) -> float:
    """Share of held-out sources whose target scores above ``rivals`` random other targets of its length."""
    rng = np.random.default_rng(0)
    by_length = {int(n): np.flatnonzero(pool.tgt.lengths == n) for n in np.unique(held.tgt.lengths)}
    rows = np.sort(rng.permutation(len(held))[:sources])
    won = 0
    for start in range(0, len(rows), 100):
        part = rows[start : start + 100]
        choice = [rng.choice(by_length[int(held.tgt.lengths[i])], rivals) for i in part]
        own = log_probs(held.take(part))
        others = EncodedPairs(held.src.take(np.repeat(part, rivals)), pool.tgt.take(np.concatenate(choice)))
        won += int((own[:, None] > log_probs(others).reshape(-1, rivals)).all(1).sum())
    return won / len(rows)


class TableRows:
    """What the table says of some of its pairs: joint count (third of the counts field) and log φ, the score number ``phi``.

    Kept are, of the pairs ``known`` from training, those seen at least ``least`` times, those of the ``held`` sources, and
    every ``nth`` of all.
    """

    def __init__(
        self,
        table: str,
        known: frozenset[tuple[bytes, bytes]],
        held: frozenset[bytes],
        phi: int,
        least: int = 10,
        nth: int = 30,
    ) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        joint, log_phi, nths = [], [], []
        with open_input(table) as stream:
            for number, line in enumerate(stream):
                row = parse_row(line.rstrip(b"\n"))
                src, tgt = b" ".join(row.src), b" ".join(row.tgt)
                if (src, tgt) not in known:
                    continue
                counts = row.fields[3].split(b"|||")[1].split() if len(row.fields) > 3 else []
                if len(counts) > 2 and (float(counts[2]) >= least or src in held or number % nth == 0):
                    self.pairs.append((src, tgt))
                    joint.append(float(counts[2]))
                    log_phi.append(math.log(max(float(row.scores[phi - 1]), 1e-30)))
                    nths.append(number % nth == 0 and src not in held)
        self.joint, self.log_phi = np.array(joint), np.array(log_phi)
        self.frequent = self.joint >= least
        self.held = np.fromiter((src in held for src, _ in self.pairs), np.bool_, len(self.pairs))
        self.sample = np.array(nths, dtype=np.bool_)  # of the pairs that are not held out

    def held_out_difference(self, log_p: np.ndarray, pairs: EncodedPairs) -> tuple[float, float, int]:
        """Mean log p of held-out pairs less that of sampled others in the same cell, its standard error, and how many pairs.

        A cell has pairs of equal lengths, joint counts within a factor of two and log φ within half a nat.
        """
        keys = np.stack(
            (pairs.src.lengths, pairs.tgt.lengths, np.floor(np.log2(self.joint)), np.floor(2 * self.log_phi)), axis=1
        ).astype(np.int64)
        _, cell = np.unique(keys, axis=0, return_inverse=True)
        n, mean, error = [], [], []
        for side in (self.held, self.sample):
            count = np.bincount(cell[side], minlength=cell.max() + 1)
            total = np.bincount(cell[side], log_p[side], minlength=cell.max() + 1)
            squares = np.bincount(cell[side], log_p[side] ** 2, minlength=cell.max() + 1)
            with np.errstate(invalid="ignore", divide="ignore"):
                n.append(count)
                mean.append(total / count)
                error.append((squares / count - (total / count) ** 2) / count)
        both = (n[0] > 1) & (n[1] > 1)
        weight = n[0][both] / n[0][both].sum()
        difference = (weight * (mean[0] - mean[1])[both]).sum()
        return difference, math.sqrt((weight**2 * (error[0] + error[1])[both]).sum()), int(n[0][both].sum())


def show_targets(name: bytes, targets: list[bytes], log_p: np.ndarray, most: int = 20) -> None:
    order = np.argsort(-log_p)
    print(f"\n{name.decode()}: {len(targets)} targets")
    for what, part in (("best", order[:most]), ("worst", order[most:][-most:])):
        print(f"  {what}: " + " | ".join(f"{targets[i].decode()} {log_p[i]:.1f}" for i in part))


def distinct_pairs(table: str, checkpoint: Checkpoint) -> list[tuple[bytes, bytes]]:
    """The pairs that training takes from the table: of the model's factors, frequent and short enough, in their order."""
    least, longest = checkpoint.training.get("min_count") or 1, checkpoint.training.get("max_length")
    blocks = read_pair_blocks(table, counts=least > 1, factors=checkpoint.factors)
    with sorted_pairs(blocks, tempfile.gettempdir(), str(os.getpid()), 1 << 30, usable_cores(), least, longest) as found:
        return [pair for block in found for pair in zip(block.src, block.tgt, strict=True)]


def check_numbers(checkpoint: Checkpoint, training: int, held_out: int) -> None:
    """End the program unless these are the numbers of pairs of the model's training."""
    told = checkpoint.training.get("distinct_pairs", {})
    if told != {"training": training, "held_out": held_out}:
        found = f"{training} pairs to train on and {held_out} held out, where the model's training had {told}"
        sys.exit(f"quality.py: {found}; pass the table of its training, and its --held-out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir")
    parser.add_argument("table")
    parser.add_argument("--held-out", type=int, default=10_000)
    parser.add_argument("--sources", default="", help="comma-separated; their best and worst targets are shown")
    options = parser.parse_args()
    prepare(usable_cores())

    checkpoint = load(options.model_dir)
    scorer = Scorer(checkpoint)
    read, predicted = checkpoint.sides

    def log_probs(pairs: EncodedPairs) -> np.ndarray:
        return scorer.log_probs(checkpoint.for_model(pairs))  # back in the table's order

    def encoded(pairs: list[tuple[bytes, bytes]]) -> EncodedPairs:
        src, tgt = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        sides = Ragged.of_phrases(src, checkpoint.src_vocab), Ragged.of_phrases(tgt, checkpoint.tgt_vocab)
        return checkpoint.for_model(EncodedPairs(*sides))

    distinct = distinct_pairs(options.table, checkpoint)
    choice = HeldOut(options.held_out)
    choice.add([src for src, _ in distinct], [tgt for _, tgt in distinct])
    held_sources = choice.sources()
    out = np.fromiter((src in held_sources for src, _ in distinct), np.bool_, len(distinct))
    check_numbers(checkpoint, int((~out).sum()), int(out.sum()))
    everything = encoded(distinct)
    held, training = everything.take(np.flatnonzero(out)), everything.take(np.flatnonzero(~out))
    words = len(held.tgt.ids) + len(held)
    print(f"{len(training):,} training pairs, {len(held):,} held out, {words:,} words with EOS")

    show("model", log_probs(held).sum(), len(held), words)
    baseline = Bigram(training.tgt, FIRST_WORD + len(checkpoint.vocabs[1].words)).log_probs(held.tgt)
    for kind, total in zip(("unigram", "bigram"), baseline, strict=True):
        show(f"{kind} of the {predicted}", total, len(held), words)
    other, _ = with_other_sources(held)
    show(f"model, other {read}s of equal length", log_probs(other).sum(), len(other), len(other.tgt.ids) + len(other))
    print(f"true {predicted} above 49 random ones of its length: {outranks(log_probs, held, everything):.1%} of 2,000")

    if checkpoint.factors == WHOLE:
        rows = TableRows(options.table, frozenset(distinct), held_sources, phi=1 if checkpoint.inverse else 3)
        if rows.frequent.sum() > 1:
            pairs = encoded(rows.pairs)
            log_p, frequent = log_probs(pairs), rows.frequent
            rho = np.corrcoef(ranks(log_p[frequent]), ranks(rows.log_phi[frequent]))[0, 1]
            print(f"Spearman with log φ({predicted}|{read}), joint count ≥ 10: {rho:.3f} ({frequent.sum():,} pairs)")
            less, error, n = rows.held_out_difference(log_p, pairs)
            print(f"held-out less training pairs of like φ, count and lengths: {less:+.3f} ± {error:.3f} nats ({n:,} pairs)")
    for name in filter(None, options.sources.encode().split(b",")):
        of_source = [pair for pair in distinct if pair[checkpoint.inverse] == name]
        targets = [pair[not checkpoint.inverse] for pair in of_source]
        show_targets(name, targets, log_probs(encoded(of_source)))


if __name__ == "__main__":
    main()
