"""Training a model of phrase pairs, the whole of ``phrase-rescore train``; from the weights of another model, if one is named.

Vocabularies of the two may differ: the rows of a word are copied to the word of the same spelling.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields, replace

import torch

from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary, shared_rows
from phrase_rescore.errors import OptionError
from phrase_rescore.progress import Listener
from phrase_rescore.rnn.checkpoint import Checkpoint, load, save
from phrase_rescore.rnn.config import TrainingConfig
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.prepare import PairSource, PairStore
from phrase_rescore.rnn.task import PhrasePairTask, is_sampled
from phrase_rescore.training.config import Observer
from phrase_rescore.training.log import shortfall
from phrase_rescore.training.loop import make_optimizer
from phrase_rescore.training.session import Session, check_like, on_this_machine

# What the training summary of config.json takes from the settings, in its order
_SUMMARIZED = (
    "min_count", "max_length", "preset", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up",
    "paper_initialisation", "shortlist", "softmax", "batch_size", "precision", "seed", "max_steps",
)  # fmt: skip
# Weights with a row for every word, and the side of these words: 0 is read, 1 predicted
WORD_ROWS = {"encoder.embedding": 0, "decoder.embedding": 1, "output.G_l": 1, "output.b_G": 1}


def train_pairs(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig | None = None, observer: Observer | None = None
) -> Checkpoint:
    """Train log p(target | source) on the distinct pairs of all inputs; write and return the model. Raises RescoreError."""
    config = on_this_machine(config or TrainingConfig())
    data, start, machine = config.data, config.start, config.machine
    with torch.device("meta"):  # raises OptionError before hours of preparing data
        make_optimizer(config.recipe, RNNEncoderDecoder(ModelConfig(3, 3, **asdict(config.network))))
    config.recipe.check_held_out(data.held_out)
    source = PairSource(inputs, model_dir, data, machine.threads)
    identity = config.identity(config.network, start)
    identity |= {"data": source.fingerprints[0], "shortlist": data.shortlist, "inverse": data.inverse}
    with Session(model_dir, config, identity, observer) as session:
        store = session.prepare(source, lambda: _check_start(config))
        if store is None:
            return load(model_dir)
        recipe = session.limited(config.recipe, store.numbers.training, store.numbers.held_out)
        task = make_task(store, config, session.observer)
        with session.learned(task, recipe, evaluate_first=start.init_from is not None) as outcome:
            remedy = "check that source and target are aligned row by row, and train longer"
            control = task.control(session.observer.warn, remedy) if outcome.best and session.processes.is_first else None
        used = replace(config, recipe=replace(recipe, softmax="sampled" if task.sampled else "full"))
        summary = {
            "inputs": [os.path.basename(path) for path in inputs],
            "distinct_pairs": {"training": store.numbers.training, "held_out": store.numbers.held_out},
            **used.summary(_SUMMARIZED),
            "init_from": os.path.basename(start.init_from) if start.init_from else None,
            **outcome.summary(recipe.passes(outcome.steps, len(task.pairs))),
            "held_out_other_sources": control,
        }
        if found := shortfall(summary):
            session.observer.warn(f"{found}; train again with --overwrite and a larger --max-time")
        vocabs, shares = (store.src_vocab, store.tgt_vocab), (store.numbers.source_unk, store.numbers.target_unk)
        checkpoint = Checkpoint(task.module.to("cpu"), *vocabs, shares, summary, inverse=data.inverse, factors=data.factors)
        session.publish(lambda directory: save(checkpoint, directory))
    return checkpoint


def _check_start(config: TrainingConfig) -> None:
    """Raise OptionError or ModelError if the model to start from does not fit."""
    start, inverse = config.start, config.data.inverse
    if start.init_from:
        donor = load(start.init_from)
        if donor.inverse != inverse:
            what = "has the other direction" + ("" if inverse else ", that of --inverse")
            raise OptionError(f"--init-from {start.init_from}: {what}; start from a model of the same")
        check_like(config.network, donor.model.config, [size.name for size in fields(config.network)])


def make_task(store: PairStore, config: TrainingConfig, listener: Listener) -> PhrasePairTask[RNNEncoderDecoder]:
    """Return the model before its first step, with the pairs that it is trained on."""
    start, inverse, recipe, device = config.start, config.data.inverse, config.recipe, config.machine.device
    read, predicted = (store.tgt_vocab, store.src_vocab) if inverse else (store.src_vocab, store.tgt_vocab)
    training, held_out = (pairs.swapped if inverse else pairs for pairs in (store.train, store.held_out))
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), **asdict(config.network)))
    unigram = unigram_log_probs(training.tgt.ids, len(predicted), len(training))
    initialise(model, recipe.seed, paper=start.paper_initialisation, unigram=unigram)
    if start.init_from:
        initialise_from(model, read, predicted, load(start.init_from), listener)
    sampled = is_sampled(recipe.softmax, len(predicted), device)
    if recipe.softmax == "sampled" and not sampled:
        listener.say(f"the softmax is over all of its {len(predicted):,} words: drawing some would save no time")
    return PhrasePairTask(model.to(device), training, held_out, recipe.batch_size, recipe.seed, device, sampled)


@torch.no_grad()
def initialise_from(
    model: RNNEncoderDecoder, read: Vocabulary, predicted: Vocabulary, donor: Checkpoint, listener: Listener
) -> None:
    """Copy the donor's weights, which fit; rows of words that it does not know stay."""
    rows = []
    for side, own, known in zip(donor.sides, (read, predicted), donor.vocabs, strict=True):
        rows.append(shared_rows(own, known))
        n, total = len(rows[-1][0]) - FIRST_WORD, len(own.words)
        text = f"{side}: {n:,} of {total:,} words start from the other model"
        listener.say(text if n == total else f"{text}, {total - n:,} at random")
        if total and not n:
            listener.warn(f"the other model knows no {side} word of this one; was it for another language?")
    given = dict(donor.model.named_weights())
    for name, weight in model.named_weights():
        if name in WORD_ROWS:
            here, there = rows[WORD_ROWS[name]]
            weight[here] = given[name][there].to(weight)
        else:
            weight.copy_(given[name])
