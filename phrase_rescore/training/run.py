"""From files of phrase pairs to a model directory: the whole of ``phrase-rescore train``."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from phrase_rescore import __version__
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.store import PairStore, open_store
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import OptionError, RescoreError, cannot_write
from phrase_rescore.files.atomic import atomic_output
from phrase_rescore.models.checkpoint import LOG, Checkpoint, atomic_directory, check_target, load, save
from phrase_rescore.models.encoder_decoder import PAPER_PARAMETERS, ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.models.warm_start import freeze, in_table_terms, initialise_from
from phrase_rescore.moses.pair_readers import refuse_by_name
from phrase_rescore.runtime import PRECISIONS, check_precision, prepare, resolve_device, set_tf32
from phrase_rescore.training.distributed import Ranks, joined, local_device
from phrase_rescore.training.final_pass import FinalPassTask
from phrase_rescore.training.loop import NotFiniteError, Outcome, Recipe, train
from phrase_rescore.training.options import Observer, Options
from phrase_rescore.training.phrase_pairs import PhrasePairTask
from phrase_rescore.training.prepare import fingerprint, prepared
from phrase_rescore.training.presets import PRESETS
from phrase_rescore.training.state import TrainingState

_AT_ONCE = 1 << 22  # ids
_SECONDS_BETWEEN = 20.0  # what is said of the final pass


def unigram_log_probs(pairs: EncodedPairs, size: int) -> list[float]:
    """Natural log of the smoothed relative frequency of every target id, EOS included: (size,)."""
    counts = np.ones(size)
    for start in range(0, len(pairs.tgt.ids), _AT_ONCE):  # bincount makes eight bytes of every id
        counts += np.bincount(pairs.tgt.ids[start : start + _AT_ONCE], minlength=size)
    counts[EOS] += len(pairs)
    return [float(x) for x in np.log(counts / counts.sum())]


def _as_learnt(options: Options, pairs: EncodedPairs) -> EncodedPairs:
    """Pairs of the store, which are the table's, as the network takes them."""
    return pairs.turned_round if options.inverse else pairs


def _model(options: Options, store: PairStore, say: Callable[[str], None]) -> RNNEncoderDecoder:
    """The model before its first step."""
    settings, vocabs = options.settings, (store.src_vocab, store.tgt_vocab)
    read, predicted = reversed(vocabs) if options.inverse else vocabs
    sizes = len(read), len(predicted)
    config = ModelConfig(*sizes, settings.hidden, settings.embedding, settings.maxout, settings.rank)
    if settings == PRESETS["paper"] and set(sizes) == {settings.shortlist + 2}:
        assert config.parameters() == PAPER_PARAMETERS
    model = RNNEncoderDecoder(config)
    initialise(
        model,
        options.seed,
        paper=settings.paper_initialisation,
        unigram=unigram_log_probs(_as_learnt(options, store.train), sizes[1]),
    )
    frozen = [in_table_terms(part, options.inverse) for part in options.freeze]
    if options.init_from:
        report = initialise_from(model, read, predicted, load(options.init_from), options.init)
        for line in report.lines(frozen):
            say(line)
    if frozen:
        freeze(model, frozen)
    return model


def _limit(options: Options, pairs: int) -> int | None:
    """The number of steps: as asked, or the preset's passes where neither steps nor time are given."""
    if options.max_steps is None and options.max_time is None:
        return max(1, math.ceil(options.settings.epochs * pairs / options.settings.batch_size))
    return options.max_steps


def _summary(
    options: Options,
    store: PairStore,
    max_steps: int | None,
    outcome: Outcome,
    control: dict[str, float] | None,
    final_pass: dict[str, Any] | None,
) -> dict[str, Any]:
    """What config.json says about training. Nothing that differs between two runs of the same thing."""
    s = options.settings
    return {
        "inputs": [os.path.basename(path) for path in options.inputs],
        "distinct_pairs": {"training": store.numbers.training, "held_out": store.numbers.held_out},
        "min_count": options.min_count,
        "max_length": options.max_length,
        "preset": options.preset,
        "optimizer": s.optimizer,
        "learning_rate": s.learning_rate,
        "objective": s.objective,
        "clip": s.clip,
        "decay": s.decay,
        "warm_up": s.warm_up,
        "paper_initialisation": s.paper_initialisation,
        "shortlist": s.shortlist,
        "batch_size": s.batch_size,
        "group": s.group,
        "precision": options.precision,
        "seed": options.seed,
        "max_steps": max_steps,
        "max_seconds": options.max_time,
        "init_from": os.path.basename(options.init_from) if options.init_from else None,
        "init": options.init if options.init_from else None,
        "frozen": list(options.freeze),
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "held_out": outcome.best,
        "held_out_other_sources": control,
        "final_pass": final_pass,
    }


