"""A model directory by a stranger: it is loaded, or refused in one line; little memory, no other file, no code.

An input is config.json, the two vocabularies, the weights and the log of the training.
"""

from __future__ import annotations

import codecs
import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import ModelError
    from phrase_rescore.info.model import ModelInfo
    from phrase_rescore.nn import storage
    from phrase_rescore.rnn import checkpoint

import torch
from harness import ODD_VALUES, fuzz_files, joined, mutate_json, mutate_tensors, told, workplace
from small_models import small_checkpoint

FILES = (storage.CONFIG, checkpoint.SOURCE_VOCAB, checkpoint.TARGET_VOCAB, "model-00001-of-00001.safetensors", storage.LOG)
RECORDS = (
    {"step": 0, "seconds": 0.5, "held_out": {"loss": 40.25, "perplexity": 800.5}},
    {"step": 3, "seconds": 61.2, "train_loss": 20.0, "held_out": {"loss": 18.5, "perplexity": 30.1}},
)
ODD = (*ODD_VALUES, FILES[3], "../" + FILES[3], [FILES[3], FILES[3]])
CODECS = ("unicode_escape", *(f"utf-{form}" for form in ("8-sig", "16", "16-be", "16-le", "32", "32-be", "32-le")))
FORBIDDEN = ("exec", "compile", "import", "pickle.", "marshal.", "subprocess.", "os.", "ctypes.", "socket.", "shutil.", "code.")


def make_model(folder: Path, inverse: bool) -> None:
    """Write a model."""
    made = small_checkpoint(hidden=2, words=2)
    if inverse:
        made = replace(made, src_vocab=made.tgt_vocab, tgt_vocab=made.src_vocab, inverse=True, factors=(None, 0))
    figures = {"loss": 1.5, "perplexity": 2.5}
    training = {"steps": 3, "passes": 0.5, "best_step": 2, "inputs": ["table.gz"], "held_out": figures}
    folder.mkdir()
    checkpoint.save(replace(made, training=training), str(folder))
    (folder / storage.LOG).write_text("".join(json.dumps(record) + "\n" for record in RECORDS))


class Watch:
    """What Python does while a model is loaded, by its audit events."""

    def __init__(self, folder: str) -> None:
        self._folder, self._on, self.seen = folder, False, list[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on:
            return
        looks = event in ("open", "os.scandir")  # the folder's files may have changed meanwhile, so they are listed
        if (looks and not str(args[0]).startswith(self._folder)) or (not looks and event.startswith(FORBIDDEN)):
            self.seen.append(f"{event} {args!r:.200}")

    def __enter__(self) -> None:
        self.seen.clear()
        self._on = True

    def __exit__(self, *error: object) -> None:
        self._on = False


def check_model(folder: str) -> None:
    """What is loaded is what a scorer may rely on, and can be told to people."""
    try:
        model = ModelInfo.read(folder)
    except ModelError as error:
        told(error, 1000)
        return
    found = model.model
    for name, weight in found.model.named_weights():
        assert weight.dtype is torch.float32, name
        assert weight.isfinite().all(), name
    assert all(0 <= share <= 1 for share in found.unk_shares)
    assert all(len(set(side.words)) == len(side.words) for side in found.vocabs)
    sizes = found.model.config
    assert tuple(map(len, found.vocabs)) == (sizes.src_vocabulary, sizes.tgt_vocabulary)
    for line in model.lines():
        assert line.isprintable(), line
    json.dumps(model.as_object())


def mutate_config(data: bytes, chance: random.Random) -> bytes:
    return mutate_json(data, chance, ODD)


def mutate_record(data: bytes, chance: random.Random) -> bytes:
    """Another value in one line of a log."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    lines[at] = mutate_json(lines[at] or b"{}", chance)
    return b"\n".join(lines)


def main() -> None:
    home = workplace()
    folder, seeds = os.path.join(home, "model"), list[bytes]()
    watch = Watch(folder)
    for name in CODECS:
        codecs.lookup(name)
    for inverse in (False, True):
        made = Path(home, f"seed{inverse:d}")
        make_model(made, inverse)
        check_model(str(made))  # torch imports some of its parts when they are first used
        seeds.append(joined(made, FILES))

    def check() -> None:
        with watch:
            check_model(folder)
        assert not watch.seen, watch.seen

    changes = (0, mutate_config), (0, mutate_config), (3, mutate_tensors), (4, mutate_record)
    fuzz_files(folder, FILES, check, seeds, 16_384, changes, memory=512 << 20)


if __name__ == "__main__":
    main()
