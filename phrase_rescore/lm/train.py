"""Learning a language model, the whole of ``phrase-rescore train-lm``."""

import os
from collections.abc import Sequence

import torch

from phrase_rescore.data.prepared import unigram_log_probs
from phrase_rescore.lm.arpa import END, UNKNOWN
from phrase_rescore.lm.checkpoint import LanguageModel, load, save
from phrase_rescore.lm.config import LanguageModelConfig
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, initialise
from phrase_rescore.lm.ngrams import Ngrams
from phrase_rescore.lm.nplm import NULL
from phrase_rescore.lm.prepare import TextSource
from phrase_rescore.lm.task import NgramTask, centre
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import make_optimizer
from phrase_rescore.training.session import Session, on_this_machine

_SUMMARIZED = (
    "shortlist", "min_count", "preset", "dropout", "shorten", "self_normalize", "optimizer", "learning_rate", "objective",
    "clip", "decay", "warm_up", "paper_initialisation", "batch_size", "precision", "seed", "max_steps",
)  # fmt: skip


def train_text(
    inputs: Sequence[str], model_dir: str, config: LanguageModelConfig | None = None, observer: Observer | None = None
) -> LanguageModel:
    """Learn log p(word | the words before it) from all inputs, write the model directory and return the model.

    ``Session`` says what is left after an error. Raises OptionError, InputError or RescoreError.
    """
    config = on_this_machine(config or LanguageModelConfig())
    text, regularization, machine = config.text, config.regularization, config.machine
    with torch.device("meta"):  # raises OptionError before hours of preparing data
        make_optimizer(config.recipe, FeedforwardLM(sizes(config, 3)))
    config.recipe.check_held_out(min(text.held_out, int(text.held_out_share > 0)))
    source = TextSource(inputs, model_dir, text)
    identity = config.identity(config.network, regularization) | {"data": source.fingerprints[0], "shortlist": text.shortlist}
    with Session(model_dir, config, identity, observer) as session:
        store = session.prepare(source)
        if store is None:
            return load(model_dir)
        recipe = config.recipe.limited(len(store.train), len(store.held_out))
        model = FeedforwardLM(sizes(config, len(store.vocab)))
        unigram = unigram_log_probs(store.train, len(store.vocab))
        initialise(model, recipe.seed, paper=config.network.paper_initialisation, unigram=unigram)
        task = NgramTask(
            model.to(machine.device), store.train, store.held_out, recipe.batch_size, recipe.seed, machine.device,
            dropout=regularization.dropout, shorten=regularization.shorten, alpha=regularization.self_normalize,
        )  # fmt: skip
        words = (END, UNKNOWN, *store.vocab.words, NULL)

        def as_tsv(batch: Ngrams) -> bytes:
            rows = zip(batch.contexts.tolist(), batch.words.tolist(), strict=True)
            return b"".join(b"%b\t%b\n" % (b" ".join(words[i] for i in context), words[word]) for context, word in rows)

        with session.learning(task, recipe, as_tsv) as trainer:
            model.loss_dtype = torch.bfloat16 if machine.precision == "bf16" else None
            outcome = trainer.fit(session.resumes)
            model.loss_dtype = None  # what follows is measured in float32
            log_z = centre(task)
        numbers = store.numbers
        summary = {
            "inputs": [os.path.basename(path) for path in inputs],
            "sentences": {"training": numbers.sentences, "held_out": numbers.held_out_sentences},
            "words": {"training": numbers.words, "held_out": numbers.held_out_words},
            **config.override(max_steps=recipe.max_steps).summary(_SUMMARIZED),
            **outcome.summary(recipe.passes(outcome.steps, len(task.ids))),
            "log_z": log_z,
        }
        lm = LanguageModel(model.to("cpu"), store.vocab, numbers.unk, summary)
        session.publish(lambda directory: save(lm, directory))
    return lm


def sizes(config: LanguageModelConfig, vocabulary: int) -> LanguageModelSizes:
    """Return the sizes of the network that is to know so many words."""
    network = config.network
    output = network.output or network.embedding
    return LanguageModelSizes(vocabulary, network.order, network.embedding, network.hidden, output, network.output is None)