def _identity(options: Options, store: PairStore, ranks: Ranks, device: str, max_steps: int | None) -> dict[str, Any]:
    """What a training must have in common with an interrupted one to go on with it."""
    return {
        "version": __version__,
        "torch": torch.__version__,
        "inputs": fingerprint(options),
        **asdict(store.numbers),
        **asdict(options.settings),
        **{
            name: getattr(options, name)
            for name in (
                "seed",
                "threads",
                "precision",
                "max_time",
                "eval_every",
                "init_from",
                "init",
                "freeze",
                "final_pass",
                "inverse",
            )
        },
        "max_steps": max_steps,
        "processes": ranks.world,
        "device": torch.device(device).type,
    }


def _warn(options: Options, store: PairStore, say: Callable[[str], None]) -> None:
    numbers = store.numbers
    say(f"{numbers.training:,} distinct pairs to learn from, {numbers.held_out:,} held out")
    if options.held_out and not numbers.held_out:
        say("warning: too few sources to hold any out; the last model is kept, not the best")
    for side, share in (("source", numbers.source_unk), ("target", numbers.target_unk)):
        if share == 0:
            say(f"warning: no unknown {side} word among the pairs: UNK is not learnt; a smaller --shortlist would leave some")


def train_model(options: Options, observer: Observer | None = None) -> Checkpoint:
    """Learns log p(target | source) from the distinct pairs of all inputs and writes the model directory.

    The same inputs, options and torch build give the same files, byte for byte, on a CPU if the run ends by ``max_steps``
    (the log aside), however often it was killed and resumed. Raises OptionError, InputError or RescoreError; then no model
    directory is left, only, once training had begun, the state from which ``resume`` goes on.

    Every process that torchrun started calls this; the first one prepares the pairs, talks and writes.
    """
    device = local_device(resolve_device(options.device))
    if options.precision not in PRECISIONS:
        raise OptionError(f"precision {options.precision!r}; training knows {', '.join(PRECISIONS)}")
    slow = check_precision(options.precision, device)
    check_target(options.model_dir, options.overwrite)
    for path in options.inputs:
        refuse_by_name(path)
    if options.init_from:  # before hours of preparing pairs
        if load(options.init_from).inverse != options.inverse:
            what = "is of the other direction" + ("" if options.inverse else ", that of --inverse")
            raise OptionError(f"--init-from {options.init_from}: {what}; start from a model of the same")
    elif options.freeze:
        raise OptionError("--freeze keeps what --init-from brought; name a model to start from")
    if options.final_pass and not options.held_out:
        raise OptionError("--final-pass learns what was held out, and --held-out 0 holds nothing out; leave one of them out")
    prepare(options.threads)
    with joined(device) as ranks:
        mine = observer if observer and ranks.first else Observer()
        if slow:
            mine.say(f"warning: {slow}")
        return _train(options, mine, device, ranks)


def _final_pass(
    task: FinalPassTask, learning_rate: float, say: Callable[[str], None], threads: int, ranks: Ranks
) -> dict[str, Any]:
    """What config.json says about it."""
    said = -math.inf

    def record(entry: dict[str, Any]) -> None:
        nonlocal said
        if time.monotonic() < said + _SECONDS_BETWEEN:
            return
        losses, said = entry["held_out"], time.monotonic()
        figures = f"held-out pairs {losses['held_out']:.3f} nats/pair, training pairs {losses['training']:.3f}"
        say(f"final pass, step {entry['step']:,}: {figures}")

    outcome = train(task, task.recipe(learning_rate), record, threads=threads, ranks=ranks, measure_first=True)
    assert outcome.best
    return {"steps": outcome.best_step, "held_out": outcome.best["held_out"], "training": outcome.best["training"]}


@contextlib.contextmanager
def _told_how_to_go_on(state: TrainingState) -> Iterator[None]:
    """Adds to an interruption what it leaves."""
    try:
        yield
    except KeyboardInterrupt as error:
        if state.exists():
            error.add_note(f"{state.directory} has it as last measured; the same command with --resume goes on")
        raise


