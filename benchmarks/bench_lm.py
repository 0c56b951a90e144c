"""Language models: steps of training and n-best lists, plain PyTorch and ours side by side in one process.

usage: bench_lm.py [--text FILE] [--nbest FILE] [--preset default] [--steps 12] [--entries 2000] [--rounds 2] [--json FILE]

Plain training is the network as everybody writes it: nn.Embedding, nn.Linear, F.cross_entropy over a whole minibatch, the
same Adam, dropout and penalty. Plain scoring takes all n-grams of all hypotheses in minibatches of 1,024 with a log-softmax
over the vocabulary. Each round measures both and, right before, torch's sgemm.
"""

import argparse
import gzip
import json
import lzma
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from bench_scoring import sgemm
from inputs import beside
from torch import Tensor, nn
from torch.nn import functional

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.lm.config import PRESETS, LanguageModelConfig
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, initialise, ngrams_at
from phrase_rescore.lm.prepare import TextSource, TextStore
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.lm.train import NgramTask
from phrase_rescore.moses.hypotheses import read_entries
from phrase_rescore.nn.storage import numbers_of
from phrase_rescore.runtime import prepare, usable_cores
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import Trainer


class Plain(nn.Module):
    """The network by torch's own layers."""

    def __init__(self, sizes: LanguageModelSizes, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary + 1, sizes.embedding)
        self.hidden = nn.Linear((sizes.order - 1) * sizes.embedding, sizes.hidden)
        self.output = nn.Linear(sizes.hidden, sizes.output)
        self.logits = nn.Linear(sizes.output, sizes.vocabulary)
        self.tied = sizes.tied
        if sizes.tied:
            self.logits.weight.requires_grad = False  # never used
        self.dropout = nn.Dropout(dropout)

    def forward(self, contexts: Tensor) -> Tensor:
        h_1 = self.dropout(self.hidden(self.dropout(self.embedding(contexts).flatten(1))).relu())
        h_2 = self.dropout(self.output(h_1).relu())
        weight = self.embedding.weight[:-1] if self.tied else self.logits.weight
        return functional.linear(h_2, weight, self.logits.bias)


def plain_steps(plain: Plain, task: NgramTask, config: LanguageModelConfig, steps: int) -> float:
    """Train the plain network; return words a second."""
    parameters = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=config.recipe.learning_rate, fused=True)
    batches = task.batches()
    start, words = time.perf_counter(), 0
    for _ in range(steps):
        batch = next(batches)
        logits = plain(torch.from_numpy(batch.contexts))
        loss = functional.cross_entropy(logits, torch.from_numpy(batch.words))
        loss = loss + config.regularization.self_normalize * logits.logsumexp(1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config.recipe.clip)
        optimizer.step()
        words += len(batch)
    return words / (time.perf_counter() - start)


def our_steps(task: NgramTask, config: LanguageModelConfig, steps: int, threads: int, dtype: torch.dtype | None) -> float:
    """Train our network as ``train-lm`` does, with the products in ``dtype``; return words a second."""
    task.module.loss_dtype = dtype
    trainer = Trainer(task, config.override(max_steps=1_000_000).recipe, threads=threads)
    batches = task.batches()
    start, words = time.perf_counter(), 0
    for _ in range(steps):
        batch = next(batches)
        trainer.step(batch, 0.5)
        words += len(batch)
    took = time.perf_counter() - start
    trainer.gradients.close()
    task.module.loss_dtype = None
    return words / took


@torch.no_grad()
def plain_scores(plain: Plain, lm: LanguageModel, sentences: list[list[bytes]]) -> np.ndarray:
    """Score every n-gram of every hypothesis: log p of the hypotheses."""
    plain.eval()
    ids = np.concatenate([np.append(lm.vocab.encode(sentence), EOS) for sentence in sentences]).astype(np.int32)
    ngrams = ngrams_at(ids, np.arange(len(ids)), lm.model.config.order)
    found = []
    for start in range(0, len(ids), 1024):
        rows = slice(start, start + 1024)
        log_p = plain(torch.from_numpy(ngrams.contexts[rows])).log_softmax(1)
        found.append(log_p.gather(1, torch.from_numpy(ngrams.words[rows])[:, None])[:, 0])
    starts = np.cumsum([0, *(len(sentence) + 1 for sentence in sentences[:-1])])
    return np.add.reduceat(torch.cat(found).double().numpy(), starts)


