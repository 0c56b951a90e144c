"""Translation models: steps of training and n-best lists, plain PyTorch and ours in turn, on one thread.

usage: bench_nmt.py [--text SOURCE TARGET] [--nbest LIST SOURCE] [--steps 32] [--segments 30] [--rounds 3] [--json FILE]

Plain is the same network of torch's own layers: nn.GRU, a log-softmax over all words, the same minibatches, Adam and dropout;
entries of a list in order of length, 64 at a time, each by itself. Seconds are those of the processor. Operations are those of
matrix products, as torch counts them, so that recurrences by nn.GRU count, too; each round measures sgemm first.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby, islice

import numpy as np
import torch
from bench_scoring import sgemm
from inputs import beside
from plain import padded
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.flop_counter import FlopCounterMode

from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.files.inputs import open_input, read_rows
from phrase_rescore.moses.hypotheses import read_entries
from phrase_rescore.moses.table import words
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nmt.config import TranslationConfig
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes, initialise
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.nmt.train import SentenceTask, bitext, of_like_lengths
from phrase_rescore.nn.cells import ResetAfter
from phrase_rescore.runtime import keep_freed_memory, prepare
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import Trainer
from phrase_rescore.training.pairs import PairSource, PairTask
from phrase_rescore.training.run import on_this_machine

BATCH = 64  # entries of a list at a time, in plain PyTorch: faster than 32 and 256


class Plain(nn.Module):
    """The network of nmt.network by torch's own layers."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        sizes, H = model.config, model.config.hidden
        E, A = sizes.embedding, H + H % 2
        self.src_embedding, self.tgt_embedding = (nn.Embedding(n, E) for n in (sizes.src_vocabulary, sizes.tgt_vocabulary))
        self.lower, self.upper = (nn.GRU(n, A // 2, bidirectional=True, batch_first=True) for n in (E, A))
        self.first, self.second = nn.GRU(E, H, batch_first=True), nn.GRU(H + A, H, batch_first=True)
        self.Q, self.O = nn.Linear(H, A, bias=False), nn.Linear(2 * H + A, E)
        self.b_G = nn.Parameter(torch.empty(sizes.tgt_vocabulary))
        self.drop = nn.Dropout(model.dropout)
        with torch.no_grad():
            for cells, gru in ((model.lower, self.lower), (model.upper, self.upper)):
                copy_cell(cells[0], gru, "l0")
                copy_cell(cells[1], gru, "l0_reverse")
            copy_cell(model.first, self.first, "l0")
            copy_cell(model.second, self.second, "l0")
            for layer, weight in (
                (self.src_embedding, model.src_embedding), (self.tgt_embedding, model.tgt_embedding), (self.Q, model.Q),
                (self.O, model.O),
            ):  # fmt: skip
                layer.weight.copy_(weight)
            self.O.bias.copy_(model.b_O)
            self.b_G.copy_(model.b_G)

    def forward(self, pairs: EncodedPairs) -> Tensor:
        """log p of pairs (n,)."""
        src, there = padded(pairs.src)
        tgt, counted = padded(pairs.tgt)
        lower = self.both_ways(self.lower, self.drop(4.0 * self.src_embedding(src)), there)
        a = lower + self.both_ways(self.upper, self.drop(lower), there)
        before = functional.pad(4.0 * self.tgt_embedding(tgt[:, :-1]), (0, 0, 1, 0))
        h, _ = self.first(self.drop(before))
        weights = self.Q(h) @ a.transpose(1, 2) / math.sqrt(h.shape[2])
        z = weights.masked_fill(~there[:, None], -torch.inf).softmax(-1) @ a
        s, _ = self.second(self.drop(torch.cat((h, z), 2)))
        g = self.drop(torch.tanh(self.O(torch.cat((s, z, h), 2))))[counted]
        log_p = functional.linear(g, self.tgt_embedding.weight, self.b_G).log_softmax(1)
        found = log_p.gather(1, tgt[counted][:, None])[:, 0]
        return torch.stack([part.sum() for part in found.split((pairs.tgt.lengths + 1).tolist())])

    def both_ways(self, gru: nn.GRU, x: Tensor, there: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, there.sum(1), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=x.shape[1])[0]


def copy_cell(cell: ResetAfter, gru: nn.GRU, layer: str) -> None:
    """Copy weights: the gates of nn.GRU are in another order."""
    for name, weight in (("weight_ih", cell.W), ("weight_hh", cell.U), ("bias_ih", cell.b)):
        z, r, candidate = weight.chunk(3)
        getattr(gru, f"{name}_{layer}").copy_(torch.cat((r, z, candidate)))
    getattr(gru, f"bias_hh_{layer}").zero_()


def plain_step(plain: Plain, config: TranslationConfig) -> Callable[[EncodedPairs], None]:
    optimizer = torch.optim.Adam(plain.parameters(), lr=config.recipe.learning_rate, fused=True)

    def step(batch: EncodedPairs) -> None:
        optimizer.zero_grad()
        (-plain(batch).sum() / len(batch)).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), config.recipe.clip)
        optimizer.step()

    return step