@contextlib.contextmanager
def _minibatch_kept(options: Options, store: PairStore, state: TrainingState, ranks: Ranks) -> Iterator[None]:
    """Where training fails because numbers are not finite: writes the minibatch for its user to see."""
    try:
        yield
    except NotFiniteError as error:
        told = [f"{error.found} at step {error.step:,}"]
        if error.batch is not None and ranks.first:
            path = os.path.join(state.directory, f"minibatch-{error.step:09d}.tsv")
            try:
                os.makedirs(state.directory, exist_ok=True)
                with atomic_output(path) as stream:
                    stream.write(_as_learnt(options, error.batch).as_tsv(store.src_vocab, store.tgt_vocab))
                told.append(f"its minibatch is in {path}")
            except (OSError, RescoreError) as failure:
                told.append(str(failure) if isinstance(failure, RescoreError) else cannot_write(path, failure))
        remedy = "try a smaller --learning-rate"
        if state.exists():
            told.append(f"{state.directory} has the last good state")
            remedy = f"delete it and {remedy}, or, if the machine failed, go on with --resume"
        raise RescoreError(f"{', '.join(told)}; {remedy}") from None


def _train(options: Options, observer: Observer, device: str, ranks: Ranks) -> Checkpoint:
    say, settings = observer.say, options.settings
    waiting = TrainingState(options.state_dir, {}).exists()
    if options.resume and not waiting:
        raise OptionError(f"{options.state_dir}: no training to go on with; leave --resume out to begin one")
    if waiting and not options.resume:
        raise OptionError(f"{options.state_dir} holds an interrupted training; go on with --resume, or delete it to begin anew")
    store = prepared(options, observer) if ranks.first else None
    ranks.agreed(0.0)  # the others wait for the first
    if store is None and not (store := open_store(options.store_dir, fingerprint(options))):
        raise OptionError("many processes need inputs that can be read twice: files, and a --pairs directory all of them see")
    if not store.numbers.training:
        raise OptionError("there are no pairs to train on")
    _warn(options, store, say)
    model = _model(options, store, say).to(device)
    if options.precision == "bf16":
        model.loss_dtype = torch.bfloat16
    set_tf32(options.precision, device)
    processes = f", {ranks.world} processes" if ranks.world > 1 else ""
    say(f"{model.config.parameters():,} parameters, {options.threads} threads{processes}, {device}")
    max_steps = _limit(options, store.numbers.training)
    recipe = Recipe(
        settings.optimizer, settings.learning_rate, settings.objective, settings.clip, settings.decay, settings.warm_up,
        max_steps, options.max_time, options.eval_every, options.patience,
    )  # fmt: skip
    state = TrainingState(options.state_dir, _identity(options, store, ranks, device, max_steps))
    training, held_out = _as_learnt(options, store.train), _as_learnt(options, store.held_out)
    task = PhrasePairTask(model, training, held_out, settings.batch_size, options.seed, device, settings.group)
    records: list[dict[str, Any]] = []

    log = os.path.join(options.state_dir, LOG)

    def record(entry: dict[str, Any]) -> None:
        if not records:
            say(f"log, until it is done: {log}")
        try:
            os.makedirs(options.state_dir, exist_ok=True)
            with open(log, "a" if records else "w", encoding="utf-8", newline="\n") as log_file:
                log_file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise RescoreError(cannot_write(log, error)) from None
        records.append(entry)
        observer.on_record(entry)

    threads = options.threads if device == "cpu" else 1  # a GPU is kept busy by the whole batch
    with _minibatch_kept(options, store, state, ranks), _told_how_to_go_on(state):
        outcome = train(
            task, recipe, record, observer.on_step, threads=threads, ranks=ranks, state=state, resume=options.resume,
            measure_first=options.init_from is not None,
        )  # fmt: skip
        model.loss_dtype = None
        shares = store.numbers.source_unk, store.numbers.target_unk
        control = task.control() if outcome.best and ranks.first else None
        final = None
        if options.final_pass and store.numbers.held_out:
            final = _final_pass(FinalPassTask(task, settings.batch_size), settings.learning_rate, say, threads, ranks)
    summary = _summary(options, store, max_steps, outcome, control, final)
    checkpoint = Checkpoint(
        model.to("cpu"), store.src_vocab, store.tgt_vocab, shares, summary, "", options.inverse, options.factors
    )
    if ranks.first:
        with atomic_directory(options.model_dir, options.overwrite) as directory:
            with open(os.path.join(directory, LOG), "w", encoding="utf-8", newline="\n") as log_file:
                log_file.writelines(json.dumps(entry) + "\n" for entry in records)
            save(checkpoint, directory, options.save_dtype, options.shard_size)
        state.remove()
    return checkpoint
