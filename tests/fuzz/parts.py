"""Inputs that are several files: how they are cut and laid out, and mutations after which they can still be read.

The parts of an input stand with SEPARATOR between; parts that are missing at the end are missing files.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import atheris
from harness import Mutator

SEPARATOR = b"\n--8<--\n"
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 8, 2**31, 2**32, 2**53, 2**63 - 1, 2**64, 10**12, 10**30, 10**4000, 0.5, 1.0, 1e308,
    float("nan"), float("inf"), float("-inf"), "", "float32", "bfloat16", "F32", "BF16", "F64", "F16", "I64", "BOOL", "F4",
    "F8_E8M0", "U64", "C64", "../x", "/etc/passwd", "/dev/zero", "a\0b", "a\nb", "\x1b[31m", "\ud800", "\u202e", "x" * 2000,
    [], {}, [1], [0, 10**18], [2**63], [0, 0], [0, 2**64], ["x", "x"], [[]], [None], {"source": 1},
    {"source": {}, "target": []},
)  # fmt: skip
DEEP = (b"[" * 500 + b"]" * 500, b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"9" * 5000, b"1e999", b"-NaN", b"NaN")
Change = Callable[[bytes, random.Random], bytes]


def joined(folder: str | Path, names: Sequence[str]) -> bytes:
    """The files of a folder as one input."""
    return SEPARATOR.join(Path(folder, name).read_bytes() for name in names)


def lay_out(data: bytes, folder: str | Path, names: Sequence[str]) -> None:
    """Make the files of an input, and none of these names besides."""
    for name in names:
        Path(folder, name).unlink(missing_ok=True)
    for name, part in zip(names, data.split(SEPARATOR), strict=False):
        Path(folder, name).write_bytes(part)


def _json_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with every key of it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _json_places(value[key])


def mutate_json(data: bytes, chance: random.Random, odd: Sequence[Any] = ODD_VALUES) -> bytes:
    """Take out a value, put another of its values in its place, or an odd one."""
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
        container[key] = chance.choice(odd)
    return json.dumps(value).encode()


def mutate_tensors(data: bytes, chance: random.Random) -> bytes:
    """Give a file of safetensors another header of the right length, another length, or another number."""
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


def mutator(
    names: Sequence[str], changes: Sequence[tuple[int, Change]], mend: Callable[[list[bytes]], None] = lambda parts: None
) -> Mutator:
    """Make a mutator: six times in ten one of ``changes``, of the part of that number, and else any bytes of any part.

    ``mend``, most times, makes of the parts what is whole by sums and sizes again.
    """

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        parts = data.split(SEPARATOR)
        number, change = chance.choice(changes)
        done = False
        if len(parts) == len(names) and chance.random() < 0.6:
            try:
                parts[number] = change(parts[number], chance)
                done = True
            except (ValueError, struct.error, RecursionError, KeyError, OverflowError):
                pass
        if not done:
            which = chance.randrange(len(parts))
            parts[which] = atheris.Mutate(parts[which], max(1, largest - len(data) + len(parts[which])))
        if len(parts) == len(names) and chance.random() < 0.8:
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError, AttributeError):
                mend(parts)
        return SEPARATOR.join(parts)[:largest]

    return mutate


def in_use() -> int:
    """Bytes of address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