def plain_scores(plain: Plain, pairs: EncodedPairs) -> np.ndarray:
    """log p of pairs, those of like lengths together: (n,)."""
    order, found = np.lexsort((pairs.tgt.lengths, pairs.src.lengths)), np.empty(len(pairs))
    with torch.inference_mode():
        for rows in np.split(order, range(BATCH, len(order), BATCH)):
            found[rows] = plain(pairs.take(rows)).numpy()
    return found


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def flops(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs=2, metavar=("SOURCE", "TARGET"), help="by default those of the table's system")
    parser.add_argument("--nbest", nargs=2, metavar=("LIST", "SOURCE"), help="the same")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--segments", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    prepare(1)
    config = on_this_machine(TranslationConfig().override(device="cpu", max_steps=1_000_000))
    texts = options.text or [beside(f"train.{side}.xz", f"train.{side}") for side in ("en", "fr")]
    nbest, source = options.nbest or (beside("nbest.dev.200.gz", "dev.2.nbest.gz"), beside("dev.en", "dev.en"))
    network, recipe = config.network, config.recipe
    with tempfile.TemporaryDirectory() as folder:
        store = PairSource(texts, f"{folder}/nmt", config.pairs, 1, bitext(texts)).prepare(Observer())
        sizes = TranslationSizes(len(store.src_vocab), len(store.tgt_vocab), network.hidden, network.embedding)
        model = TranslationModel(sizes, network.dropout)
        initialise(model, 1, unigram_log_probs(store.train.tgt.ids, len(store.tgt_vocab), len(store.train)))
        plain = Plain(model)
        task: SentenceTask = PairTask(
            model, store.train, store.held_out, recipe.batch_size, 1, "cpu", True, of_like_lengths, drops=True, padded=True
        )
        batches = list(islice(task.batches(), options.steps))
    scorer = SentenceScorer(Translation(model, store.src_vocab, store.tgt_vocab, store.unk_shares, {}))
    with open_input(source) as stream:
        sources = [words(line.rstrip(b"\r\n")) for line in read_rows(stream)]
    with open_input(nbest) as stream:
        segments = groupby(read_entries(read_rows(stream), nbest), lambda entry: entry.segment)
        entries = [entry for _, group in islice(segments, options.segments) for entry in group]
    sides = [sources[entry.segment] for entry in entries], [entry.hypothesis() for entry in entries]
    lists = EncodedPairs(*(scorer.encode(side, i) for i, side in enumerate(sides)))

    plain.eval()
    difference = float(abs(plain_scores(plain, lists) - scorer.log_probs(lists)).max())
    plain.train()
    trainer, by_torch = Trainer(task, recipe), plain_step(plain, config)

    def ours(done: float) -> Callable[[], None]:
        def train() -> None:
            for batch in batches:
                trainer.step(batch, done)

        return train

    def scored() -> None:
        plain.eval()
        plain_scores(plain, lists)
        plain.train()

    trained = sum(int(batch.tgt.lengths.sum()) + len(batch) for batch in batches)
    dtypes = [None, torch.bfloat16] if config.machine.precision == "bf16" else [None]
    works: dict[str, tuple[int, Callable[[], object], torch.dtype | None]] = {
        "target words/s trained on, plain": (trained, lambda: [by_torch(batch) for batch in batches], None)
    }
    for dtype in dtypes:
        for name, done in (("whole softmax", 1.0), ("drawn words", 0.5)):
            works[f"target words/s trained on, {name}{', bf16' if dtype else ''}"] = (trained, ours(done), dtype)
    works["entries/s, plain"] = (len(entries), scored, None)
    works["entries/s"] = (len(entries), lambda: scorer.log_probs(lists), None)
    counts, rates, shares = {}, defaultdict(list), defaultdict(list)
    for turn in range(options.rounds):
        keep_freed_memory(False)
        peak = sgemm(time.process_time)
        for name, (n, work, dtype) in works.items():
            model.loss_dtype = dtype
            keep_freed_memory("plain" not in name)
            if not turn:
                counts[name] = flops(work)
            spent = seconds(work)
            rates[name].append(n / spent)
            shares[name].append(counts[name] / spent / 1e9 / peak)
    result = {name: {"rate": statistics.median(rates[name]), "of_sgemm": statistics.median(shares[name])} for name in works}
    print(f"K = {len(store.tgt_vocab):,}, {len(entries):,} entries of {options.segments} segments, sgemm {peak:.0f} GFLOP/s")
    print(f"largest difference of log p from plain: {difference:.1e}")
    for name, of in result.items():
        ratio = of["rate"] / result[f"{name.split(',')[0]}, plain"]["rate"]
        each = " · ".join(f"{rate:,.0f}" for rate in rates[name])
        print(f"{name:50s}{of['rate']:8,.0f}  ratio {ratio:5.2f}  {of['of_sgemm']:4.0%} of sgemm  (rounds: {each})")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump({"difference": difference, "sgemm_gflops": peak, **result}, stream, indent=2)


if __name__ == "__main__":
    main()
