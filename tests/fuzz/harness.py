"""What the fuzz targets share: the command line, the corpus, inputs that are several files, and how a failure is kept.

usage: TARGET.py [--corpus DIR] [LIBFUZZER_OPTION…] [FILE…]

Mutates inputs as coverage grows (atheris, libFuzzer) until something fails or the options say stop:
-max_total_time=600 (seconds), -runs=N, -seed=N (then a run can be repeated). DIR (default: build/fuzz/TARGET) keeps what was
found worth keeping; seeds are written into it first. A failing input is kept beside it, as DIR-crash-…; with it as FILE
only that input is tried again.

An input of several files has them with SEPARATOR between; parts that are missing at the end are missing files.
"""

import argparse
import contextlib
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import atheris

ROOT = Path(__file__).resolve().parents[2]
HANG = 20  # seconds for one input
SEPARATOR = b"\n--8<--\n"
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 8, 2**31, 2**32, 2**53, 2**63 - 1, 2**64, 10**12, 10**30, 10**4000, 0.5, 1.0, 1e308,
    float("nan"), float("inf"), float("-inf"), "", "float32", "bfloat16", "F32", "BF16", "F64", "F16", "I64", "BOOL", "F4",
    "F8_E8M0", "U64", "C64", "../x", "/etc/passwd", "/dev/zero", "a\0b", "a\nb", "\x1b[31m", "\ud800", "\u202e", "x" * 2000,
    [], {}, [1], [0, 10**18], [2**63], [0, 0], [0, 2**64], ["x", "x"], [[]], [None], {"source": 1},
    {"source": {}, "target": []},
)  # fmt: skip
DEEP = (b"[" * 500 + b"]" * 500, b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"9" * 5000, b"1e999", b"-NaN", b"NaN")
Mutator = Callable[[bytes, int, int], bytes]  # (input, largest size, seed)
Change = Callable[[bytes, random.Random], bytes]
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError, struct.error)


def told(error: Exception, longest: int = 500) -> str:
    """Check what an error says, and return it; a user reads one line of printable characters."""
    text = str(error)
    assert text.isprintable(), text
    assert len(text) < longest, text
    return text


def workplace() -> str:
    """Make a folder, in memory if it can be, that goes when the target ends. What follows runs in a child process.

    libFuzzer ends its process without a word, so another one has to clean up.
    """
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None, prefix="fuzz-")
    child = os.fork()
    if not child:
        return folder
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os.kill(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    shutil.rmtree(folder)
    sys.exit(status if status >= 0 else 128 - status)


def fuzz(
    check: Callable[[bytes], None], seeds: Iterable[bytes], largest: int, tokens: Iterable[bytes] = (),
    mutate: Mutator | None = None,
) -> None:  # fmt: skip
    """Runs ``check`` on mutated ``seeds`` of at most ``largest`` bytes; whatever it raises is a failure.

    ``tokens`` are put into inputs whole. Does not return: libFuzzer ends the process.
    """
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(usage=(__doc__ or "").partition("usage: ")[2], add_help=False)
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "fuzz" / name)
    options, rest = parser.parse_known_args()
    corpus: Path = options.corpus
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    if all(argument.startswith("-") for argument in rest):
        rest.append(str(corpus))
    own = [f"-artifact_prefix={corpus}-", f"-max_len={largest}", "-len_control=20", f"-timeout={HANG}"]
    if listed := ["".join(rf"\x{byte:02x}" for byte in token) for token in tokens]:
        words = corpus.with_suffix(".dict")
        words.write_text("".join(f'"{token}"\n' for token in listed))
        own.append(f"-dict={words}")
    atheris.Setup([sys.argv[0], *own, *rest], check, **({"custom_mutator": mutate} if mutate else {}))
    atheris.Fuzz()


def fuzz_files(
    folder: str, names: Sequence[str], check: Callable[[], None], seeds: Iterable[bytes], largest: int,
    changes: Sequence[tuple[int, Change]], mend: Callable[[list[bytes]], None] = lambda parts: None, memory: int = 0,
) -> None:  # fmt: skip
    """Run ``check`` on folders with files of these names, six times in ten after one of ``changes`` of the file of that number.

    Any bytes of any file change otherwise. ``mend``, most times, makes of the parts what is whole by sums and sizes again.
    The process may take ``memory`` bytes more of address space than it has after the first seeds.
    """

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        parts = data.split(SEPARATOR)
        number, change = chance.choice(changes)
        done = False
        if len(parts) == len(names) and chance.random() < 0.6:
            with contextlib.suppress(*UNREADABLE):
                parts[number] = change(parts[number], chance)
                done = True
        if not done:
            which = chance.randrange(len(parts))
            parts[which] = atheris.Mutate(parts[which], max(1, largest - len(data) + len(parts[which])))
        if len(parts) == len(names) and chance.random() < 0.8:
            with contextlib.suppress(*UNREADABLE):
                mend(parts)
        return SEPARATOR.join(parts)[:largest]

    def check_input(data: bytes) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        for name, part in zip(names, data.split(SEPARATOR), strict=False):
            Path(folder, name).write_bytes(part)
        check()

    seeds = list(seeds)
    for seed in seeds:  # torch, too, imports some of its parts when they are first used
        check_input(seed)
    if memory:
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (in_use + memory, resource.RLIM_INFINITY))
    fuzz(check_input, seeds, largest, mutate=mutate)


def joined(folder: str | Path, names: Sequence[str]) -> bytes:
    """The files of a folder as one input."""
    return SEPARATOR.join(Path(folder, name).read_bytes() for name in names)


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
