"""Training a model of phrase pairs, ``phrase-rescore train``; from the weights of another model, if one is named.

Vocabularies of the two may differ: the rows of a word are copied to the word of the same spelling.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from phrase_rescore.data.pair_store import PairStore
from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary, check_donor, shared_rows
from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.messages import Listener, Say
from phrase_rescore.moses.pairs import read_pair_blocks
from phrase_rescore.nn.storage import copy_weights
from phrase_rescore.rnn.checkpoint import Checkpoint, load, save
from phrase_rescore.rnn.config import TrainingConfig
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.training.config import Observer
from phrase_rescore.training.pairs import PairInputs, PairSource, PairTask, is_sampled, vocabularies_of
from phrase_rescore.training.run import Training, check_like, on_this_machine, train

# What the training summary of config.json takes from the settings, in its order
_SUMMARIZED = (
    "min_count", "max_length", "preset", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up",
    "paper_initialisation", "shortlist", "softmax", "batch_size", "precision", "seed", "max_steps", "max_seconds", "init_from",
)  # fmt: skip
# Weights with a row for every word, and the side of these words: 0 is read, 1 predicted
WORD_ROWS = {"encoder.embedding": 0, "decoder.embedding": 1, "output.G_l": 1, "output.b_G": 1}

PhraseTask = PairTask[RNNEncoderDecoder]


def train_pairs(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig | None = None, observer: Observer | None = None
) -> Checkpoint:
    """Train log p(target | source) on the distinct pairs of all inputs; write and return the model. Raises RescoreError."""
    config = on_this_machine(config or TrainingConfig())
    phrases, init_from = config.phrases, config.start.init_from

    def task(store: PairStore, listener: Listener) -> PhraseTask:
        if init_from and (known := vocabularies_of(init_from)):
            store.refuse_swapped(display_name(inputs[0]), known, f"--init-from {init_from}")
        return make_task(config, store, listener)

    def model(task: PhraseTask, store: PairStore, summary: dict[str, Any], warn: Say) -> Checkpoint:
        remedy = "check that source and target are aligned row by row, and train longer"
        summary |= {
            "softmax": "sampled" if task.sampled else "full",
            "init_from": init_from and os.path.basename(init_from),
            "held_out_other_sources": task.control(warn, remedy),
        }
        vocabs = store.src_vocab, store.tgt_vocab
        return Checkpoint(
            task.module.to("cpu"), *vocabs, store.unk_shares, summary, inverse=phrases.inverse, factors=phrases.factors
        )

    identity = config.identity(config.network, config.start)
    identity |= {"shortlist": config.pairs.shortlist, "inverse": phrases.inverse}
    source, start = phrase_source(inputs, model_dir, config), partial(_check_start, config)
    training = Training(config, source, identity, _SUMMARIZED, task, model, load, save, init_from, start)
    return train(training, model_dir, observer)


def phrase_source(inputs: Sequence[str], model_dir: str, config: TrainingConfig) -> PairSource:
    """Return the pairs of the inputs, as they are prepared for a model."""
    phrases = config.phrases
    read = partial(read_pair_blocks, form=phrases.form, counts=phrases.min_count > 1, factors=phrases.factors)
    options = {"form": phrases.form, "factors": phrases.factors}
    files = PairInputs([(path,) for path in inputs], read, options, phrases.min_count, phrases.drop_bad_rows)
    return PairSource(inputs, model_dir, config.pairs, config.machine.threads, files)


def _check_start(config: TrainingConfig) -> None:
    """Raise OptionError or ModelError if the model to start from does not fit."""
    init_from, inverse = config.start.init_from, config.phrases.inverse
    if init_from:
        donor = load(init_from)
        if donor.inverse != inverse:
            what = "has the other direction" + ("" if inverse else ", that of --inverse")
            raise OptionError(f"--init-from {init_from}: {what}; start from a model of the same")
        check_like(config.network, donor.model.config, [size.name for size in fields(config.network)])


def make_task(config: TrainingConfig, store: PairStore, listener: Listener) -> PhraseTask:
    """Return the model before its first step, with the pairs that it is trained on."""
    start, inverse, recipe, device = config.start, config.phrases.inverse, config.recipe, config.machine.device
    read, predicted = (store.tgt_vocab, store.src_vocab) if inverse else (store.src_vocab, store.tgt_vocab)
    training, held_out = (pairs.swapped if inverse else pairs for pairs in (store.train, store.held_out))
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), **asdict(config.network)))
    unigram = unigram_log_probs(training.tgt.ids, len(predicted), len(training))
    initialise(model, recipe.seed, paper=start.paper_initialisation, unigram=unigram)
    if start.init_from:
        initialise_from(model, read, predicted, load(start.init_from), listener)
    sampled = is_sampled(start.softmax, len(predicted), device)
    return PairTask(model.to(device), training, held_out, recipe.batch_size, recipe.seed, device, sampled)


def initialise_from(
    model: RNNEncoderDecoder, read: Vocabulary, predicted: Vocabulary, donor: Checkpoint, listener: Listener
) -> None:  # fmt: skip
    """Copy the donor's weights, which fit; rows of words that it does not know stay."""
    rows = []
    for side, own, known in zip(donor.sides, (read, predicted), donor.vocabs, strict=True):
        shared = shared_rows(own, known)
        rows.append(shared)
        listener.say(f"{side}: {len(shared[0]) - FIRST_WORD:,} of {len(own.words):,} words start from the other model")
        check_donor(own, known, listener.warn, f"the {side}")
    copy_weights(model, donor.model, {name: rows[side] for name, side in WORD_ROWS.items()})
