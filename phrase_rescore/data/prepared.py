"""Data prepared for training, as a directory on disk: arrays, vocabularies and a summary that says what they were made of.

A later training finds them there and uses them again, if the files and options that they were made of are the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.files.directories import check_replaceable

Fingerprint = dict[str, Any]
Store = TypeVar("Store")


def fingerprint_of(inputs: Sequence[str], files: Sequence[str | None] = (), **options: Any) -> Fingerprint | None:
    """Return what tells whether a store still fits: path, size and time of every file that it comes from, and the options.

    ``files`` are those besides the inputs (vocabularies, a corpus), None where one is not given. ``options`` are whatever
    else changes what is prepared, as JSON has it. Take it before the inputs are read.

    Returns None, so that no store ever fits, if an input cannot be read twice: standard input, a pipe.
    """

    def stamp(path: str | None) -> str | None:
        if path is None:
            return None
        status = os.stat(path)
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
        return f"{os.path.abspath(path)} ({status.st_size} bytes of {when}.{nanoseconds:09d} UTC)"

    if any(path == "-" or not os.path.isfile(path) for path in (*inputs, *files) if path is not None):
        return None
    return {"inputs": list(map(stamp, inputs)), "files": list(map(stamp, files)), "options": options}


@dataclass(frozen=True)
class Layout:
    """What a directory of prepared data has: the file of the summary and all others."""

    what: str  # for messages
    summary: str  # format version, fingerprint, numbers, sizes of the others
    content: tuple[str, ...]
    version: int

    def check_target(self, directory: str) -> None:
        """Raise OptionError if data must not be written under this name: they would replace what is there."""
        check_replaceable(directory)
        try:
            strangers = set(os.listdir(directory)) - {self.summary, *self.content}
        except FileNotFoundError:
            return
        except OSError as error:
            raise OptionError(f"{directory}: {error.strerror}; name another directory for {self.what}") from None
        if strangers:
            found = f"holds other files, such as {min(strangers)}"
            raise OptionError(f"{directory} {found}; name a directory for nothing but {self.what}")

    def write_summary(self, directory: str, fingerprint: Fingerprint | None, numbers: Mapping[str, Any]) -> None:
        """Write the summary beside the finished content. Raises OSError."""
        summary = {
            "format_version": self.version,
            "fingerprint": fingerprint,
            "numbers": numbers,
            "files": {name: os.path.getsize(os.path.join(directory, name)) for name in self.content},
        }
        Path(directory, self.summary).write_text(json.dumps(summary, indent=2) + "\n")

    def open(self, directory: str, fingerprint: Fingerprint | None, load: Callable[[dict[str, Any]], Store]) -> Store | None:
        """Return what ``load`` makes of the numbers, if the directory is whole and of this fingerprint, else None.

        One that another process replaces meanwhile is none: its files may be of two.
        """
        try:
            before = os.stat(directory)
            with open(os.path.join(directory, self.summary), encoding="utf-8") as stream:
                summary = json.load(stream)
            if fingerprint is None or summary["format_version"] != self.version:
                return None
            if summary["fingerprint"] != json.loads(json.dumps(fingerprint)):  # tuples are lists there
                return None
            if summary["files"] != {name: os.path.getsize(os.path.join(directory, name)) for name in self.content}:
                return None
            store = load(summary["numbers"])
            return store if os.path.samestat(before, os.stat(directory)) else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError, RescoreError):
            return None


@contextmanager
def growing_array(path: str, dtype: type[np.generic]) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Give what appends values to a new one-dimensional .npy file, which is whole when the ``with`` block ends well."""
    length = 0

    def write_header() -> None:  # numpy leaves room in it for any length
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(stream, header)

    def append(values: NDArray[Any]) -> None:
        nonlocal length
        stream.write(values.astype(dtype, copy=False).tobytes())
        length += len(values)

    with open(path, "wb") as stream:
        write_header()
        yield append
        stream.seek(0)
        write_header()
