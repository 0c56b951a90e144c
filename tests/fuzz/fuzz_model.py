"""A model directory by a stranger: it is loaded, or refused in one line; little memory, no other file, no code.

The command line is that of harness.py. An input is config.json, the two vocabularies and the weights, with SEPARATOR between;
parts that are missing at the end are missing files. Half of the mutations are those of a JSON value or of a weight, so that
the rest stays readable.
"""

from __future__ import annotations

import codecs
import copy
import json
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.data.vocabulary import Vocabulary
    from phrase_rescore.errors import ModelError
    from phrase_rescore.info import model as model_report
    from phrase_rescore.models import checkpoint
    from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder, initialise
    from phrase_rescore.training.log import ModelDirectory

import torch
from harness import fuzz

SEPARATOR = b"\n--8<--\n"
FILES = (checkpoint.CONFIG, checkpoint.SOURCE_VOCAB, checkpoint.TARGET_VOCAB, "model-00001-of-00001.safetensors")
ROOM = 512 << 20  # bytes of address space beyond those of the loaded libraries; inputs have some thousands
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 8, 2**31, 2**32, 2**53, 2**63 - 1, 2**64, 10**12, 10**30, 10**4000, 0.5, 1.0, 1e308,
    float("nan"), float("inf"), float("-inf"), "", "float32", "bfloat16", "F32", "BF16", "F64", "F16", "I64", "BOOL", "F4",
    "F8_E8M0", "U64", "C64", "../" + FILES[3], "/etc/passwd", "/dev/zero", "a\0b", "a\nb", "\x1b[31m", "\ud800", "\u202e",
    "x" * 2000, FILES[3], [], {}, [1], [0, 10**18], [2**63], [0, 0], [0, 2**64], [FILES[3], FILES[3]], [[]], [None],
    {"source": 1}, {"source": {}, "target": []},
)  # fmt: skip
CODECS = ("unicode_escape", *(f"utf-{form}" for form in ("8-sig", "16", "16-be", "16-le", "32", "32-be", "32-le")))
DEEP = (b"[" * 500 + b"]" * 500, b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"9" * 5000, b"1e999", b"-NaN", b"NaN")


def model_files(folder: str, dtype: str, inverse: bool) -> bytes:
    """An input that is a whole model."""
    vocabularies = Vocabulary((b"a", b"b\xff"), (2, 1)), Vocabulary((b"x", "é".encode(), b"UNK"), (3, 2, 1))
    read, predicted = reversed(vocabularies) if inverse else vocabularies
    model = RNNEncoderDecoder(ModelConfig(len(read), len(predicted), hidden=2, embedding=1, maxout=1, rank=1))
    initialise(model, 1, paper=False)
    figures = {"loss": 1.5, "perplexity": 2.5}
    training = {"steps": 3, "best_step": 2, "inputs": ["table.gz"], "held_out": figures, "final_pass": None}
    factors = (None, 0 if inverse else None)
    made = checkpoint.Checkpoint(model, *vocabularies, (0.1, 0.0), training, "", inverse, factors)
    os.mkdir(folder)
    checkpoint.save(made, folder, dtype)
    return SEPARATOR.join(Path(folder, name).read_bytes() for name in FILES)


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
        elsewhere = event == "open" and not str(args[0]).startswith(self._folder)
        if elsewhere or event.startswith(self.FORBIDDEN):
            self.seen.append(f"{event} {args!r:.200}")

    def __enter__(self) -> None:
        self.seen.clear()
        self._on = True

    def __exit__(self, *error: object) -> None:
        self._on = False


def _json_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with every key of it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _json_places(value[key])


def mutate_json(data: bytes, chance: random.Random) -> bytes:
    value = json.loads(data)
    if chance.random() < 0.1:
        return data.replace(chance.choice([b"1", b"2", b"0.1", b"null", b"[", b'"']), chance.choice(DEEP), 1)
    places = list(_json_places(value))
    if not places:
        return data
    container, key = chance.choice(places)
    how = chance.randrange(4)
    if how == 0:
        del container[key]
    elif how == 1:
        other, other_key = chance.choice(places)
        container[key] = copy.deepcopy(other[other_key])
    else:
        container[key] = chance.choice(ODD_VALUES)
    return json.dumps(value).encode()


def mutate_weights(data: bytes, chance: random.Random) -> bytes:
    """Another header of the right length, another length, or another number."""
    length = struct.unpack("<Q", data[:8])[0]
    header, numbers = data[8 : 8 + length], data[8 + length :]
    how = chance.randrange(4)
    if how == 0:
        return struct.pack("<Q", chance.choice((0, 1, length - 1, length + 1, 10**8, 2**40, 2**63, 2**64 - 1))) + data[8:]
    if how == 1 and len(numbers) > 4:
        at = 4 * chance.randrange(len(numbers) // 4)
        odd = struct.pack("<f", chance.choice((float("nan"), float("inf"), float("-inf"), 3e38, 1e-45)))
        return data[: 8 + length] + numbers[:at] + odd + numbers[at + 4 :]
    header = mutate_json(header, chance)
    return struct.pack("<Q", len(header)) + header + numbers


def mutate(data: bytes, largest: int, seed: int) -> bytes:
    chance = random.Random(seed)
    parts = data.split(SEPARATOR)
    if len(parts) == len(FILES) and chance.random() < 0.6:
        try:
            if chance.random() < 0.6:
                parts[0] = mutate_json(parts[0], chance)
            else:
                parts[3] = mutate_weights(parts[3], chance)
        except (ValueError, struct.error, RecursionError, KeyError):
            pass
        else:
            return SEPARATOR.join(parts)[:largest]
    which = chance.randrange(len(parts))
    parts[which] = atheris.Mutate(parts[which], max(1, largest - len(data) + len(parts[which])))
    return SEPARATOR.join(parts)[:largest]


def check_model(folder: str) -> None:
    """What is loaded is what a scorer may rely on, and can be told to people."""
    try:
        model = ModelDirectory.read(folder)
    except ModelError as error:
        text = str(error)
        assert text.isprintable(), text
        assert len(text) < 1000, text
        return
    found = model.checkpoint
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
    home = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    folder = os.path.join(home, "model")
    kinds = (("float32", False), ("bfloat16", True))
    seeds = [model_files(os.path.join(home, f"seed{i}"), *kind) for i, kind in enumerate(kinds)]
    os.mkdir(folder)
    watch = Watch(folder)

    def lay_out(data: bytes) -> None:
        for name in FILES:
            Path(folder, name).unlink(missing_ok=True)
        for name, part in zip(FILES, data.split(SEPARATOR), strict=False):
            Path(folder, name).write_bytes(part)

    def check(data: bytes) -> None:
        lay_out(data)
        with watch:
            check_model(folder)
        assert not watch.seen, watch.seen

    for name in CODECS:
        codecs.lookup(name)
    for seed in seeds:  # torch, too, imports some of its parts when they are first used
        lay_out(seed)
        check_model(folder)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM, resource.RLIM_INFINITY))
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(folder)
    fuzz(check, seeds, 16_384, mutate=mutate)


if __name__ == "__main__":
    main()
