"""Learning a model of phrase pairs, the whole of ``phrase-rescore train``; ``job`` has the frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import OptionError
from phrase_rescore.files.directories import check_replaceable
from phrase_rescore.files.paths import check_outputs
from phrase_rescore.nn.softmax import SURE
from phrase_rescore.rnn.checkpoint import Checkpoint, load, save
from phrase_rescore.rnn.final_pass import learn_held_out
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.prepare import check_inputs, find, fingerprint, prepare
from phrase_rescore.rnn.store import Numbers, PairStore
from phrase_rescore.rnn.task import PhrasePairTask
from phrase_rescore.rnn.warm_start import check_part, freeze, initialise_from, table_side
from phrase_rescore.training.config import Network, Observer, Recipe, Start, TrainingConfig
from phrase_rescore.training.log import shortfall
from phrase_rescore.training.loop import Trainer, make_optimizer
from phrase_rescore.training.processes import ProcessGroup
from phrase_rescore.training.session import on_this_machine, train

_AT_ONCE = 1 << 22  # ids
WORTHWHILE = 20 * SURE  # words of a softmax from which on to draw some of them saves more than it takes
# What the training summary of config.json takes from the settings, in its order
_SUMMARIZED = (
    "min_count", "max_length", "preset", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up",
    "paper_initialisation", "shortlist", "softmax", "batch_size", "group", "precision", "seed", "max_steps",
)  # fmt: skip


def is_sampled(softmax: str, words: int, device: str) -> bool:
    """Return whether a softmax of so many words is taken over drawn ones: a small one never, ``auto`` on a CPU."""
    return words >= WORTHWHILE and (softmax == "sampled" or (softmax == "auto" and device == "cpu"))


def training_summary(inputs: Sequence[str], config: TrainingConfig, store: PairStore) -> dict[str, Any]:
    """Return what config.json says of the settings. Nothing in it differs between two runs of the same training."""
    settings = {**config.settings(), "preset": config.preset}
    init_from = config.start.init_from
    return {
        "inputs": [os.path.basename(path) for path in inputs],
        "distinct_pairs": {"training": store.numbers.training, "held_out": store.numbers.held_out},
        **{name: settings[name] for name in _SUMMARIZED},
        "max_seconds": config.recipe.max_time,
        "init_from": os.path.basename(init_from) if init_from else None,
        "init": config.start.init if init_from else None,
        "frozen": list(config.start.freeze),
    }


@dataclass
class PhrasePairs:
    """The job of learning log p(target | source) from the distinct pairs of all inputs."""

    inputs: Sequence[str]
    model_dir: str
    config: TrainingConfig

    def check_settings(self) -> None:
        """Raise OptionError for settings that cannot be."""
        start = self.config.start
        if start.freeze and not start.init_from:
            raise OptionError("--freeze keeps what --init-from brought; name a model to start from")
        with torch.device("meta"):
            trial = RNNEncoderDecoder(ModelConfig(3, 3, **asdict(self.config.network)))
        freeze(trial, [table_side(part, self.config.data.inverse) for part in start.freeze])
        make_optimizer(self.config.recipe, trial)
        self.config.recipe.check_held_out(self.config.data.held_out)

    def identity(self) -> dict[str, Any]:
        """Return all settings that may change the weights.

        A part's new setting ends up here and keeps older states from being resumed, unless it is left out as patience is.
        Whether bad rows are dropped may change, if it does not change the pairs, which the state compares themselves.
        """
        parts = self.config.network, self.config.start, self.config.recipe
        run = {name: value for part in parts for name, value in asdict(part).items()}
        del run["patience"]
        data = self.config.data
        pairs = fingerprint(self.inputs, replace(data, drop_bad_rows=False))
        return run | {"data": pairs, "shortlist": data.shortlist, "inverse": data.inverse}

    def check_files(self, processes: ProcessGroup, say: Callable[[str], None]) -> None:
        """Raise OptionError, InputError or ModelError for paths and files that will not do."""
        data, start = self.config.data, self.config.start
        check_outputs(self.inputs, self.model_dir)
        check_replaceable(self.model_dir)
        if start.init_from:
            donor = load(start.init_from)
            if donor.inverse != data.inverse:
                what = "is of the other direction" + ("" if data.inverse else ", that of --inverse")
                raise OptionError(f"--init-from {start.init_from}: {what}; start from a model of the same")
            check_part(self.config.network, donor.model.config, start.init)
        if processes.size > 1 and fingerprint(self.inputs, data) is None:
            raise OptionError("many processes need inputs that can be read twice: files, and no pipe or standard input")
        check_inputs(self.inputs, data, say)

    def prepare(self, observer: Observer, check: Callable[[Numbers], None]) -> PairStore:
        """Return the distinct pairs, prepared on disk."""
        return prepare(self.inputs, self.config.data, self.model_dir, self.config.machine.threads, observer, check)

    def find(self) -> PairStore | None:
        """Return the pairs if they are prepared already."""
        return find(self.inputs, self.config.data, self.model_dir)

    def numbers(self, store: PairStore) -> Numbers:
        """Return what the pairs are known by."""
        return store.numbers

    def recipe(self, store: PairStore) -> Recipe:
        """Return how the pairs are learnt, with an end."""
        self.config.recipe.check_held_out(store.numbers.held_out)
        return self.config.recipe.limited(store.numbers.training)

    def task(self, store: PairStore, recipe: Recipe, say: Callable[[str], None]) -> PhrasePairTask:
        """Return the model before its first step, with the pairs that it learns."""
        data, device = self.config.data, self.config.machine.device
        model = build(store, self.config.network, self.config.start, recipe.seed, data.inverse, say).to(device)
        training, held_out = (_as_learnt(pairs, data.inverse) for pairs in (store.train, store.held_out))
        group, softmax, words = self.config.recipe.group, self.config.recipe.softmax, model.config.tgt_vocabulary
        sampled = is_sampled(softmax, words, device)
        if softmax == "sampled" and not sampled:
            say(f"the softmax is over all of its {words:,} words: to draw some of them would save no time")
        return PhrasePairTask(model, training, held_out, recipe.batch_size, recipe.seed, device, group, sampled)

    def fit(self, trainer: Trainer, resume: bool) -> dict[str, Any]:
        """Train, with the final pass if the recipe has one; return what config.json says of the outcome."""
        task = cast(PhrasePairTask, trainer.task)
        task.module.loss_dtype = torch.bfloat16 if self.config.machine.precision == "bf16" else None
        outcome = trainer.fit(resume, evaluate_first=self.config.start.init_from is not None)
        task.module.loss_dtype = None  # what follows is measured in float32
        control = task.control() if outcome.best and trainer.processes.is_first else None
        final_pass = learn_held_out(task, trainer) if self.config.recipe.final_pass and len(task.held_out) else None
        return {
            "steps": outcome.steps,
            "passes": round(task.passes(outcome.steps), 4),
            "best_step": outcome.best_step,
            "held_out": outcome.best,
            "held_out_other_sources": control,
            "final_pass": final_pass,
        }

    def made(
        self, store: PairStore, trainer: Trainer, outcome: dict[str, Any], say: Callable[[str], None]
    ) -> Checkpoint:  # fmt: skip
        """Return the trained model."""
        data = self.config.data
        softmax = "sampled" if cast(PhrasePairTask, trainer.task).sampled else "full"
        config = self.config.override(max_steps=trainer.recipe.max_steps, softmax=softmax)
        summary = training_summary(self.inputs, config, store) | outcome
        if found := shortfall(summary):
            say(f"warning: {found}; train longer")
        vocabs, shares = (store.src_vocab, store.tgt_vocab), (store.numbers.source_unk, store.numbers.target_unk)
        model = cast(RNNEncoderDecoder, trainer.module).to("cpu")
        return Checkpoint(model, *vocabs, shares, summary, inverse=data.inverse, factors=data.factors)

    def in_words(self, store: PairStore, batch: EncodedPairs) -> bytes:
        """Return the pairs of a minibatch as TSV."""
        return _as_learnt(batch, self.config.data.inverse).as_tsv(store.src_vocab, store.tgt_vocab)

    def save(self, made: Checkpoint, directory: str) -> None:
        """Write the files of the model into a directory."""
        save(made, directory)

    def load(self) -> Checkpoint:
        """Return the model that is in the model directory."""
        return load(self.model_dir)


def train_model(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig | None = None, observer: Observer | None = None
) -> Checkpoint:
    """Learn log p(target | source) from the distinct pairs of all inputs, write the model directory and return the model.

    Raises as ``training.session.train`` does.
    """
    config = config or TrainingConfig()
    config = replace(config, machine=on_this_machine(config.machine))
    return train(PhrasePairs(inputs, model_dir, config), observer)


def build(
    store: PairStore, network: Network, start: Start, seed: int, inverse: bool, say: Callable[[str], None]
) -> RNNEncoderDecoder:
    """Return the model before its first step."""
    vocabs = (store.src_vocab, store.tgt_vocab)
    read, predicted = reversed(vocabs) if inverse else vocabs
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), **asdict(network)))
    unigram = unigram_log_probs(_as_learnt(store.train, inverse), len(predicted))
    initialise(model, seed, paper=start.paper_initialisation, unigram=unigram)
    frozen = [table_side(part, inverse) for part in start.freeze]
    if start.init_from:
        report = initialise_from(model, read, predicted, load(start.init_from), start.init)
        for line in report.lines(frozen):
            say(line)
    if frozen:
        freeze(model, frozen)
    return model


def unigram_log_probs(pairs: EncodedPairs, size: int) -> list[float]:
    """Return the natural log of the smoothed relative frequency of every target id, EOS included: (size,)."""
    counts = np.ones(size)
    for start in range(0, len(pairs.tgt.ids), _AT_ONCE):  # bincount makes eight bytes of every id
        counts += np.bincount(pairs.tgt.ids[start : start + _AT_ONCE], minlength=size)
    counts[EOS] += len(pairs)
    return [float(x) for x in np.log(counts / counts.sum())]


def _as_learnt(pairs: EncodedPairs, inverse: bool) -> EncodedPairs:
    """Turn pairs from the table's terms to the network's, or back."""
    return pairs.swapped if inverse else pairs
