"""What the fuzz targets share: the command line, the corpus that they begin with, and how a failure is kept.

usage: TARGET.py [--corpus DIR] [LIBFUZZER_OPTION…] [FILE…]

Mutates inputs as coverage grows (atheris, libFuzzer) until something fails or the options say stop:
-max_total_time=600 (seconds), -runs=N, -seed=N (then a run can be repeated). DIR (default: build/fuzz/TARGET) keeps what was
found worth keeping; seeds are written into it first. A failing input is kept beside it, as DIR-crash-…; with it as FILE
only that input is tried again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
HANG = 20  # seconds for one input
Mutator = Callable[[bytes, int, int], bytes]  # (input, largest size, seed)


def told(error: Exception, longest: int = 500) -> None:
    """Check what an error says; a user reads one line of printable characters."""
    text = str(error)
    assert text.isprintable(), text
    assert len(text) < longest, text


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
    check: Callable[[bytes], None],
    seeds: Iterable[bytes],
    largest: int,
    tokens: Iterable[bytes] = (),
    mutate: Mutator | None = None,
) -> None:
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
