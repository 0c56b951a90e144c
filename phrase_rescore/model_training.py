"""From files of phrase pairs to a model directory: the whole of ``phrase-rescore train``."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from phrase_rescore import __version__
from phrase_rescore.checkpoint import LOG, Checkpoint, atomic_directory, check_target, load, save
from phrase_rescore.devices import TRAINING_PRECISIONS, check_precision, resolve_device, set_tf32
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.fileio import SideFile, display_name, open_input
from phrase_rescore.model import PAPER_PARAMETERS, ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.pair_readers import PairBlock, read_pair_blocks, refuse_by_name
from phrase_rescore.pair_sorting import sorted_pairs
from phrase_rescore.pair_store import Fingerprint, PairStore, check_store_target, fingerprint_of, open_store, prepare_store
from phrase_rescore.pairs import EncodedPairs
from phrase_rescore.phrase_pair_task import PhrasePairTask
from phrase_rescore.presets import PRESETS, Preset
from phrase_rescore.ranks import Ranks, joined, local_device
from phrase_rescore.runtime import prepare
from phrase_rescore.training import Outcome, Recipe, train
from phrase_rescore.training_state import TrainingState
from phrase_rescore.vocabulary import EOS, Vocabulary, count_words, most_frequent, read_vocabulary
from phrase_rescore.warm_start import freeze, initialise_from

_AT_ONCE = 1 << 22  # ids


@dataclass(frozen=True)
class Options:
    """What ``train`` was asked for. ``settings`` has the preset and whatever overrode it."""

    inputs: tuple[str, ...]
    model_dir: str
    settings: Preset
    preset: str = "default"
    form: str | None = None
    drop_bad_rows: bool = False
    vocab_corpus: tuple[str, str] | None = None
    source_vocab: str | None = None
    target_vocab: str | None = None
    held_out: int = 10_000
    min_count: int = 1
    max_length: int | None = None
    pairs_dir: str | None = None  # default: MODEL_DIR.pairs
    scratch: str | None = None  # default: where temporary files go
    memory: int = 1 << 30  # bytes that sorting may use
    max_steps: int | None = None
    max_time: float | None = None  # seconds
    eval_every: int = 500
    patience: int | None = None
    seed: int = 1
    threads: int = 1
    device: str = "cpu"
    precision: str = "float32"
    init_from: str | None = None
    init: str = "all"
    freeze: tuple[str, ...] = ()
    resume: bool = False
    save_dtype: str = "float32"
    shard_size: int | None = None
    overwrite: bool = False

    @property
    def store_dir(self) -> str:
        """Where the prepared pairs are kept."""
        return self.pairs_dir or f"{self.model_dir.rstrip('/')}.pairs"

    @property
    def state_dir(self) -> str:
        """Where the training stands while it is under way."""
        return f"{self.model_dir.rstrip('/')}.training"


@dataclass
class Observer:
    """Where progress goes; the command line shows it, a library caller may not care."""

    say: Callable[[str], None] = lambda message: None
    on_read: Callable[[int], object] | None = None
    on_pairs: Callable[[int], object] | None = None
    on_step: Callable[[int, float, float, int], None] = lambda step, done, loss, items: None
    on_record: Callable[[dict[str, Any]], None] = lambda record: None


def _fingerprint(options: Options) -> Fingerprint | None:
    return fingerprint_of(
        options.inputs,
        (options.source_vocab, options.target_vocab, *(options.vocab_corpus or ())),
        form=options.form,
        drop_bad_rows=options.drop_bad_rows,
        shortlist=options.settings.shortlist,
        held_out=options.held_out,
        min_count=options.min_count,
        max_length=options.max_length,
        version=__version__,
    )


def _blocks(options: Options, observer: Observer, dropped: SideFile) -> Iterator[PairBlock]:
    """The pairs of all inputs; bad rows go to a side file, if they are to be dropped."""

    def blocks_of(path: str) -> Iterator[PairBlock]:
        def drop(line: int, row: bytes, error: RowError) -> None:
            dropped.add(f"{display_name(path)}:{line}", row)

        on_bad_row = drop if options.drop_bad_rows else None
        return read_pair_blocks(path, options.form, observer.on_read, on_bad_row, counts=options.min_count > 1)

    return chain.from_iterable(map(blocks_of, options.inputs))


def _vocabularies(
    options: Options, counted: tuple[Counter[bytes], Counter[bytes]], say: Callable[[str], None]
) -> tuple[Vocabulary, Vocabulary]:
    """The shortlists of both sides: from files, or counted over a corpus or the distinct pairs."""
    result = []
    for i, side in enumerate(("source", "target")):
        if path := (options.source_vocab, options.target_vocab)[i]:
            result.append(read_vocabulary(path))
            continue
        counts = counted[i]
        if options.vocab_corpus:
            with open_input(options.vocab_corpus[i]) as stream:
                counts = count_words(stream)
        vocabulary, left_out = most_frequent(counts, options.settings.shortlist)
        types = f"{side}: {len(vocabulary.words):,} of {len(counts):,} words are in the shortlist"
        say(types + (f"; the {left_out:,} rarest were left out so that UNK is learnt" if left_out else ""))
        result.append(vocabulary)
    return result[0], result[1]


def _prepared(options: Options, observer: Observer) -> PairStore:
    """The store of distinct pairs: that of an earlier run if nothing has changed, else a new one."""
    fingerprint = _fingerprint(options)
    if store := open_store(options.store_dir, fingerprint):
        observer.say(f"distinct pairs as prepared before in {store.directory}")
        return store
    check_store_target(options.store_dir)
    scratch = options.scratch or tempfile.gettempdir()
    with SideFile(f"{options.model_dir}.dropped", options.drop_bad_rows) as dropped:
        blocks = _blocks(options, observer, dropped)
        with sorted_pairs(blocks, scratch, options.memory, options.threads, options.min_count, options.max_length) as pairs:

            def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> tuple[Vocabulary, Vocabulary]:
                return _vocabularies(options, (src, tgt), observer.say)

            store = prepare_store(options.store_dir, fingerprint, pairs, vocabularies, options.held_out, observer.on_pairs)
    if dropped.rows:
        observer.say(f"warning: {dropped.summary()}")
    for number, what in (
        (store.numbers.too_long, "too long"),
        (store.numbers.left_out, f"seen less than {options.min_count} times"),
    ):
        if number:
            observer.say(f"{number:,} distinct pairs left out: {what}")
    return store


def unigram_log_probs(pairs: EncodedPairs, size: int) -> list[float]:
    """Natural log of the smoothed relative frequency of every target id, EOS included: (size,)."""
    counts = np.ones(size)
    for start in range(0, len(pairs.tgt.ids), _AT_ONCE):  # bincount makes eight bytes of every id
        counts += np.bincount(pairs.tgt.ids[start : start + _AT_ONCE], minlength=size)
    counts[EOS] += len(pairs)
    return [float(x) for x in np.log(counts / counts.sum())]


def _model(options: Options, store: PairStore, say: Callable[[str], None]) -> RNNEncoderDecoder:
    """The model before its first step."""
    settings, sizes = options.settings, (len(store.src_vocab), len(store.tgt_vocab))
    config = ModelConfig(*sizes, settings.hidden, settings.embedding, settings.maxout, settings.rank)
    if settings == PRESETS["paper"] and set(sizes) == {settings.shortlist + 2}:
        assert config.parameters() == PAPER_PARAMETERS
    model = RNNEncoderDecoder(config)
    initialise(model, options.seed, paper=settings.paper_initialisation, unigram=unigram_log_probs(store.train, sizes[1]))
    if options.init_from:
        report = initialise_from(model, store.src_vocab, store.tgt_vocab, load(options.init_from), options.init)
        for line in report.lines(options.freeze):
            say(line)
    if options.freeze:
        freeze(model, options.freeze)
    return model


def _limit(options: Options, pairs: int) -> int | None:
    """The number of steps: as asked, or the preset's passes where neither steps nor time are given."""
    if options.max_steps is None and options.max_time is None:
        return max(1, math.ceil(options.settings.epochs * pairs / options.settings.batch_size))
    return options.max_steps


