"""A model directory is reported in lines for people, or as an object for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.errors import counted, printable
from phrase_rescore.info.table import labelled
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.nn.kinds import TEXT
from phrase_rescore.nn.storage import CONFIG, Config, unchanged
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.training.log import shortfall, training_seconds

_COMMONEST = 5  # words shown of a vocabulary
_SETTINGS = (
    "preset", "optimizer", "learning_rate", "batch_size", "precision", "seed", "shortlist", "min_count", "max_length",
    "dropout", "shorten", "self_normalize",
)  # fmt: skip


@dataclass(frozen=True)
class ModelDirectory:
    """A model that was loaded, of phrase pairs or of text, and all that its ``config.json`` says."""

    directory: str
    model: Checkpoint | LanguageModel
    config: Mapping[str, Any]
    seconds: float | None  # of training, by its log

    @classmethod
    def read(cls, directory: str) -> ModelDirectory:
        """Read a model directory. Raises ModelError as ``checkpoint.load`` and ``language_model.load`` do."""
        with unchanged(directory):
            of_text = Config(directory).model_of() == TEXT
            model = language_model.load(directory) if of_text else checkpoint.load(directory)
            with open(os.path.join(directory, CONFIG), "rb") as stream:
                config = json.load(stream)
            return cls(directory, model, config, training_seconds(directory))


def report(directory: ModelDirectory) -> list[str]:
    """Report for people, line by line."""
    model, weights = directory.model, directory.config["weights"]
    training = _object(model.training)
    files = counted(len(weights["files"]), "file")
    own = _of_text(model) if isinstance(model, LanguageModel) else _of_pairs(model)
    lines = [f"{directory.directory}: a {own.what}", labelled("signature", model.signature), labelled("gives", own.gives)]
    lines += [labelled("network", own.structure), labelled("sizes", own.sizes)]
    lines.append(labelled("parameters", f"{model.model.config.parameters():,} in {weights['dtype']}, {files}"))
    lines += [labelled(f"{side}words", _words(vocab, share)) for side, vocab, share in own.vocabularies]
    lines += _training(training, directory.seconds, own)
    lines += _losses(training, own)
    return [*lines, labelled("made by", _text(directory.config.get("made_by")))]


@dataclass(frozen=True)
class _Own:
    """What is said in other words of each kind of model."""

    what: str
    gives: str
    structure: str
    sizes: str
    vocabularies: tuple[tuple[str, Vocabulary, float], ...]  # the side, its words, UNK's share
    learnt: str  # what is learnt: a loss is one of each
    amounts: tuple[str, ...]  # entries of the training summary that count what was learnt


def _of_pairs(model: Checkpoint) -> _Own:
    given, predicted = model.sides
    sides = zip(checkpoint.SIDES, model.factors, strict=True)
    read = [f"factor {factor} of the {side} words" for side, factor in sides if factor is not None]
    config = model.model.config
    return _Own(
        "model",
        f"p({predicted} | {given}), of {' and '.join(read) or 'whole words'}",
        f"{config.cell}, {counted(config.layers, 'layer')}, encoder {config.encoder}",
        ", ".join(f"{name} {getattr(config, name):,}" for name in ("hidden", "embedding", "maxout", "rank")),
        (("source ", model.src_vocab, model.unk_shares[0]), ("target ", model.tgt_vocab, model.unk_shares[1])),
        "pair",
        ("distinct_pairs",),
    )


def _of_text(model: LanguageModel) -> _Own:
    sizes = model.model.config
    layers = ", ".join(f"{name} {getattr(sizes, name):,}" for name in ("order", "embedding", "hidden", "output"))
    return _Own(
        "language model",
        f"p(word | the {counted(sizes.order - 1, 'word')} before it)",
        "feed-forward, 2 layers",
        layers + ", embeddings tied" * sizes.tied,
        (("", model.vocab, model.unk_share),),
        "word",
        ("sentences", "words"),
    )


def _words(vocabulary: Vocabulary, unk_share: float) -> str:
    commonest = " ".join(printable(word) for word in vocabulary.words[:_COMMONEST])
    more = " …" * (len(vocabulary.words) > _COMMONEST)
    return f"{len(vocabulary.words):,}: {commonest}{more} ({unk_share:.1%} of those in training were others)"


def _training(training: Mapping[str, Any], seconds: float | None, own: _Own) -> Iterator[str]:
    if not training:
        yield labelled("training", "not known")
        return
    inputs = training.get("inputs")
    names = ", ".join(map(_text, inputs)) if isinstance(inputs, list) else _text(inputs)
    counts = [(name.removeprefix("distinct_"), _object(training.get(name))) for name in own.amounts]
    learnt, held_out = (", ".join(f"{_text(n.get(part))} {name}" for name, n in counts) for part in ("training", "held_out"))
    yield labelled("trained on", f"{names}: {learnt}; held out {held_out}")
    time = f" in {seconds:,.0f} s" if seconds is not None else ""
    passes = f", {_text(training['passes'])} passes over the {own.learnt}s" if "passes" in training else ""
    steps, best = _text(training.get("steps")), _text(training.get("best_step"))
    yield labelled("training", f"{steps} steps{time}{passes}, weights of step {best}")
    if found := shortfall(training, f"{own.learnt}s"):
        yield labelled("warning", found)
    yield labelled("settings", _named({name: training[name] for name in _SETTINGS if training.get(name) is not None}))


def _losses(training: Mapping[str, Any], own: _Own) -> Iterator[str]:
    """Write the losses of what was held out and of the control, those after a final pass, and how log Z strays."""
    for label, name, what in (("held out", "held_out", ""), ("  control", "held_out_other_sources", " (sources exchanged)")):
        if figures := _object(training.get(name)):
            loss, perplexity = _text(figures.get("loss")), _text(figures.get("perplexity"))
            yield labelled(label, f"{loss} nats a {own.learnt}, perplexity {perplexity} a word{what}")
    if final := _object(training.get("final_pass")):
        yield labelled("final pass", _named(final))
    if log_z := _object(training.get("log_z")):
        yield labelled("log Z", f"strays from 0 by {_text(log_z.get('deviation'))}, in scores without a division")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_text(name.replace('_', ' '))} {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    """Write a value of the training summary, which nothing has checked, in printable characters."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    text = "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return printable(text, limit=200)


def as_object(directory: ModelDirectory) -> dict[str, Any]:
    """Report for programs what ``config.json`` says, and what the weights and the log tell."""
    return {
        "file": directory.directory,
        "kind": "language model" if isinstance(directory.model, LanguageModel) else "model",
        "signature": directory.model.signature,
        "config": directory.config,
        "training_seconds": directory.seconds,
    }
