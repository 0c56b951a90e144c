"""From files of phrase pairs to a model directory: the whole of ``phrase-rescore train``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from phrase_rescore.checkpoint import LOG, Checkpoint, atomic_directory, check_target, save
from phrase_rescore.devices import resolve_device
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.fileio import SideFile, display_name, open_input
from phrase_rescore.model import PAPER_PARAMETERS, ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.pair_readers import read_pairs, refuse_by_name
from phrase_rescore.pairs import DistinctPairs, EncodedPairs, unknown_share
from phrase_rescore.phrase_pair_task import PhrasePairTask
from phrase_rescore.presets import PRESETS, Preset
from phrase_rescore.runtime import prepare
from phrase_rescore.training import Outcome, Recipe, train
from phrase_rescore.vocabulary import EOS, Vocabulary, count_words, most_frequent, read_vocabulary


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
    max_steps: int | None = None
    max_time: float | None = None  # seconds
    eval_every: int = 1000
    seed: int = 1
    threads: int = 1
    device: str = "cpu"
    save_dtype: str = "float32"
    shard_size: int | None = None
    overwrite: bool = False


@dataclass
class Observer:
    """Where progress goes; the command line shows it, a library caller may not care."""

    say: Callable[[str], None] = lambda message: None
    on_read: Callable[[int], object] | None = None
    on_step: Callable[[int, float, float, int], None] = lambda step, done, loss, items: None
    on_record: Callable[[dict[str, Any]], None] = lambda record: None


def _read(options: Options, observer: Observer) -> DistinctPairs:
    """The distinct pairs of all inputs; bad rows go to a side file, if they are to be dropped."""
    with SideFile(f"{options.model_dir}.dropped", options.drop_bad_rows) as dropped:

        def rows_of(path: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
            def drop(line: int, row: bytes, error: RowError) -> None:
                dropped.add(f"{display_name(path)}:{line}", row)

            return read_pairs(path, options.form, observer.on_read, drop if options.drop_bad_rows else None)

        pairs = DistinctPairs.collect(chain.from_iterable(map(rows_of, options.inputs)))
    if dropped.rows:
        observer.say(f"warning: {dropped.summary()}")
    return pairs


def _vocabularies(options: Options, pairs: DistinctPairs, say: Callable[[str], None]) -> tuple[Vocabulary, Vocabulary]:
    """The shortlists of both sides: from files, or counted over a corpus or the distinct pairs."""
    given = (options.source_vocab, options.target_vocab)
    counted = None if all(given) or options.vocab_corpus else pairs.word_counts()
    result = []
    for i, side in enumerate(("source", "target")):
        path = given[i]
        if path:
            result.append(read_vocabulary(path))
            continue
        if options.vocab_corpus:
            with open_input(options.vocab_corpus[i]) as stream:
                counts = count_words(stream)
        else:
            assert counted is not None
            counts = counted[i]
        vocabulary, left_out = most_frequent(counts, options.settings.shortlist)
        types = f"{side}: {len(vocabulary.words):,} of {len(counts):,} words are in the shortlist"
        say(types + (f"; the {left_out:,} rarest were left out so that UNK is learnt" if left_out else ""))
        result.append(vocabulary)
    return result[0], result[1]


def _unigram(pairs: EncodedPairs, size: int) -> list[float]:
    """Natural log of the smoothed relative frequency of every target id, EOS included: (size,)."""
    counts = np.bincount(pairs.tgt.ids, minlength=size).astype(np.float64) + 1.0
    counts[EOS] += len(pairs)
    return [float(x) for x in np.log(counts / counts.sum())]


def _limit(options: Options, pairs: int) -> int | None:
    """The number of steps: as asked, or the preset's passes where neither steps nor time are given."""
    if options.max_steps is None and options.max_time is None:
        return max(1, math.ceil(options.settings.epochs * pairs / options.settings.batch_size))
    return options.max_steps


def _summary(
    options: Options, max_steps: int | None, sizes: tuple[int, int], outcome: Outcome, control: dict[str, float] | None
) -> dict[str, Any]:
    """What config.json says about training. Nothing that differs between two runs of the same thing."""
    s = options.settings
    return {
        "inputs": [os.path.basename(path) for path in options.inputs],
        "distinct_pairs": {"training": sizes[0], "held_out": sizes[1]},
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
        "seed": options.seed,
        "max_steps": max_steps,
        "max_seconds": options.max_time,
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "held_out": outcome.best,
        "held_out_other_sources": control,
    }


def train_model(options: Options, observer: Observer | None = None) -> Checkpoint:
    """Learns log p(target | source) from the distinct pairs of all inputs and writes the model directory.

    The same inputs, options and torch build give the same files, byte for byte, on a CPU if the run ends by ``max_steps``
    (the log aside). Raises OptionError, InputError or RescoreError; then no directory is left.
    """
    observer = observer or Observer()
    say, settings = observer.say, options.settings
    device = resolve_device(options.device)
    check_target(options.model_dir, options.overwrite)
    for path in options.inputs:
        refuse_by_name(path)
    prepare(options.threads)

    distinct = _read(options, observer)
    src_vocab, tgt_vocab = _vocabularies(options, distinct, say)
    everything, held = distinct.encode(src_vocab, tgt_vocab), distinct.held_out(options.held_out)
    del distinct
    pairs, held_out = everything.take(np.flatnonzero(~held)), everything.take(np.flatnonzero(held))
    if not len(pairs):
        raise OptionError("there are no pairs to train on")
    shares = unknown_share(pairs.src), unknown_share(pairs.tgt)
    say(f"{len(pairs):,} distinct pairs to learn from, {len(held_out):,} held out")
    if options.held_out and not len(held_out):
        say("warning: too few sources to hold any out; the last model is kept, not the best")
    for side, share in zip(("source", "target"), shares, strict=True):
        if share == 0:
            say(f"warning: no unknown {side} word among the pairs: UNK is not learnt; a smaller --shortlist would leave some")

    config = ModelConfig(len(src_vocab), len(tgt_vocab), settings.hidden, settings.embedding, settings.maxout, settings.rank)
    if settings == PRESETS["paper"] and len(src_vocab) == len(tgt_vocab) == settings.shortlist + 2:
        assert config.parameters() == PAPER_PARAMETERS
    model = RNNEncoderDecoder(config)
    initialise(model, options.seed, paper=settings.paper_initialisation, unigram=_unigram(pairs, len(tgt_vocab)))
    model.to(device)
    say(f"{config.parameters():,} parameters, {options.threads} threads, {device}")
    max_steps = _limit(options, len(pairs))
    recipe = Recipe(
        settings.optimizer, settings.learning_rate, settings.objective, settings.clip, settings.decay, settings.warm_up,
        max_steps, options.max_time, options.eval_every,
    )  # fmt: skip
    task = PhrasePairTask(model, pairs, held_out, settings.batch_size, options.seed, device)
    with atomic_directory(options.model_dir, options.overwrite) as directory:
        with open(os.path.join(directory, LOG), "w", encoding="utf-8", newline="\n") as log_file:
            say(f"log, until it is done: {log_file.name}")

            def record(entry: dict[str, Any]) -> None:
                log_file.write(json.dumps(entry) + "\n")
                log_file.flush()
                observer.on_record(entry)

            outcome = train(task, recipe, record, observer.on_step)
        control = task.control() if outcome.best else None
        summary = _summary(options, max_steps, (len(pairs), len(held_out)), outcome, control)
        checkpoint = Checkpoint(model.to("cpu"), src_vocab, tgt_vocab, shares, summary)
        save(checkpoint, directory, options.save_dtype, options.shard_size)
    return checkpoint
