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
from phrase_rescore.errors import OptionError, RescoreError, cannot_write
from phrase_rescore.files.atomic import atomic_output
from phrase_rescore.models.checkpoint import LOG, Checkpoint, atomic_directory, check_target, load
from phrase_rescore.models.checkpoint import save as save_checkpoint
from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.models.warm_start import freeze, in_table_terms, initialise_from
from phrase_rescore.moses.pair_readers import refuse_by_name
from phrase_rescore.training.config import Network, Observer, Output, Start, TrainingConfig
from phrase_rescore.training.distributed import ProcessGroup, local_device, process_group
from phrase_rescore.training.final_pass import learn_held_out
from phrase_rescore.training.log import LogWriter, shortfall
from phrase_rescore.training.loop import NotFiniteError, Trainer
from phrase_rescore.training.phrase_pairs import PhrasePairTask
from phrase_rescore.training.prepare import beside, fingerprint, prepare
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

    Every process that torchrun started calls this; the first one prepares the pairs, talks and writes.
    """
    config = config or TrainingConfig()
    machine = replace(config.machine, device=local_device(runtime.resolve_device(config.machine.device)))
    config = replace(config, machine=machine)
    slow = _check(inputs, model_dir, config)
    runtime.prepare(machine.threads)
    runtime.set_tf32(machine.precision, machine.device)
    with process_group(machine.device) as processes:
        if observer is None or not processes.is_first:
            observer = Observer()
        if slow:
            observer.say(f"warning: {slow}")
        return _train(inputs, model_dir, config, processes, observer)


def _check(inputs: Sequence[str], model_dir: str, config: TrainingConfig) -> str:
    """Raise OptionError for what cannot be done, before hours of preparing pairs; return a warning or nothing."""
    start, machine, output, state_dir = config.start, config.machine, config.output, beside(model_dir, "training")
    if machine.precision not in runtime.PRECISIONS:
        raise OptionError(f"precision {machine.precision!r}; training knows {', '.join(runtime.PRECISIONS)}")
    slow = runtime.check_precision(machine.precision, machine.device)
    check_target(model_dir, output.overwrite)
    for path in inputs:
        refuse_by_name(path)
    if start.init_from:
        if load(start.init_from).inverse != config.data.inverse:
            what = "is of the other direction" + ("" if config.data.inverse else ", that of --inverse")
            raise OptionError(f"--init-from {start.init_from}: {what}; start from a model of the same")
    elif start.freeze:
        raise OptionError("--freeze keeps what --init-from brought; name a model to start from")
    config.recipe.check_held_out(config.data.held_out)
    interrupted = TrainingState(state_dir, {}).exists()
    if output.resume and not interrupted:
        raise OptionError(f"{state_dir}: no training to go on with; leave --resume out to begin one")
    if interrupted and not output.resume:
        raise OptionError(f"{state_dir} holds an interrupted training; go on with --resume, or delete it to begin anew")
    return slow


def _train(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig, processes: ProcessGroup, observer: Observer
) -> Checkpoint:
    data, machine, output = config.data, config.machine, config.output
    store = prepare(inputs, data, model_dir, machine.threads, processes, observer)
    config.recipe.check_held_out(store.numbers.held_out)
    recipe = config.recipe.limited(store.numbers.training)
    config = replace(config, recipe=recipe)
    model = build(store, config.network, config.start, recipe.seed, data.inverse, observer.say).to(machine.device)
    together = f", {processes.size} processes" if processes.size > 1 else ""
    observer.say(f"{model.config.parameters():,} parameters, {machine.threads} threads{together}, {machine.device}")
    training, held_out = (_as_learnt(pairs, data.inverse) for pairs in (store.train, store.held_out))
    task = PhrasePairTask(model, training, held_out, recipe.batch_size, recipe.seed, machine.device, recipe.group)
    state = TrainingState(beside(model_dir, "training"), run_identity(inputs, config, store, processes))
    log = LogWriter(os.path.join(state.directory, LOG), observer)
    threads = machine.threads if machine.device == "cpu" else 1  # a GPU is kept busy by the whole minibatch
    told = replace(observer, on_record=log.add)
    trainer = Trainer(task, recipe, threads=threads, processes=processes, state=state, observer=told)
    with _failure_explained(state, store, data.inverse, processes):
        outcome = fit(trainer, task, machine.precision, output.resume, evaluate_first=config.start.init_from is not None)
    unk_shares = store.numbers.source_unk, store.numbers.target_unk
    summary = training_summary(inputs, config, store) | outcome
    if found := shortfall(summary):
        observer.say(f"warning: {found}; train longer")
    vocabs = store.src_vocab, store.tgt_vocab
    checkpoint = Checkpoint(model.to("cpu"), *vocabs, unk_shares, summary, inverse=data.inverse, factors=data.factors)
    if processes.is_first:
        save(checkpoint, model_dir, output, log)
        state.remove()
    return checkpoint


def run_identity(inputs: Sequence[str], config: TrainingConfig, store: PairStore, processes: ProcessGroup) -> dict[str, Any]:
    """Return what a training must share with an interrupted one to go on with it: all that may change the weights.

    A part's new setting ends up here and keeps older states from being resumed, unless it is left out as patience is.
    """
    parts = store.numbers, config.network, config.start, config.recipe, config.machine
    run = {name: value for part in parts for name, value in asdict(part).items()}
    del run["patience"]
    return run | {
        "version": __version__,
        "torch": torch.__version__,
        "inputs": fingerprint(inputs, config.data),
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


def save(checkpoint: Checkpoint, model_dir: str, output: Output, log: LogWriter) -> None:
    """Write the model directory with the log in it. Raises RescoreError if it cannot be written; then nothing is left of it."""
    with atomic_directory(model_dir, output.overwrite) as directory:
        log.copy_to(os.path.join(directory, LOG))
        save_checkpoint(checkpoint, directory, output.save_dtype, output.shard_size)


@contextlib.contextmanager
def _failure_explained(state: TrainingState, store: PairStore, inverse: bool, processes: ProcessGroup) -> Iterator[None]:
    """Say after a failure or an interruption how to go on; keep the minibatch whose numbers were not finite."""
    try:
        yield
    except KeyboardInterrupt as error:
        if state.exists():
            error.add_note(f"{state.directory} has it as last measured; the same command with --resume goes on")
        raise
    except NotFiniteError as error:
        told = [f"{error.found} at step {error.step:,}"]
        if error.batch is not None and processes.is_first:
            path = os.path.join(state.directory, f"minibatch-{error.step:09d}.tsv")
            try:
                os.makedirs(state.directory, exist_ok=True)
                with atomic_output(path) as stream:
                    stream.write(_as_learnt(error.batch, inverse).as_tsv(store.src_vocab, store.tgt_vocab))
                told.append(f"its minibatch is in {path}")
            except RescoreError as failure:
                told.append(str(failure))
            except OSError as failure:
                told.append(cannot_write(path, failure))
        remedy = "try a smaller --learning-rate"
        if state.exists():
            told.append(f"{state.directory} has the last good state")
            remedy = f"delete it and {remedy}, or, if the machine failed, go on with --resume"
        raise RescoreError(f"{', '.join(told)}; {remedy}") from None
