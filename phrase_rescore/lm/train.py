"""Training a language model, ``phrase-rescore train-lm``."""

import math
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.sampling import drawn_rows
from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary, check_donor, shared_rows
from phrase_rescore.lm.checkpoint import LanguageModel, load, save
from phrase_rescore.lm.config import LanguageModelConfig, LanguageModelNetwork, Regularization
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, Ngrams, initialise, ngrams_at
from phrase_rescore.lm.prepare import TextSource, TextStore
from phrase_rescore.messages import Listener, Say
from phrase_rescore.nn.dropout import dropout
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.nn.storage import copy_weights
from phrase_rescore.training.config import Observer
from phrase_rescore.training.run import Training, check_like, on_this_machine, train

_EVALUATED = 1024  # n-grams at a time
_SUMMARIZED = (
    "shortlist", "min_count", "preset", "dropout", "shorten", "self_normalize", "optimizer", "learning_rate", "objective",
    "clip", "decay", "warm_up", "paper_initialisation", "batch_size", "precision", "seed", "max_steps", "max_seconds",
)  # fmt: skip


@torch.no_grad()
def held_out_figures(model: FeedforwardLM, ids: NDArray[np.int32], device: torch.device | str = "cpu") -> dict[str, float]:
    """Return ``loss``, the negative log-likelihood per word in nats, EOS counted, and ``perplexity``, its exponential."""
    total = 0.0
    for start in range(0, len(ids), _EVALUATED):
        ngrams = ngrams_at(ids, np.arange(start, min(start + _EVALUATED, len(ids))), model.config.order)
        total += model(*_tensors(ngrams, device)).item()
    return {"loss": total / len(ids), "perplexity": math.exp(min(total / len(ids), 700.0))}


def _tensors(ngrams: Ngrams, device: torch.device | str) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(ngrams.contexts).to(device), torch.from_numpy(ngrams.words).to(device)


class NgramTask:
    """Gives the loop every n-gram of a text once a pass."""

    def __init__(
        self, model: FeedforwardLM, ids: NDArray[np.int32], held_out: NDArray[np.int32], batch_size: int, seed: int,
        device: str, regularization: Regularization,
    ) -> None:  # fmt: skip
        self.module, self.ids, self.held_out, self.regularization = model, ids, held_out, regularization
        self.batch_size, self.seed, self.device = min(batch_size, len(ids)), seed, device

    def batches(self, first: int = 0) -> Iterator[Ngrams]:
        """Yield minibatches of ``batch_size`` n-grams, drawn at random without replacement, pass after pass."""
        size, order = self.batch_size, self.module.config.order
        for number, places in enumerate(drawn_rows(len(self.ids), size, self.seed, first), first):
            ngrams = ngrams_at(self.ids, places, order)
            rng = np.random.default_rng((self.seed, number))
            lost = np.where(rng.random(size) < self.regularization.shorten, rng.integers(1, order, size), 0)  # words, 1 to all
            ngrams.contexts[np.arange(order - 1) < lost[:, None]] = self.module.config.missing
            yield Ngrams(ngrams.contexts, ngrams.words, (self.seed, number))

    def parts(self, batch: Ngrams, parts: int, step: int = 0, done: float = 1.0) -> list[Ngrams]:
        """Cut a minibatch into ``parts`` of like size."""
        ends = np.linspace(0, len(batch), parts + 1).astype(int)
        cut = list[Ngrams]()
        for number, (a, b) in enumerate(pairwise(ends.tolist())):
            cut.append(Ngrams(batch.contexts[a:b], batch.words[a:b], (*batch.draw, number)))
        return cut

    def pieces(self, part: Ngrams) -> list[Ngrams]:
        """Return the part itself: its rows are short."""
        return [part]

    def loss(self, module: nn.Module, piece: Ngrams) -> Tensor:
        """Return the negative log-likelihood of the n-grams in nats, plus α Σ log² Z: a scalar."""
        drop, alpha = dropout(self.regularization.dropout, piece.draw, self.device), self.regularization.self_normalize
        return module(*_tensors(piece, self.device), drop, alpha)  # type: ignore[no-any-return]

    def evaluate(self) -> dict[str, float] | None:
        """Return the held-out figures, None if no words are held out."""
        return held_out_figures(self.module, self.held_out, self.device) if len(self.held_out) else None


