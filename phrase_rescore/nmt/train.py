"""Training a translation model on the sentence pairs of a bitext, which it reads: ``phrase-rescore train-nmt``."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice
from typing import Any

import numpy as np

from phrase_rescore.data.pair_store import PairStore
from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.sampling import drawn_rows
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.messages import Listener, Progress, Say
from phrase_rescore.moses.pairs import PairBlock
from phrase_rescore.moses.text import Sentences, read_sentences
from phrase_rescore.nmt.checkpoint import Translation, load, save
from phrase_rescore.nmt.config import TranslationConfig
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes, initialise
from phrase_rescore.training.config import Observer
from phrase_rescore.training.pairs import PairInputs, PairSource, PairTask, is_sampled
from phrase_rescore.training.run import Training, on_this_machine, train

_DRAWN = 32  # minibatches, whose pairs are sorted by length together
_SUMMARIZED = (
    "max_length", "preset", "dropout", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up", "shortlist",
    "batch_size", "precision", "seed", "max_steps", "max_seconds",
)  # fmt: skip

SentenceTask = PairTask[TranslationModel]


def train_sentences(inputs: Sequence[str], model_dir: str, config: TranslationConfig, observer: Observer | None) -> Translation:
    """Train log p(target | source) on the lines of two files; write and return the model. Raises RescoreError."""
    config = on_this_machine(config)
    pairs, machine, network, recipe = config.pairs, config.machine, config.network, config.recipe

    def task(store: PairStore, listener: Listener) -> SentenceTask:
        src, tgt = len(store.src_vocab), len(store.tgt_vocab)
        model = TranslationModel(TranslationSizes(src, tgt, network.hidden, network.embedding), network.dropout)
        initialise(model, recipe.seed, unigram_log_probs(store.train.tgt.ids, tgt, len(store.train)))
        of_run = recipe.batch_size, recipe.seed, machine.device, is_sampled("auto", tgt, machine.device)
        return PairTask(
            model.to(machine.device), store.train, store.held_out, *of_run, of_like_lengths, drops=True, padded=True
        )

    def model(task: SentenceTask, store: PairStore, summary: dict[str, Any], warn: Say) -> Translation:
        remedy = "check that the lines of the two files belong together, and train longer"
        summary["held_out_other_sources"] = task.control(warn, remedy)
        return Translation(task.module.to("cpu"), store.src_vocab, store.tgt_vocab, store.unk_shares, summary)

    source = PairSource(inputs, model_dir, pairs, machine.threads, bitext(inputs))
    identity = config.identity(network) | {"shortlist": pairs.shortlist}
    training = Training(config, source, identity, _SUMMARIZED, task, model, load, save)
    return train(training, model_dir, observer)


def of_like_lengths(pairs: EncodedPairs, size: int, seed: int, first: int) -> Iterator[EncodedPairs]:
    """Yield minibatches: _DRAWN are drawn at a time, as random pairs, sorted by length, cut, and shuffled."""
    n = max(1, min(_DRAWN, len(pairs) // size))
    for number, rows in enumerate(drawn_rows(len(pairs), n * size, seed, first // n), first // n):
        drawn = pairs.take(rows)
        by_length = np.lexsort((drawn.src.lengths, drawn.tgt.lengths))
        shuffled = np.random.default_rng((seed, number)).permutation(n)
        for i in shuffled[max(0, first - number * n) :]:
            yield drawn.take(by_length[i * size : (i + 1) * size])


_LINES = 4096  # of a file, at a time


def bitext(inputs: Sequence[str]) -> PairInputs:
    """Return the inputs, source and target, and how they are read. Raises OptionError if there are not two files."""
    if len(inputs) != 2:
        raise OptionError("name two files, the source and the target of the training text")
    return PairInputs([tuple(inputs)], _read_bitext, {"form": "bitext"})


def _read_bitext(source: str, target: str, sentences: Sentences, on_read: Progress | None = None) -> Generator[PairBlock]:
    """Read all pairs but those with an empty side. Raises InputError as ``read_sentences``, or if a file has more lines."""
    lines = 0

    def phrase(line: bytes) -> bytes:  # made at once: lists of words would cost as much again
        return b" ".join(sentences(line))

    with ExitStack() as reading:
        texts = [reading.enter_context(closing(read_sentences(path, phrase, on_read))) for path in (source, target)]
        sides = [chain.from_iterable(text) for text in texts]
        while True:
            src, tgt = (list(islice(side, _LINES)) for side in sides)
            lines += min(len(src), len(tgt))
            if len(src) != len(tgt):
                short, long = (source, target) if len(src) < len(tgt) else (target, source)
                hint = "the files of a bitext have a line for each line of the other"
                raise InputError(display_name(short), f"has {lines:,} lines, and {display_name(long)} has more", hint)
            if not src:
                return
            kept = [pair for pair in zip(src, tgt, strict=True) if all(pair)]
            yield PairBlock([source for source, _ in kept], [target for _, target in kept])
