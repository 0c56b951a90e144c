"""Training a model of phrase pairs, the whole of ``phrase-rescore train``; from the weights of another model, if one is named.

Vocabularies of the two may differ: the rows of a word are copied to the word of the same spelling. Source and target are in
``PARTS`` and below it the sides that the network reads and predicts; ``table_side`` swaps them for an inverse model.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace

import torch
from torch import nn

from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary, shared_rows
from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.checkpoint import Checkpoint, load, save
from phrase_rescore.rnn.config import TrainingConfig
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.prepare import PairSource, PairStore
from phrase_rescore.rnn.task import PhrasePairTask, is_sampled, learn_held_out
from phrase_rescore.training.config import Observer
from phrase_rescore.training.log import shortfall
from phrase_rescore.training.loop import make_optimizer
from phrase_rescore.training.session import Session, check_like, on_this_machine

# What the training summary of config.json takes from the settings, in its order
_SUMMARIZED = (
    "min_count", "max_length", "preset", "optimizer", "learning_rate", "objective", "clip", "decay", "warm_up",
    "paper_initialisation", "shortlist", "softmax", "batch_size", "precision", "seed", "max_steps",
)  # fmt: skip
# Of each part, the structure and sizes in which the models must agree, and the sides whose words it has
PARTS = {
    "encoder": (("cell", "layers", "encoder", "hidden", "embedding"), ("source",)),
    "decoder": (("cell", "layers", "hidden", "embedding", "maxout", "rank"), ("target",)),
    "all": (("cell", "layers", "encoder", "hidden", "embedding", "maxout", "rank"), ("source", "target")),
}
# Weights with a row for every word, and the side of these words
WORD_ROWS = {"encoder.embedding": "source", "decoder.embedding": "target", "output.G_l": "target", "output.b_G": "target"}
FREEZABLE: dict[str, Callable[[RNNEncoderDecoder], Iterable[nn.Parameter]]] = {
    "encoder": lambda model: model.encoder.parameters(),
    "decoder": lambda model: model.decoder.parameters(),
    "source-embedding": lambda model: (model.encoder.embedding,),
    "target-embedding": lambda model: (model.decoder.embedding,),
    "output": lambda model: (getattr(model.decoder, name) for name in model.decoder.OUTPUT),
}


def train_pairs(
    inputs: Sequence[str], model_dir: str, config: TrainingConfig | None = None, observer: Observer | None = None
) -> Checkpoint:
    """Train log p(target | source) on the distinct pairs of all inputs; write and return the model. Raises RescoreError."""
    config = on_this_machine(config or TrainingConfig())
    data, start, machine = config.data, config.start, config.machine
    _check_settings(config)
    source = PairSource(inputs, model_dir, data, machine.threads)
    identity = config.identity(config.network, start)
    identity |= {"data": source.fingerprints[0], "shortlist": data.shortlist, "inverse": data.inverse}
    with Session(model_dir, config, identity, observer) as session:
        store = session.prepare(source, lambda: _check_start(config))
        if store is None:
            return load(model_dir)
        recipe = session.limited(config.recipe, store.numbers.training, store.numbers.held_out)
        task = make_task(store, config, session.observer.say)
        model = task.module
        words = store.src_vocab, store.tgt_vocab
        with session.learning(task, recipe, lambda batch: (batch.swapped if data.inverse else batch).as_tsv(*words)) as trainer:
            model.loss_dtype = torch.bfloat16 if machine.precision == "bf16" else None
            outcome = trainer.fit(session.resumes, evaluate_first=start.init_from is not None, finish=session.finish)
            model.loss_dtype = None  # what follows is measured in float32
            control, is_blind = task.control() if outcome.best and session.processes.is_first else (None, False)
            final_pass = learn_held_out(task, trainer) if recipe.final_pass and len(task.held_out) else None
        used = replace(config, recipe=replace(recipe, softmax="sampled" if task.sampled else "full"))
        summary = {
            "inputs": [os.path.basename(path) for path in inputs],
            "distinct_pairs": {"training": store.numbers.training, "held_out": store.numbers.held_out},
            **used.summary(_SUMMARIZED),
            "init_from": os.path.basename(start.init_from) if start.init_from else None,
            "init": start.init if start.init_from else None,
            "frozen": list(start.freeze),
            **outcome.summary(recipe.passes(outcome.steps, len(task.pairs))),
            "held_out_other_sources": control,
            "final_pass": final_pass,
        }
        if found := shortfall(summary):
            session.observer.say(f"warning: {found}; train again with --overwrite and a larger --max-time")
        if is_blind:
            found = "the model hardly reads its source: held-out pairs cost nearly the same with other sources"
            session.observer.say(f"warning: {found}; check that source and target are aligned row by row, and train longer")
        shares = store.numbers.source_unk, store.numbers.target_unk
        checkpoint = Checkpoint(model.to("cpu"), *words, shares, summary, inverse=data.inverse, factors=data.factors)
        session.publish(lambda directory: save(checkpoint, directory))
    return checkpoint


def _check_settings(config: TrainingConfig) -> None:
    """Raise OptionError for settings that contradict each other, before hours of preparing data."""
    if config.start.freeze and not config.start.init_from:
        raise OptionError("--freeze keeps weights of --init-from; name a model to start from with --init-from")
    with torch.device("meta"):
        trial = RNNEncoderDecoder(ModelConfig(3, 3, **asdict(config.network)))
    freeze(trial, [table_side(part, config.data.inverse) for part in config.start.freeze])
    make_optimizer(config.recipe, trial)
    config.recipe.check_held_out(config.data.held_out)


def _check_start(config: TrainingConfig) -> None:
    """Raise OptionError or ModelError if the model to start from does not fit."""
    start, inverse = config.start, config.data.inverse
    if start.init_from:
        donor = load(start.init_from)
        if donor.inverse != inverse:
            what = "has the other direction" + ("" if inverse else ", that of --inverse")
            raise OptionError(f"--init-from {start.init_from}: {what}; start from a model of the same")
        if start.init not in PARTS:
            raise OptionError(f"--init {start.init}: no such part of the model; known are {', '.join(PARTS)}")
        check_like(config.network, donor.model.config, PARTS[start.init][0])


def make_task(store: PairStore, config: TrainingConfig, say: Callable[[str], None]) -> PhrasePairTask[RNNEncoderDecoder]:
    """Return the model before its first step, with the pairs that it is trained on."""
    start, inverse, recipe, device = config.start, config.data.inverse, config.recipe, config.machine.device
    read, predicted = (store.tgt_vocab, store.src_vocab) if inverse else (store.src_vocab, store.tgt_vocab)
    training, held_out = (pairs.swapped if inverse else pairs for pairs in (store.train, store.held_out))
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), **asdict(config.network)))
    unigram = unigram_log_probs(training.tgt.ids, len(predicted), len(training))
    initialise(model, recipe.seed, paper=start.paper_initialisation, unigram=unigram)
    frozen = [table_side(part, inverse) for part in start.freeze]
    if start.init_from:
        started = initialise_from(model, read, predicted, load(start.init_from), start.init)
        for line in start_report(started, frozen, inverse):
            say(line)
    freeze(model, frozen)
    sampled = is_sampled(recipe.softmax, len(predicted), device)
    if recipe.softmax == "sampled" and not sampled:
        say(f"the softmax is over all of its {len(predicted):,} words: drawing some would save no time")
    return PhrasePairTask(model.to(device), training, held_out, recipe.batch_size, recipe.seed, device, sampled)


def table_side(name: str, inverse: bool) -> str:
    """Name a side, or a part that is named by one, as the phrase table does: in an inverse model they are swapped.

    >>> table_side("source-embedding", True), table_side("output", True), table_side("source", False)
    ('target-embedding', 'output', 'source')
    """
    side, dash, rest = name.partition("-")
    return {"source": "target", "target": "source"}.get(side, side) + dash + rest if inverse else name


Started = dict[str, tuple[int, int]]  # by side that was copied: words that the donor knows, all words


def start_report(words: Started, frozen: Sequence[str] = (), inverse: bool = False) -> list[str]:
    """Return the lines of the report. Lines with ``warning`` name words without a start, or random and frozen."""
    lines = []
    for part, (known, total) in words.items():
        side = table_side(part, inverse)
        text = f"{side}: {known:,} of {total:,} words start from the other model"
        lines.append(text if known == total else f"{text}, {total - known:,} at random")
        if total and not known:
            lines.append(f"warning: the other model knows no {side} word of this one; was it for another language?")
    for group in frozen:
        part, name = "source" if group in ("encoder", "source-embedding") else "target", table_side(group, inverse)
        if part not in words:
            lines.append(f"warning: --freeze {name} keeps random weights: --init does not take them from the other model")
        elif missing := words[part][1] - words[part][0]:
            lines.append(f"warning: --freeze {name} keeps random weights of {missing:,} new {table_side(part, inverse)} words")
    return lines


@torch.no_grad()
def initialise_from(
    model: RNNEncoderDecoder, src_vocab: Vocabulary, tgt_vocab: Vocabulary, donor: Checkpoint, part: str = "all"
) -> Started:
    """Copy a part of the donor's weights, which fits; rows of words that it does not know stay."""
    vocabs, sides = {"source": src_vocab, "target": tgt_vocab}, PARTS[part][1]
    rows = {side: shared_rows(own, known) for (side, own), known in zip(vocabs.items(), donor.vocabs, strict=True)}
    given = dict(donor.model.named_weights())
    for name, weight in model.named_weights():
        side = "source" if name.startswith("encoder.") else "target"
        if side in sides and name in WORD_ROWS:
            here, there = rows[side]
            weight[here] = given[name][there].to(weight)
        elif side in sides:
            weight.copy_(given[name])
    return {side: (len(rows[side][0]) - FIRST_WORD, len(vocabs[side].words)) for side in sides}


def freeze(model: RNNEncoderDecoder, groups: Sequence[str]) -> None:
    """Exclude groups of weights (keys of FREEZABLE) from training. Raises OptionError if one is unknown or nothing is left."""
    for group in groups:
        if group not in FREEZABLE:
            raise OptionError(f"--freeze {group}: no such part of the model; known are {', '.join(FREEZABLE)}")
        for parameter in FREEZABLE[group](model):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise OptionError(f"--freeze {', '.join(groups)} leaves no weights to train; freeze less")