@torch.no_grad()
def centre(task: NgramTask) -> dict[str, float]:
    """Shift the biases of a trained model so that the mean log Z is 0: Moses takes logits for log-probabilities.

    Return log Z's ``mean`` before and ``deviation``, measured on 8,192 contexts of the held-out text, else of the text.
    """
    model, ids = task.module, task.held_out if len(task.held_out) else task.ids
    places = np.unique(np.linspace(0, len(ids) - 1, min(8192, len(ids))).astype(np.int64))
    contexts = ngrams_at(ids, places, model.config.order).contexts
    h_2 = model.hidden(torch.from_numpy(contexts).to(task.device))
    log_z = LogNormaliser(model.G.detach(), model.b_G.detach())(h_2).double()
    mean = float(log_z.mean())
    model.b_G.sub_(mean)
    return {"mean": mean, "deviation": float(log_z.std(correction=0))}


def initialise_from(model: FeedforwardLM, vocab: Vocabulary, donor: LanguageModel) -> str:
    """Copy the weights of a model of the same sizes; rows of words that it does not know stay. Return a line that says so."""
    here, there = shared_rows(vocab, donor.vocab)
    rows = dict.fromkeys(("G", "b_G"), (here, there))
    rows["embedding"] = [*here, model.config.missing], [*there, donor.model.config.missing]
    copy_weights(model, donor.model, rows)
    return f"{len(here) - FIRST_WORD:,} of {len(vocab.words):,} words start from the other model"


def train_text(inputs: Sequence[str], model_dir: str, config: LanguageModelConfig, observer: Observer | None) -> LanguageModel:
    """Train log p(word | the words before it) on all inputs; write and return the model. Raises RescoreError."""
    config = on_this_machine(config)
    text, network, recipe, device = config.text, config.network, config.recipe, config.machine.device
    init_from = network.init_from

    def check_start() -> None:
        if init_from:
            donor = load(init_from).model.config
            wanted = LanguageModelNetwork(donor.order, donor.embedding, donor.hidden, None if donor.tied else donor.output)
            check_like(network, wanted, ("order", "embedding", "hidden", "output"))

    def task(store: TextStore, listener: Listener) -> NgramTask:
        sizes = network.order, network.embedding, network.hidden, network.output or network.embedding
        model = FeedforwardLM(LanguageModelSizes(len(store.vocab), *sizes, tied=network.output is None))
        unigram = unigram_log_probs(store.train, len(store.vocab))
        initialise(model, recipe.seed, paper=network.paper_initialisation, unigram=unigram)
        if init_from:
            donor = load(init_from)
            listener.say(initialise_from(model, store.vocab, donor))
            check_donor(store.vocab, donor.vocab, listener.warn)
        data = store.train, store.held_out
        return NgramTask(model.to(device), *data, recipe.batch_size, recipe.seed, device, config.regularization)

    def model(task: NgramTask, store: TextStore, summary: dict[str, Any], warn: Say) -> LanguageModel:
        summary["log_z"] = centre(task)
        if init_from:
            summary["init_from"] = os.path.basename(init_from)
        return LanguageModel(task.module.to("cpu"), store.vocab, store.numbers.unk, summary)

    source = TextSource(inputs, model_dir, text)
    identity = config.identity(network, config.regularization) | {"shortlist": text.shortlist}
    steps = task, model, load, save, init_from, check_start
    return train(Training(config, source, identity, _SUMMARIZED, *steps, unit="words"), model_dir, observer)