def _summary(
    options: Options, store: PairStore, max_steps: int | None, outcome: Outcome, control: dict[str, float] | None
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
    }


def _identity(options: Options, store: PairStore, ranks: Ranks, device: str, max_steps: int | None) -> dict[str, Any]:
    """What a training must have in common with an interrupted one to go on with it."""
    return {
        "version": __version__,
        "torch": torch.__version__,
        "inputs": _fingerprint(options),
        **asdict(store.numbers),
        **asdict(options.settings),
        **{
            name: getattr(options, name)
            for name in ("seed", "threads", "precision", "max_time", "eval_every", "init_from", "init", "freeze")
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
    if options.precision not in TRAINING_PRECISIONS:
        raise OptionError(f"precision {options.precision!r}; training knows {', '.join(TRAINING_PRECISIONS)}")
    slow = check_precision(options.precision, device)
    check_target(options.model_dir, options.overwrite)
    for path in options.inputs:
        refuse_by_name(path)
    if options.init_from:
        load(options.init_from)  # before hours of preparing pairs
    elif options.freeze:
        raise OptionError("--freeze keeps what --init-from brought; name a model to start from")
    prepare(options.threads)
    with joined(device) as ranks:
        mine = observer if observer and ranks.first else Observer()
        if slow:
            mine.say(f"warning: {slow}")
        return _train(options, mine, device, ranks)


def _train(options: Options, observer: Observer, device: str, ranks: Ranks) -> Checkpoint:
    say, settings = observer.say, options.settings
    waiting = TrainingState(options.state_dir, {}).exists()
    if options.resume and not waiting:
        raise OptionError(f"{options.state_dir}: no training to go on with; leave --resume out to begin one")
    if waiting and not options.resume:
        raise OptionError(f"{options.state_dir} holds an interrupted training; go on with --resume, or delete it to begin anew")
    store = _prepared(options, observer) if ranks.first else None
    ranks.agreed(0.0)  # the others wait for the first
    if store is None and not (store := open_store(options.store_dir, _fingerprint(options))):
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
    task = PhrasePairTask(model, store.train, store.held_out, settings.batch_size, options.seed, device, settings.group)
    records: list[dict[str, Any]] = []

    def record(entry: dict[str, Any]) -> None:
        if not records:
            os.makedirs(options.state_dir, exist_ok=True)
            say(f"log, until it is done: {os.path.join(options.state_dir, LOG)}")
        with open(os.path.join(options.state_dir, LOG), "a" if records else "w", encoding="utf-8", newline="\n") as log_file:
            log_file.write(json.dumps(entry) + "\n")
        records.append(entry)
        observer.on_record(entry)

    threads = options.threads if device == "cpu" else 1  # a GPU is kept busy by the whole batch
    outcome = train(
        task, recipe, record, observer.on_step, threads=threads, ranks=ranks, state=state, resume=options.resume,
        measure_first=options.init_from is not None,
    )  # fmt: skip
    model.loss_dtype = None
    shares = store.numbers.source_unk, store.numbers.target_unk
    control = task.control() if outcome.best and ranks.first else None
    summary = _summary(options, store, max_steps, outcome, control)
    checkpoint = Checkpoint(model.to("cpu"), store.src_vocab, store.tgt_vocab, shares, summary)
    if ranks.first:
        with atomic_directory(options.model_dir, options.overwrite) as directory:
            with open(os.path.join(directory, LOG), "w", encoding="utf-8", newline="\n") as log_file:
                log_file.writelines(json.dumps(entry) + "\n" for entry in records)
            save(checkpoint, directory, options.save_dtype, options.shard_size)
        state.remove()
    return checkpoint
