"""From files of phrase pairs to a model directory, the whole of ``phrase-rescore train``: prepare, build, fit, save."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from phrase_rescore import __version__, runtime
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.store import PairStore
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import OptionError
from phrase_rescore.files.atomic import check_replaceable
from phrase_rescore.files.locks import locked
from phrase_rescore.files.paths import Role, Use, check_paths
from phrase_rescore.models.checkpoint import Checkpoint, load, save
from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.models.storage import DTYPES, LOG
from phrase_rescore.models.warm_start import check_part, freeze, in_table_terms, initialise_from
from phrase_rescore.training.config import Data, Network, Observer, Start, TrainingConfig
from phrase_rescore.training.distributed import ProcessGroup, find_processes, local_device, process_group
from phrase_rescore.training.final_pass import learn_held_out
from phrase_rescore.training.log import LogWriter, shortfall
from phrase_rescore.training.loop import Trainer, make_optimizer
from phrase_rescore.training.phrase_pairs import PhrasePairTask
from phrase_rescore.training.prepare import beside, check_inputs, find, fingerprint, prepare, scratch_dir, store_dir
from phrase_rescore.training.publishing import can_begin, failure_explained, publish
from phrase_rescore.training.state import TrainingState

_AT_ONCE = 1 << 22  # ids
# What the training summary of config.json takes from the settings, in its order
_SUMMARIZED = (
    "min_count", "max_length", "preset", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up",
    "paper_initialisation", "shortlist", "batch_size", "group", "precision", "seed", "max_steps",
)  # fmt: skip


def train_model(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig | None = None, observer: Observer | None = None
) -> Checkpoint:
    """Learn log p(target | source) from the distinct pairs of all inputs, write the model directory and return the model.

    The same inputs, settings and torch build give the same files, byte for byte, on a CPU if the run ends by ``max_steps``
    (the log aside), however often it was killed and resumed. Raises OptionError, InputError or RescoreError. Then no model
    directory is left, only, once training had begun, the state from which ``resume`` goes on.

    Every process that torchrun started calls this; the first one prepares the pairs, talks and writes. It holds the lock of
    the model directory (``files.locks``) from before its first write until the model has its name.
    """
    config = config or TrainingConfig()
    machine = replace(config.machine, device=local_device(runtime.resolve_device(config.machine.device)))
    config = replace(config, machine=machine)
    slow = _check_settings(config)
    runtime.prepare(machine.threads)
    runtime.set_tf32(machine.precision, machine.device)
    processes, talk = find_processes(), observer or Observer()
    observer = talk if processes.is_first else Observer()
    if slow:
        observer.say(f"warning: {slow}")
    state = TrainingState(beside(model_dir, "training"), run_identity(inputs, config, processes))
    with contextlib.ExitStack() as held:
        prepared: list[PairStore] = []

        def begin() -> bool:
            """Prepare the pairs, with the lock that is held to the end; return whether anything is left to do."""
            _check_files(inputs, model_dir, config, processes, observer.say)
            os.makedirs(os.path.dirname(os.path.realpath(model_dir)), exist_ok=True)
            held.enter_context(locked(model_dir, "let it end, or name another directory with -m", observer.say))
            if not can_begin(model_dir, config.output, state, observer.say):
                return False
            prepared.append(prepare(inputs, config.data, model_dir, machine.threads, observer, state.check_data))
            return True

        if not processes.first_alone(begin, talk.say):
            return load(model_dir)
        store = prepared[0] if prepared else find(inputs, config.data, model_dir)
        if store is None:
            raise OptionError("many processes need a --pairs directory, and inputs, that all of them see under the same names")
        state.check_data(store.numbers)
        resume = state.exists()
        with process_group(machine.device, processes):
            return _train(inputs, model_dir, config, processes, observer, store, state, resume)


def _check_settings(config: TrainingConfig) -> str:
    """Raise OptionError for settings that cannot be, before hours of preparing pairs; return a warning or nothing."""
    start, machine = config.start, config.machine
    if machine.precision not in runtime.PRECISIONS:
        raise OptionError(f"precision {machine.precision!r}; training knows {', '.join(runtime.PRECISIONS)}")
    if config.output.save_dtype not in DTYPES:
        raise OptionError(f"--save-dtype {config.output.save_dtype}; known are {', '.join(DTYPES)}")
    if start.freeze and not start.init_from:
        raise OptionError("--freeze keeps what --init-from brought; name a model to start from")
    with torch.device("meta"):
        trial = RNNEncoderDecoder(ModelConfig(3, 3, **asdict(config.network)))
    freeze(trial, [in_table_terms(part, config.data.inverse) for part in start.freeze])
    make_optimizer(config.recipe, trial)
    config.recipe.check_held_out(config.data.held_out)
    return runtime.check_precision(machine.precision, machine.device)


def _uses(inputs: Sequence[str], model_dir: str, data: Data, start: Start) -> Iterator[Use]:
    """Yield all paths of a training. A model may start from the one that it replaces."""
    for path in inputs:
        yield Use("INPUT", path, Role.READ)
    given = {"--source-vocab": data.source_vocab, "--target-vocab": data.target_vocab}
    for option, file in (*given.items(), *(("--vocab-corpus", path) for path in data.vocab_corpus or ())):
        if file is not None:
            yield Use(option, file, Role.READ)
    if start.init_from is not None and os.path.realpath(start.init_from) != os.path.realpath(model_dir):
        yield Use("--init-from", start.init_from, Role.READ_DIRECTORY)
    yield Use("-m", model_dir, Role.WRITE_DIRECTORY)
    yield Use("-m's state", beside(model_dir, "training"), Role.WRITE_DIRECTORY)
    ready = find(inputs, data, model_dir) is not None  # then they are only read, perhaps where one may not write
    pairs_option = "--pairs" if data.pairs_dir else "--pairs's default"
    yield Use(pairs_option, store_dir(data, model_dir), Role.READ_DIRECTORY if ready else Role.WRITE_DIRECTORY)
    if data.drop_bad_rows:
        yield Use("-m's dropped rows", beside(model_dir, "dropped"), Role.WRITE)
    yield Use("--scratch" if data.scratch else "--scratch's default", scratch_dir(data), Role.SCRATCH)


def _check_files(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig, processes: ProcessGroup, say: Callable[[str], None]
) -> None:
    """Raise OptionError, InputError or ModelError for paths and files that will not do, before hours of preparing pairs."""
    data, start = config.data, config.start
    check_paths(_uses(inputs, model_dir, data, start))
    check_replaceable(model_dir)
    if start.init_from:
        donor = load(start.init_from)
        if donor.inverse != data.inverse:
            what = "is of the other direction" + ("" if data.inverse else ", that of --inverse")
            raise OptionError(f"--init-from {start.init_from}: {what}; start from a model of the same")
        check_part(config.network, donor.model.config, start.init)
    if processes.size > 1 and fingerprint(inputs, data) is None:
        raise OptionError("many processes need inputs that can be read twice: files, and no pipe or standard input")
    check_inputs(inputs, data, say)


def _train(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig, processes: ProcessGroup, observer: Observer,
    store: PairStore, state: TrainingState, resume: bool,
) -> Checkpoint:  # fmt: skip
    data, machine, output = config.data, config.machine, config.output
    config.recipe.check_held_out(store.numbers.held_out)
    recipe = config.recipe.limited(store.numbers.training)
    config = replace(config, recipe=recipe)
    model = build(store, config.network, config.start, recipe.seed, data.inverse, observer.say).to(machine.device)
    together = f", {processes.size} processes" if processes.size > 1 else ""
    observer.say(f"{model.config.parameters():,} parameters, {machine.threads} threads{together}, {machine.device}")
    training, held_out = (_as_learnt(pairs, data.inverse) for pairs in (store.train, store.held_out))
    task = PhrasePairTask(model, training, held_out, recipe.batch_size, recipe.seed, machine.device, recipe.group)
    log = LogWriter(os.path.join(state.directory, LOG), observer)
    threads = machine.threads if machine.device == "cpu" else 1  # a GPU is kept busy by the whole minibatch
    told = replace(observer, on_record=log.add)
    trainer = Trainer(task, recipe, threads=threads, processes=processes, state=state, observer=told)

    def in_words(batch: EncodedPairs) -> bytes:
        return _as_learnt(batch, data.inverse).as_tsv(store.src_vocab, store.tgt_vocab)

    with failure_explained(state, processes, in_words):
        outcome = fit(trainer, task, machine.precision, resume, evaluate_first=config.start.init_from is not None)
    unk_shares = store.numbers.source_unk, store.numbers.target_unk
    summary = training_summary(inputs, config, store) | outcome
    if found := shortfall(summary):
        observer.say(f"warning: {found}; train longer")
    vocabs = store.src_vocab, store.tgt_vocab
    checkpoint = Checkpoint(model.to("cpu"), *vocabs, unk_shares, summary, inverse=data.inverse, factors=data.factors)
    if processes.is_first:

        def write(directory: str) -> None:
            save(checkpoint, directory, output.save_dtype, output.shard_size)

        publish(write, model_dir, output, log, state, observer.say)
    return checkpoint


def run_identity(inputs: Sequence[str], config: TrainingConfig, processes: ProcessGroup) -> dict[str, Any]:
    """Return what a training must share with an interrupted one to go on with it: all that may change the weights.

    A part's new setting ends up here and keeps older states from being resumed, unless it is left out as patience is. The
    state compares the pairs themselves: whether bad rows are dropped may change, if it does not change the pairs.
    """
    parts = config.network, config.start, config.recipe, config.machine
    run = {name: value for part in parts for name, value in asdict(part).items()}
    del run["patience"]
    return run | {
        "version": __version__,
        "torch": torch.__version__,
        "data": fingerprint(inputs, replace(config.data, drop_bad_rows=False)),
        "shortlist": config.data.shortlist,
        "inverse": config.data.inverse,
        "processes": processes.size,
        "device": torch.device(config.machine.device).type,
    }


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


def build(
    store: PairStore, network: Network, start: Start, seed: int, inverse: bool, say: Callable[[str], None]
) -> RNNEncoderDecoder:
    """Return the model before its first step."""
    vocabs = (store.src_vocab, store.tgt_vocab)
    read, predicted = reversed(vocabs) if inverse else vocabs
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), **asdict(network)))
    unigram = unigram_log_probs(_as_learnt(store.train, inverse), len(predicted))
    initialise(model, seed, paper=start.paper_initialisation, unigram=unigram)
    frozen = [in_table_terms(part, inverse) for part in start.freeze]
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
    return pairs.turned_round if inverse else pairs


def fit(trainer: Trainer, task: PhrasePairTask, precision: str, resume: bool, evaluate_first: bool) -> dict[str, Any]:
    """Train the task's model, with the final pass if the recipe has one; return what config.json says of the outcome."""
    task.module.loss_dtype = torch.bfloat16 if precision == "bf16" else None
    outcome = trainer.fit(resume, evaluate_first)
    task.module.loss_dtype = None  # what follows is measured in float32
    control = task.control() if outcome.best and trainer.processes.is_first else None
    final_pass = learn_held_out(task, trainer) if trainer.recipe.final_pass and len(task.held_out) else None
    return {
        "steps": outcome.steps,
        "passes": round(task.passes(outcome.steps), 4),
        "best_step": outcome.best_step,
        "held_out": outcome.best,
        "held_out_other_sources": control,
        "final_pass": final_pass,
    }