def copy_weights(plain: Plain, model: FeedforwardLM) -> None:
    with torch.no_grad():
        for layer, weight, bias in (
            (plain.hidden, model.U, model.b_1), (plain.output, model.W, model.b_2), (plain.logits, model.G, model.b_G),
        ):  # fmt: skip
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        plain.embedding.weight.copy_(model.embedding)


def macs_of_training(sizes: LanguageModelSizes) -> int:
    """Return the multiplications of a word's training: forward, and twice as many backward."""
    n, E, H, R, K = sizes.order, sizes.embedding, sizes.hidden, sizes.output, sizes.vocabulary
    return 3 * ((n - 1) * E * H + H * R + R * K)


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return {".xz": lzma.decompress, ".gz": gzip.decompress}.get(path.suffix, bytes)(data)


def store_of(text: bytes, config: LanguageModelConfig, folder: Path) -> TextStore:
    (folder / "text").write_bytes(text)
    return TextSource([str(folder / "text")], str(folder / "lm"), config.text).prepare(Observer())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="by default that of the table's system")
    parser.add_argument("--nbest", type=Path, help="the same")
    parser.add_argument("--preset", choices=list(PRESETS), default="default")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.text = options.text or Path(beside("train.fr.xz", "train.fr"))
    options.nbest = options.nbest or Path(beside("nbest.dev.200.gz", "dev.2.nbest.gz"))
    config, cores = PRESETS[options.preset], usable_cores()
    prepare(cores)
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(unpacked(options.text), config, Path(folder))
        network = config.network
        widths = network.order, network.embedding, network.hidden, network.output or network.embedding
        sizes = LanguageModelSizes(len(store.vocab), *widths, tied=network.output is None)
        model = FeedforwardLM(sizes)
        initialise(model, 1, paper=config.network.paper_initialisation)
        settings = config.regularization
        task = NgramTask(model, store.train, store.held_out, config.recipe.batch_size, 1, "cpu", settings)
        plain = Plain(sizes, settings.dropout)
        lm = LanguageModel(model, store.vocab, store.numbers.unk, {})
        rows = gzip.decompress(options.nbest.read_bytes()).splitlines(keepends=True)[: options.entries]
        sentences = [entry.hypothesis() for entry in read_entries(rows, str(options.nbest))]
        peaks, train, score = [], {"plain": [], "ours": [], "ours, bf16": []}, {"plain": [], "ours": []}
        copy_weights(plain, model)
        for _ in range(options.rounds):
            for name in train:
                torch.set_num_threads(cores)
                peaks.append(sgemm())
                plain.train()
                steps = options.steps
                dtype = torch.bfloat16 if name == "ours, bf16" else None
                train[name].append(
                    plain_steps(plain, task, config, steps) if name == "plain" else our_steps(task, config, steps, cores, dtype)
                )
        copy_weights(plain, model)
        difference = 0.0
        for _ in range(options.rounds):
            torch.set_num_threads(cores)
            start = time.perf_counter()
            expected = plain_scores(plain, lm, sentences)
            score["plain"].append(len(sentences) / (time.perf_counter() - start))
            scorer = NgramScorer(lm)
            start = time.perf_counter()
            found = scorer.sentences(sentences)
            score["ours"].append(len(sentences) / (time.perf_counter() - start))
            difference = float(abs(found.sums() - expected).max())
    peak = statistics.median(peaks)
    rates = {what: {name: statistics.median(found) for name, found in of.items()} for what, of in
             (("words/s trained on", train), ("hypotheses/s", score))}  # fmt: skip
    numbers = numbers_of(task.module)
    print(f"{options.text.name}: K = {sizes.vocabulary:,}, {numbers:,} parameters, minibatch {task.batch_size}")
    print(f"{cores} cores, sgemm {peak:.0f} GFLOP/s")
    for what, of in rates.items():
        for name, rate in of.items():
            print(f"{what:16s} {name:10s} {rate:10,.0f}  ratio {rate / of['plain']:.2f}")
    share = 2 * macs_of_training(sizes) * rates["words/s trained on"]["ours"] / 1e9 / peak
    print(f"training: {share:.0%} of sgemm")
    print(f"largest difference of a hypothesis's log p: {difference:.1e}")
    if options.json:
        found = {"cores": cores, "sgemm_gflops": peak, **rates, "of_sgemm": share}
        Path(options.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
