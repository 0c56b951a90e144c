"""Describe a model directory in lines for people, or as an object for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.errors import counted, printable
from phrase_rescore.info.table import labelled
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.nmt import checkpoint as translation
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nn.storage import BITEXT, CONFIG, PAIRS, TEXT, Config, unchanged
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.training.log import shortfall, training_seconds

_COMMONEST = 5  # words shown of a vocabulary
_SETTINGS = (
    "preset", "optimizer", "learning_rate", "batch_size", "precision", "seed", "shortlist", "min_count", "max_length",
    "dropout", "shorten", "self_normalize",
)  # fmt: skip


@dataclass(frozen=True)
class ModelInfo:
    """A loaded model, of phrase pairs or of text, and its ``config.json``."""

    directory: str
    model: Checkpoint | LanguageModel | Translation
    config: Mapping[str, Any]
    seconds: float | None  # of training, by its log

    @classmethod
    def read(cls, directory: str) -> ModelInfo:
        """Read a model directory. Raises ModelError as ``checkpoint.load`` and ``language_model.load`` do."""
        with unchanged(directory):
            load: dict[str, Callable[[str], Checkpoint | LanguageModel | Translation]] = {
                TEXT: language_model.load, BITEXT: translation.load, PAIRS: checkpoint.load,
            }  # fmt: skip
            model = load[Config(directory).model_of()](directory)
            with open(os.path.join(directory, CONFIG), "rb") as stream:
                config = json.load(stream)
            return cls(directory, model, config, training_seconds(directory))

    def check(self) -> None:
        """Do nothing: a model that loads has no problems."""

    def lines(self) -> list[str]:
        """Return the description line by line."""
        model, weights, training = self.model, self.config["weights"], _object(self.model.training)
        if isinstance(model, LanguageModel):
            what, item, amounts, network = "language model", "word", ["sentences", "words"], _language_model(model)
            vocabularies = [("words", model.vocab, model.unk_share)]
        else:
            what, item, amounts = "model", "pair", ["distinct_pairs"]
            network = _translation_model(model) if isinstance(model, Translation) else _pair_model(model)
            sides = [f"{side} words" for side in checkpoint.SIDES]
            vocabularies = list(zip(sides, (model.src_vocab, model.tgt_vocab), model.unk_shares, strict=True))
        size = f"{model.model.config.parameters():,} in {weights['dtype']}, {counted(len(weights['files']), 'file')}"
        return [
            f"{self.directory}: a {what}",
            labelled("signature", model.signature),
            *network,
            labelled("parameters", size),
            *(labelled(label, _words(vocabulary, share)) for label, vocabulary, share in vocabularies),
            *_training(training, self.seconds, item, amounts),
            *_losses(training, item),
            labelled("made by", _text(self.config.get("made_by"))),
        ]

    def as_object(self) -> dict[str, Any]:
        """Return the contents of ``config.json``, and facts of the weights and the log, as JSON has them."""
        return {
            "file": self.directory,
            "kind": "language model" if isinstance(self.model, LanguageModel) else "model",
            "signature": self.model.signature,
            "config": self.config,
            "training_seconds": self.seconds,
        }


def _pair_model(model: Checkpoint) -> list[str]:
    given, predicted = model.sides
    sides = zip(checkpoint.SIDES, model.factors, strict=True)
    read = [f"factor {factor} of the {side} words" for side, factor in sides if factor is not None]
    config = model.model.config
    return [
        labelled("gives", f"p({predicted} | {given}), of {' and '.join(read) or 'whole words'}"),
        labelled("network", f"{config.cell}, {counted(config.layers, 'layer')}, encoder {config.encoder}"),
        labelled("sizes", _sizes(config, "hidden", "embedding", "maxout", "rank")),
    ]


def _language_model(model: LanguageModel) -> list[str]:
    config = model.model.config
    tied = ", embeddings tied" if config.tied else ""
    return [
        labelled("gives", f"p(word | the {counted(config.order - 1, 'word')} before it)"),
        labelled("network", "feed-forward, 2 layers"),
        labelled("sizes", _sizes(config, "order", "embedding", "hidden", "output") + tied),
    ]


def _translation_model(model: Translation) -> list[str]:
    return [
        labelled("gives", "p(target | source), of sentences"),
        labelled("network", "gru with attention, 2 layers, encoder bidirectional"),
        labelled("sizes", _sizes(model.model.config, "hidden", "embedding")),
    ]


def _sizes(config: object, *names: str) -> str:
    return ", ".join(f"{name} {getattr(config, name):,}" for name in names)


def _words(vocabulary: Vocabulary, unk_share: float) -> str:
    commonest = " ".join(printable(word) for word in vocabulary.words[:_COMMONEST])
    more = " …" if len(vocabulary.words) > _COMMONEST else ""
    return f"{len(vocabulary.words):,}: {commonest}{more} ({unk_share:.1%} of those in training were others)"


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
    yield labelled("settings", _named({name: training[name] for name in _SETTINGS if training.get(name) is not None}))


def _losses(training: Mapping[str, Any], item: str) -> Iterator[str]:
    """Write the losses on held-out data and of the control, those after a final pass, and the deviation of log Z."""
    for label, name, what in (("held out", "held_out", ""), ("  control", "held_out_other_sources", " (sources exchanged)")):
        if figures := _object(training.get(name)):
            loss, perplexity = _text(figures.get("loss")), _text(figures.get("perplexity"))
            yield labelled(label, f"{loss} nats a {item}, perplexity {perplexity} a word{what}")
    if final := _object(training.get("final_pass")):
        yield labelled("final pass", _named(final))
    if log_z := _object(training.get("log_z")):
        yield labelled("log Z", f"standard deviation {_text(log_z.get('deviation'))} around 0 (unnormalized scores)")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_text(name.replace('_', ' '))} {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    """Write a value of the training summary, which may be anything, in printable characters."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    text = "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return printable(text, limit=200)
