"""A model directory by a stranger: it is loaded, or refused in one line; little memory, no other file, no code.

The command line is that of harness.py. An input is config.json, the two vocabularies and the weights, laid out by parts.py.
"""

from __future__ import annotations

import codecs
import json
import os
import random
import resource
import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.data.vocabulary import Vocabulary
    from phrase_rescore.errors import ModelError
    from phrase_rescore.info import model as model_report
    from phrase_rescore.info.model import ModelDirectory
    from phrase_rescore.rnn import checkpoint
    from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise

import parts
import torch
from harness import fuzz, workplace

FILES = (checkpoint.CONFIG, checkpoint.SOURCE_VOCAB, checkpoint.TARGET_VOCAB, "model-00001-of-00001.safetensors")
ROOM = 512 << 20  # bytes of address space beyond those of the loaded libraries; inputs have some thousands
ODD_VALUES = (*parts.ODD_VALUES, FILES[3], "../" + FILES[3], [FILES[3], FILES[3]])
CODECS = ("unicode_escape", *(f"utf-{form}" for form in ("8-sig", "16", "16-be", "16-le", "32", "32-be", "32-le")))


def model_files(folder: str, dtype: str, inverse: bool) -> bytes:
    """An input that is a whole model."""
    vocabularies = Vocabulary((b"a", b"b\xff"), (2, 1)), Vocabulary((b"x", "é".encode(), b"UNK"), (3, 2, 1))
    read, predicted = reversed(vocabularies) if inverse else vocabularies
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), hidden=2, embedding=1, maxout=1, rank=1))
    initialise(model, 1, paper=False)
    figures = {"loss": 1.5, "perplexity": 2.5}
    training = {"steps": 3, "passes": 0.5, "best_step": 2, "inputs": ["table.gz"], "held_out": figures, "final_pass": None}
    factors = (None, 0 if inverse else None)
    made = checkpoint.Checkpoint(model, *vocabularies, (0.1, 0.0), training, "", inverse, factors)
    os.mkdir(folder)
    checkpoint.save(made, folder, dtype)
    return parts.joined(folder, FILES)


class Watch:
    """What Python does while a model is loaded, by its audit events."""

    FORBIDDEN = (
        "exec", "compile", "import", "pickle.", "marshal.", "subprocess.", "os.", "ctypes.", "socket.", "shutil.", "code.",
    )  # fmt: skip

    def __init__(self, folder: str) -> None:
        self._folder, self._on, self.seen = folder, False, list[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on:
            return
        looks = event in ("open", "os.scandir")  # the folder's files may have changed meanwhile, so they are listed
        if (looks and not str(args[0]).startswith(self._folder)) or (not looks and event.startswith(self.FORBIDDEN)):
            self.seen.append(f"{event} {args!r:.200}")

    def __enter__(self) -> None:
        self.seen.clear()
        self._on = True

    def __exit__(self, *error: object) -> None:
        self._on = False


def check_model(folder: str) -> None:
    """What is loaded is what a scorer may rely on, and can be told to people."""
    try:
        model = ModelDirectory.read(folder)
    except ModelError as error:
        text = str(error)
        assert text.isprintable(), text
        assert len(text) < 1000, text
        return
    found = model.model
    for name, weight in found.model.named_weights():
        assert weight.dtype is torch.float32, name
        assert weight.isfinite().all(), name
    assert all(0 <= share <= 1 for share in found.unk_shares)
    assert all(len(set(side.words)) == len(side.words) for side in found.vocabs)
    sizes = found.model.config
    assert tuple(map(len, found.vocabs)) == (sizes.src_vocabulary, sizes.tgt_vocabulary)
    for line in model_report.report(model):
        assert line.isprintable(), line
    json.dumps(model_report.as_object(model))


def main() -> None:
    home = workplace()
    folder = os.path.join(home, "model")
    kinds = (("float32", False), ("bfloat16", True))
    seeds = [model_files(os.path.join(home, f"seed{i}"), *kind) for i, kind in enumerate(kinds)]
    os.mkdir(folder)
    watch = Watch(folder)

    def check(data: bytes) -> None:
        parts.lay_out(data, folder, FILES)
        with watch:
            check_model(folder)
        assert not watch.seen, watch.seen

    for name in CODECS:
        codecs.lookup(name)
    for seed in seeds:  # torch, too, imports some of its parts when they are first used
        parts.lay_out(seed, folder, FILES)
        check_model(folder)
    resource.setrlimit(resource.RLIMIT_AS, (parts.in_use() + ROOM, resource.RLIM_INFINITY))

    def mutate_config(data: bytes, chance: random.Random) -> bytes:
        return parts.mutate_json(data, chance, ODD_VALUES)

    mutate = parts.mutator(FILES, ((0, mutate_config), (0, mutate_config), (3, parts.mutate_tensors)))
    fuzz(check, seeds, 16_384, mutate=mutate)


if __name__ == "__main__":
    main()
