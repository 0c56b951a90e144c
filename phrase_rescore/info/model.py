"""Describe a model directory in lines for people, or as an object for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phrase_rescore.data.vocabulary import SIDES
from phrase_rescore.info.table import labelled
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.messages import counted, printable
from phrase_rescore.nmt import checkpoint as translation
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nn.storage import BITEXT, PAIRS, TEXT, Config, numbers_of, unchanged
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.training.log import shortfall, training_seconds

_SETTINGS = (
    "preset", "optimizer", "learning_rate", "batch_size", "precision", "seed", "shortlist", "min_count", "max_length",
    "dropout", "shorten", "self_normalize",
)  # fmt: skip


@dataclass(frozen=True)
class ModelInfo:
    """A loaded model of any kind, and its ``config.json``."""

    directory: str
    model: Checkpoint | LanguageModel | Translation
    config: Mapping[str, Any]
    seconds: float | None  # of training, by its log

    @classmethod
    def read(cls, directory: str) -> ModelInfo:
        """Read a model directory. Raises ModelError as the ``load`` of its kind does."""
        with unchanged(directory):
            config = Config(directory)
            room = {TEXT: language_model, BITEXT: translation, PAIRS: checkpoint}[config.model_of()]
            return cls(directory, room.load(directory), config.entries, training_seconds(directory))

    def check(self) -> None:
        """Do nothing: a model that loads has no problems."""

    def lines(self) -> list[str]:
        """Return the description line by line."""
        model, weights, training = self.model, self.config["weights"], _object(self.model.training)
        if isinstance(model, LanguageModel):
            what, item, amounts = "language model", "word", ["sentences", "words"]
            vocabularies = [("words", model.vocab, model.unk_share)]
        else:
            what, item, amounts = "model", "pair", ["distinct_pairs"]
            sides = [f"{side} words" for side in SIDES]
            vocabularies = list(zip(sides, (model.src_vocab, model.tgt_vocab), model.unk_shares, strict=True))
        size = f"{numbers_of(model.model):,} in {weights['dtype']}, {counted(len(weights['files']), 'file')}"
        return [
            f"{self.directory}: a {what}",
            labelled("signature", model.signature),
            *map(labelled, ("gives", "network", "sizes"), _network(model)),
            labelled("parameters", size),
            *(labelled(label, f"{len(vocabulary.words):,} ({share:.1%} of those in training were others)")
              for label, vocabulary, share in vocabularies),
            *_training(training, self.seconds, item, amounts),
            *_losses(training, item),
            labelled("made by", _text(self.config.get("made_by"))),
        ]  # fmt: skip

    def as_object(self) -> dict[str, Any]:
        """Return the contents of ``config.json``, and facts of the weights and the log, as JSON has them."""
        kind = "language model" if isinstance(self.model, LanguageModel) else "model"
        facts = {"signature": self.model.signature, "config": self.config, "training_seconds": self.seconds}
        return {"file": self.directory, "kind": kind, **facts}


def _network(model: Checkpoint | LanguageModel | Translation) -> tuple[str, str, str]:
    if isinstance(model, LanguageModel):
        order, sizes = model.model.config.order, _sizes(model, "order", "embedding", "hidden", "output")
        tied = ", embeddings tied" if model.model.config.tied else ""
        return f"p(word | the {counted(order - 1, 'word')} before it)", "feed-forward, 2 layers", sizes + tied
    if isinstance(model, Translation):
        network = "gru with attention, 2 layers, encoder bidirectional"
        return "p(target | source), of sentences", network, _sizes(model, "hidden", "embedding")
    config, (given, predicted) = model.model.config, model.sides
    sides = zip(SIDES, model.factors, strict=True)
    read = [f"factor {factor} of the {side} words" for side, factor in sides if factor is not None]
    gives = f"p({predicted} | {given}), of {' and '.join(read) or 'whole words'}"
    network = f"{config.cell}, {counted(config.layers, 'layer')}, encoder {config.encoder}"
    return gives, network, _sizes(model, "hidden", "embedding", "maxout", "rank")


def _sizes(model: Checkpoint | LanguageModel | Translation, *names: str) -> str:
    return ", ".join(f"{name} {getattr(model.model.config, name):,}" for name in names)


def _training(training: Mapping[str, Any], seconds: float | None, item: str, amounts: list[str]) -> Iterator[str]:
    """Write the training data and settings; ``amounts``: the entries of the training summary that count the data."""
    if not training:
        yield labelled("training", "not known")
        return
    inputs = training.get("inputs")
    names = ", ".join(map(_text, inputs)) if isinstance(inputs, list) else _text(inputs)
    counts = [(name.removeprefix("distinct_"), _object(training.get(name))) for name in amounts]
    trained, held_out = (", ".join(f"{_text(n.get(part))} {name}" for name, n in counts) for part in ("training", "held_out"))
    yield labelled("trained on", f"{names}: {trained}; held out {held_out}")
    time = f" in {seconds:,.0f} s" if seconds is not None else ""
    passes = f", {_text(training['passes'])} passes over the {item}s" if "passes" in training else ""
    steps, best = _text(training.get("steps")), _text(training.get("best_step"))
    yield labelled("training", f"{steps} steps{time}{passes}, weights of step {best}")
    if found := shortfall(training, f"{item}s"):
        yield labelled("warning", found)
    settings = [f"{name.replace('_', ' ')} {_text(training[name])}" for name in _SETTINGS if training.get(name) is not None]
    yield labelled("settings", ", ".join(settings))


def _losses(training: Mapping[str, Any], item: str) -> Iterator[str]:
    for label, name, what in (("held out", "held_out", ""), ("  control", "held_out_other_sources", " (sources exchanged)")):
        if figures := _object(training.get(name)):
            loss, perplexity = _text(figures.get("loss")), _text(figures.get("perplexity"))
            yield labelled(label, f"{loss} nats a {item}, perplexity {perplexity} a word{what}")
    if log_z := _object(training.get("log_z")):
        off = f"off by {_text(log_z.get('deviation'))} nats (standard deviation)"
        yield labelled("in a decoder", f"log p of a word is {off}: a decoder does not divide by the sum over all words")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """Write a value of the training summary, which may be anything, in printable characters."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    text = "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return printable(text, limit=200)
