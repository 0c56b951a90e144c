"""A model directory is reported in lines for people, or as an object for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.errors import counted, printable
from phrase_rescore.info.table import labelled
from phrase_rescore.training.log import ModelDirectory, shortfall

_COMMONEST = 5  # words shown of a vocabulary
_SETTINGS = ("preset", "optimizer", "learning_rate", "batch_size", "precision", "seed", "shortlist", "min_count", "max_length")


def report(model: ModelDirectory) -> list[str]:
    """Report for people, line by line."""
    config, training = model.config, _object(model.checkpoint.training)
    sizes, weights = asdict(model.checkpoint.model.config), config["weights"]
    lines = [f"{model.directory}: a model", labelled("signature", model.checkpoint.signature)]
    lines.append(labelled("gives", _gives(model)))
    names = ("hidden", "embedding", "maxout", "rank")
    lines.append(labelled("sizes", ", ".join(f"{name} {sizes[name]:,}" for name in names)))
    parameters = model.checkpoint.model.config.parameters()
    lines.append(labelled("parameters", f"{parameters:,} in {weights['dtype']}, {counted(len(weights['files']), 'file')}"))
    shares = model.checkpoint.unk_shares
    lines.append(labelled("source words", _words(model.checkpoint.src_vocab, shares[0])))
    lines.append(labelled("target words", _words(model.checkpoint.tgt_vocab, shares[1])))
    lines += _training(training, model.seconds)
    lines += _losses(training)
    return [*lines, labelled("made by", _text(config.get("made_by")))]


def _gives(model: ModelDirectory) -> str:
    sides = zip(("source", "target"), model.factors, strict=True)
    read = [f"factor {factor} of the {side} words" for side, factor in sides if factor is not None]
    return (
        f"{'p(source | target)' if model.config['inverse'] else 'p(target | source)'}, of {' and '.join(read) or 'whole words'}"
    )


def _words(vocabulary: Vocabulary, unk_share: float) -> str:
    commonest = " ".join(printable(word) for word in vocabulary.words[:_COMMONEST])
    more = " …" * (len(vocabulary.words) > _COMMONEST)
    return f"{len(vocabulary.words):,}: {commonest}{more} ({unk_share:.1%} of those in training were others)"


def _training(training: Mapping[str, Any], seconds: float | None) -> list[str]:
    if not training:
        return [labelled("training", "not known")]
    pairs, inputs = _object(training.get("distinct_pairs")), training.get("inputs")
    names = ", ".join(map(_text, inputs)) if isinstance(inputs, list) else _text(inputs)
    time = f" in {seconds:,.0f} s" if seconds is not None else ""
    passes = f", {_text(training['passes'])} passes over the pairs" if "passes" in training else ""
    return [
        labelled("trained on", f"{names}: {_text(pairs.get('training'))} pairs, {_text(pairs.get('held_out'))} held out"),
        labelled(
            "training",
            f"{_text(training.get('steps'))} steps{time}{passes}, weights of step {_text(training.get('best_step'))}",
        ),
        *([labelled("warning", found)] if (found := shortfall(training)) else []),
        labelled("settings", _named({name: training[name] for name in _SETTINGS if training.get(name) is not None})),
    ]


def _losses(training: Mapping[str, Any]) -> list[str]:
    """Write the losses of held-out pairs and of the control, and those after a final pass."""
    lines = []
    for label, name, what in (("held out", "held_out", ""), ("  control", "held_out_other_sources", " (sources exchanged)")):
        if figures := _object(training.get(name)):
            loss, perplexity = _text(figures.get("loss")), _text(figures.get("perplexity"))
            lines.append(labelled(label, f"{loss} nats a pair, perplexity {perplexity} a word{what}"))
    if final := _object(training.get("final_pass")):
        lines.append(labelled("final pass", _named(final)))
    return lines


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


def as_object(model: ModelDirectory) -> dict[str, Any]:
    """Report for programs what ``config.json`` says, and what the weights and the log tell."""
    return {
        "file": model.directory,
        "kind": "model",
        "signature": model.checkpoint.signature,
        "config": model.config,
        "training_seconds": model.seconds,
    }
