"""Training a translation model on the sentence pairs of a bitext, the whole of ``phrase-rescore train-nmt``."""

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.sampling import drawn_rows
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.paths import check_one_stream
from phrase_rescore.files.row_outputs import DroppedRows
from phrase_rescore.moses.pairs import PairBlock
from phrase_rescore.moses.table import words
from phrase_rescore.nmt.checkpoint import Translation, load, save
from phrase_rescore.nmt.config import TranslationConfig
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes, initialise
from phrase_rescore.progress import Progress
from phrase_rescore.rnn.prepare import PairSource
from phrase_rescore.rnn.task import Part, PhrasePairTask, is_sampled
from phrase_rescore.training.config import Observer
from phrase_rescore.training.log import shortfall
from phrase_rescore.training.loop import make_optimizer
from phrase_rescore.training.session import Session, on_this_machine

_SUMMARIZED = (
    "max_length", "preset", "dropout", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up", "shortlist",
    "batch_size", "precision", "seed", "max_steps",
)  # fmt: skip


class BitextSource(PairSource):
    """The sentence pairs of two files, line N of one with line N of the other. Pairs that occur more than once count once."""

    def __init__(self, inputs: Sequence[str], model_dir: str, config: TranslationConfig) -> None:
        if len(inputs) != 2:
            raise OptionError("name two files, the source and the target of the training text")
        check_one_stream(*inputs)
        super().__init__(inputs, model_dir, config.data, config.machine.threads)

    def _openings(self, files: Sequence[str]) -> list[Generator[PairBlock]]:
        return [self._blocks()] if len(files) == len(self.inputs) else []

    def _blocks(self, on_read: Progress | None = None, dropped: DroppedRows | None = None) -> Generator[PairBlock]:
        """Read all pairs but those with an empty side. Raises InputError if a file has more lines than the other, or none."""
        names, line = [display_name(path) for path in self.inputs], 0
        with open_input(self.inputs[0], on_read) as source, open_input(self.inputs[1], on_read) as target:
            sides = read_rows(source), read_rows(target)
            while block := [list(islice(rows, 4096)) for rows in sides]:
                line += min(map(len, block))
                if len(block[0]) != len(block[1]):
                    short, long = names if len(block[0]) < len(block[1]) else reversed(names)
                    hint = "the files of a bitext have a line for each line of the other"
                    raise InputError(short, f"has {line:,} lines, and {long} has more", hint)
                if not line:
                    raise InputError(names[0], "is empty", "pass tokenized text, a sentence a line")
                if not block[0]:
                    return
                split = [[words(row.rstrip(b"\r\n")) for row in rows] for rows in block]
                kept = [pair for pair in zip(*split, strict=True) if all(pair)]
                yield PairBlock([b" ".join(src) for src, _ in kept], [b" ".join(tgt) for _, tgt in kept])


class SentenceTask(PhrasePairTask[TranslationModel]):
    """Trains with dropout, drawn by the numbers of step and part. Pairs of a minibatch have like lengths."""

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        """Yield minibatches: 32 are drawn at a time, as random pairs, sorted by length, cut, and shuffled."""
        size, n = self.batch_size, max(1, min(32, len(self.pairs) // self.batch_size))
        for number, rows in enumerate(drawn_rows(len(self.pairs), n * size, self.seed, first // n), first // n):
            drawn = self.pairs.take(rows)
            order = np.lexsort((drawn.src.lengths, drawn.tgt.lengths))
            for i in np.random.default_rng((self.seed, number)).permutation(n)[max(0, first - number * n) :]:
                yield drawn.take(order[i * size : (i + 1) * size])

    def parts(self, batch: EncodedPairs, parts: int, step: int = 0, done: float = 1.0) -> list[Part]:
        cut = super().parts(batch, parts, step, done)
        return [part._replace(seeds=(*part.seeds, (self.seed, step, number))) for number, part in enumerate(cut)]


def train_sentences(inputs: Sequence[str], model_dir: str, config: TranslationConfig, observer: Observer | None) -> Translation:
    """Train log p(target | source) on the lines of two files; write and return the model. Raises RescoreError."""
    config = on_this_machine(config)
    data, machine, network = config.data, config.machine, config.network
    with torch.device("meta"):  # raises OptionError before minutes of preparing data
        make_optimizer(config.recipe, TranslationModel(TranslationSizes(3, 3, network.hidden, network.embedding)))
    config.recipe.check_held_out(data.held_out)
    source = BitextSource(inputs, model_dir, config)
    identity = config.identity(network) | {"data": source.fingerprints[0], "shortlist": data.shortlist}
    with Session(model_dir, config, identity, observer) as session:
        store = session.prepare(source)
        if store is None:
            return load(model_dir)
        recipe = session.limited(config.recipe, store.numbers.training, store.numbers.held_out)
        ids = len(store.src_vocab), len(store.tgt_vocab)
        model = TranslationModel(TranslationSizes(*ids, network.hidden, network.embedding), network.dropout)
        initialise(model, recipe.seed, unigram_log_probs(store.train.tgt.ids, ids[1], len(store.train)))
        device, size = machine.device, recipe.batch_size
        sampled = is_sampled("auto", ids[1], device)
        task = SentenceTask(model.to(device), store.train, store.held_out, size, recipe.seed, device, sampled)
        with session.learned(task, recipe) as outcome:
            remedy = "check that the lines of the two files belong together, and train longer"
            control = task.control(session.observer.warn, remedy) if outcome.best and session.processes.is_first else None
        summary = {
            "inputs": [os.path.basename(path) for path in inputs],
            "distinct_pairs": {"training": store.numbers.training, "held_out": store.numbers.held_out},
            **replace(config, recipe=recipe).summary(_SUMMARIZED),
            **outcome.summary(recipe.passes(outcome.steps, len(task.pairs))),
            "held_out_other_sources": control,
        }
        if found := shortfall(summary):
            session.observer.warn(f"{found}; train again with --overwrite and a larger --max-time")
        vocabs, shares = (store.src_vocab, store.tgt_vocab), (store.numbers.source_unk, store.numbers.target_unk)
        translation = Translation(model.to("cpu"), *vocabs, shares, summary)
        session.publish(lambda directory: save(translation, directory))
    return translation
