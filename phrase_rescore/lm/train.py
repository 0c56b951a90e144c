"""Learning a language model, the whole of ``phrase-rescore train-lm``; ``job`` has the frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import read_shortlist
from phrase_rescore.errors import OptionError
from phrase_rescore.files.directories import check_replaceable
from phrase_rescore.files.inputs import open_input
from phrase_rescore.files.paths import check_outputs
from phrase_rescore.lm.arpa import END, UNKNOWN
from phrase_rescore.lm.checkpoint import LanguageModel, load, save
from phrase_rescore.lm.config import LanguageModelConfig
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, initialise
from phrase_rescore.lm.ngrams import Ngrams
from phrase_rescore.lm.nplm import NULL
from phrase_rescore.lm.prepare import find, fingerprint, prepare
from phrase_rescore.lm.store import RESERVED, Numbers, TextStore
from phrase_rescore.lm.task import NgramTask, centre
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.loop import Trainer, make_optimizer
from phrase_rescore.training.processes import ProcessGroup
from phrase_rescore.training.session import on_this_machine, train

_AT_ONCE = 1 << 22  # ids
_SUMMARIZED = (
    "shortlist", "min_count", "preset", "dropout", "shorten", "self_normalize", "optimizer", "learning_rate", "objective",
    "clip", "decay", "warm_up", "paper_initialisation", "batch_size", "precision", "seed", "max_steps",
)  # fmt: skip


@dataclass
class LanguageModelling:
    """The job of learning log p(word | the words before it) from a text."""

    inputs: Sequence[str]
    model_dir: str
    config: LanguageModelConfig

    def check_settings(self) -> None:
        """Raise OptionError for settings that cannot be."""
        with torch.device("meta"):
            make_optimizer(self.config.recipe, FeedforwardLM(sizes(self.config, 3)))
        text = self.config.text
        self.config.recipe.check_held_out(min(text.held_out, int(text.held_out_share > 0)))

    def identity(self) -> dict[str, Any]:
        """Return all settings that may change the weights."""
        parts = self.config.network, self.config.regularization, self.config.recipe
        run = {name: value for part in parts for name, value in asdict(part).items()}
        del run["patience"]
        return run | {"data": fingerprint(self.inputs, self.config.text), "shortlist": self.config.text.shortlist}

    def check_files(self, processes: ProcessGroup, say: Callable[[str], None]) -> None:
        """Raise OptionError or InputError for paths and files that will not do."""
        check_outputs(self.inputs, self.model_dir)
        check_replaceable(self.model_dir)
        if processes.size > 1 and fingerprint(self.inputs, self.config.text) is None:
            raise OptionError("many processes need inputs that can be read twice: files, and no pipe or standard input")
        for path in filter(os.path.isfile, self.inputs):
            open_input(path).close()
        if (vocab := self.config.text.vocab) and os.path.isfile(vocab):
            read_shortlist(vocab, RESERVED)

    def prepare(self, observer: Observer, check: Callable[[Numbers], None]) -> TextStore:
        """Return the encoded text, prepared on disk."""
        return prepare(self.inputs, self.config.text, self.model_dir, observer, check)

    def find(self) -> TextStore | None:
        """Return the encoded text if it is prepared already."""
        return find(self.inputs, self.config.text, self.model_dir)

    def numbers(self, store: TextStore) -> Numbers:
        """Return what the text is known by."""
        return store.numbers

    def recipe(self, store: TextStore) -> Recipe:
        """Return how the text is learnt, with an end."""
        self.config.recipe.check_held_out(len(store.held_out))
        return self.config.recipe.limited(len(store.train))

    def task(self, store: TextStore, recipe: Recipe, say: Callable[[str], None]) -> NgramTask:
        """Return the model before its first step, with the n-grams that it learns."""
        regularization, device = self.config.regularization, self.config.machine.device
        model = FeedforwardLM(sizes(self.config, len(store.vocab)))
        unigram = unigram_log_probs(store.train, len(store.vocab))
        initialise(model, recipe.seed, paper=self.config.network.paper_initialisation, unigram=unigram)
        return NgramTask(
            model.to(device), store.train, store.held_out, recipe.batch_size, recipe.seed, device,
            dropout=regularization.dropout, shorten=regularization.shorten, alpha=regularization.self_normalize,
        )  # fmt: skip

    def fit(self, trainer: Trainer, resume: bool) -> dict[str, Any]:
        """Train; return what config.json says of the outcome."""
        task = cast(NgramTask, trainer.task)
        task.module.loss_dtype = torch.bfloat16 if self.config.machine.precision == "bf16" else None
        outcome = trainer.fit(resume)
        task.module.loss_dtype = None
        return {
            "steps": outcome.steps,
            "passes": round(task.passes(outcome.steps), 4),
            "best_step": outcome.best_step,
            "held_out": outcome.best,
            "log_z": centre(task),
        }

    def made(
        self, store: TextStore, trainer: Trainer, outcome: dict[str, Any], say: Callable[[str], None]
    ) -> LanguageModel:  # fmt: skip
        """Return the trained model."""
        config = self.config.override(max_steps=trainer.recipe.max_steps)
        settings, numbers = {**config.settings(), "preset": config.preset}, store.numbers
        summary = {
            "inputs": [os.path.basename(path) for path in self.inputs],
            "sentences": {"training": numbers.sentences, "held_out": numbers.held_out_sentences},
            "words": {"training": numbers.words, "held_out": numbers.held_out_words},
            **{name: settings[name] for name in _SUMMARIZED},
            "max_seconds": config.recipe.max_time,
        }
        model = cast(FeedforwardLM, trainer.module).to("cpu")
        return LanguageModel(model, store.vocab, numbers.unk, summary | outcome)

    def in_words(self, store: TextStore, batch: Ngrams) -> bytes:
        """Return the n-grams of a minibatch, one a line, a tab before the last word."""
        words = (END, UNKNOWN, *store.vocab.words, NULL)
        rows = zip(batch.contexts.tolist(), batch.words.tolist(), strict=True)
        return b"".join(b"%b\t%b\n" % (b" ".join(words[i] for i in context), words[word]) for context, word in rows)

    def save(self, made: LanguageModel, directory: str) -> None:
        """Write the files of the model into a directory."""
        save(made, directory)

    def load(self) -> LanguageModel:
        """Return the model that is in the model directory."""
        return load(self.model_dir)


def sizes(config: LanguageModelConfig, vocabulary: int) -> LanguageModelSizes:
    network = config.network
    output = network.output or network.embedding
    return LanguageModelSizes(vocabulary, network.order, network.embedding, network.hidden, output, network.output is None)


def train_language_model(
    inputs: Sequence[str], model_dir: str, config: LanguageModelConfig | None = None, observer: Observer | None = None
) -> LanguageModel:
    """Learn log p(word | the words before it) from all inputs, write the model directory and return the model.

    Raises as ``training.session.train`` does.
    """
    config = config or LanguageModelConfig()
    config = replace(config, machine=on_this_machine(config.machine))
    return train(LanguageModelling(inputs, model_dir, config), observer)


def unigram_log_probs(ids: NDArray[np.int32], size: int) -> list[float]:
    """Return the natural log of the smoothed relative frequency of every id of a text: (size,)."""
    counts = np.ones(size)
    for start in range(0, len(ids), _AT_ONCE):  # bincount makes eight bytes of every id
        counts += np.bincount(ids[start : start + _AT_ONCE], minlength=size)
    return [float(x) for x in np.log(counts / counts.sum())]
