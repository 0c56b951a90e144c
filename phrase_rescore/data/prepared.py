"""Data prepared for training, as a directory on disk, for later trainings with the same inputs and options."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import EOS, Vocabulary, format_vocabulary, read_vocabulary
from phrase_rescore.errors import InputError, OptionError, RescoreError
from phrase_rescore.files.inputs import open_plain
from phrase_rescore.files.outputs import check_replaceable, replace_directory
from phrase_rescore.messages import printable

AT_ONCE = 1 << 22  # ids of an array that is mapped from a file
Fingerprint = dict[str, Any]


def fingerprint_of(inputs: Sequence[str], files: Sequence[str | None] = (), **options: Any) -> Fingerprint | None:
    """Return what decides whether a store still fits: path, size and time of every input, and the options.

    ``files``: those besides the inputs, None where one is not given. ``options``: whatever else changes what is prepared, as
    JSON has it. Returns None, so that no store ever fits, if an input cannot be read twice: standard input, a pipe.
    """

    def stamp(path: str) -> str:
        status = os.stat(path)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(status.st_mtime_ns // 10**9))
        return f"{os.path.abspath(path)} ({status.st_size} bytes of {when}.{status.st_mtime_ns % 10**9:09d} UTC)"

    if any(path == "-" or not os.path.isfile(path) for path in (*inputs, *files) if path is not None):
        return None
    return {"inputs": list(map(stamp, inputs)), "files": [path and stamp(path) for path in files], "options": options}


@dataclass(frozen=True)
class Numbers:
    """The numbers in the summary of prepared data: counts, shares, hashes. Raises ValueError for impossible ones."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value: Any = getattr(self, name)
            if (kind is int and not (isinstance(value, int) and value >= 0)) or (kind is float and not 0 <= value <= 1):
                raise ValueError(f"{name} {value}")


Store = TypeVar("Store", bound=Any)  # data prepared on disk, which have ``numbers``
Fill = Callable[[str], tuple[Any, Sequence[Vocabulary]]]  # numbers, and vocabularies


@dataclass(frozen=True)
class Layout(Generic[Store]):
    """The files of a directory of prepared data, the summary and all others, and how they are loaded."""

    what: str  # pairs, text
    summary: str  # format version, fingerprint, numbers, sizes of the others
    vocabularies: tuple[str, ...]
    arrays: tuple[str, ...]
    version: int
    numbers: type[Numbers]
    load: Callable[..., Store]  # takes the directory, the numbers and the vocabularies

    def _sizes(self, directory: str) -> dict[str, int]:
        return {name: os.path.getsize(os.path.join(directory, name)) for name in (*self.vocabularies, *self.arrays)}

    def _load(self, directory: str, numbers: Any) -> Store:
        return self.load(directory, numbers, *(read_vocabulary(os.path.join(directory, name)) for name in self.vocabularies))

    def check_target(self, directory: str) -> None:
        """Raise OptionError if data must not be written under this name: they would replace what is there."""
        check_replaceable(directory)
        try:
            strangers = set(os.listdir(directory)) - {self.summary, *self.vocabularies, *self.arrays}
            found = f" holds other files, such as {min(strangers)}" if strangers else ""
        except FileNotFoundError:
            return
        except OSError as error:
            found = f": {error.strerror}"
        if found:
            raise OptionError(f"{directory}{found}; name another directory for the prepared {self.what}")

    def write(self, directory: str, fingerprint: Fingerprint | None, fill: Fill, check: Callable[[Any], None]) -> Store:
        """Make a directory that appears whole or not at all and replaces an older one; return its contents.

        ``fill`` writes the arrays into a directory, and returns the numbers and the vocabularies. What ``check``
        raises of the numbers keeps an older one from being replaced. The caller holds the lock (``files.locks``). Raises
        OptionError if the directory holds something else, RescoreError if the files cannot be written.
        """
        self.check_target(directory)
        try:
            with replace_directory(directory) as temporary:
                numbers, vocabularies = fill(temporary)
                check(numbers)
                for name, vocabulary in zip(self.vocabularies, vocabularies, strict=True):
                    Path(temporary, name).write_bytes(format_vocabulary(vocabulary))
                summary = {"format_version": self.version, "fingerprint": fingerprint, "numbers": asdict(numbers)}
                summary["files"] = self._sizes(temporary)
                Path(temporary, self.summary).write_text(json.dumps(summary, indent=2) + "\n")
        except OSError as error:
            found = f"cannot write {directory}: {error.strerror}"
            raise RescoreError(f"{found}; make room there, or name another directory") from None
        return self._load(directory, numbers)

    def open(self, directory: str, *fingerprints: Fingerprint | None) -> Store | None:
        """Return the contents of the directory if it is whole, has one of these fingerprints and is still there, else None."""
        try:
            before = os.stat(directory)
            with open(os.path.join(directory, self.summary), encoding="utf-8") as stream:
                summary = json.load(stream)
            wanted = [json.loads(json.dumps(given)) for given in fingerprints if given is not None]  # tuples are lists there
            known = summary["format_version"] == self.version and summary["fingerprint"] in wanted
            if not known or summary["files"] != self._sizes(directory):
                return None
            store = self._load(directory, self.numbers(**summary["numbers"]))
            return store if os.path.samestat(before, os.stat(directory)) else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError, RescoreError):
            return None


@contextmanager
def growing_array(path: str, dtype: type[np.generic]) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Yield a function that appends values to a new one-dimensional .npy file, whole when the ``with`` block ends well."""
    length = 0

    def write_header() -> None:  # NumPy's own, which leaves room for the first number of the shape to grow
        np.lib.format.write_array_header_1_0(stream, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (length,)})

    def append(values: NDArray[Any]) -> None:
        nonlocal length
        stream.write(values.astype(dtype, copy=False).tobytes())
        length += len(values)

    with open(path, "wb") as stream:
        write_header()
        yield append
        stream.seek(0)
        write_header()


def mapped(path: str, dtype: type[np.generic]) -> NDArray[Any]:
    """Map a one-dimensional .npy file. Raises InputError if it is damaged, ValueError if its numbers are of another type."""
    open_plain(path).close()  # raises what the system says of the file
    try:
        array = np.asarray(np.lib.format.open_memmap(path, mode="r"))  # every slice of an np.memmap is one, at a price
    except Exception as error:  # the header is parsed as Python, and its tokenizer, too, has errors of its own
        raise InputError(path, f"is not an array of numbers ({printable(str(error), 200)})", "prepare the data again") from None
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(path)
    return array


def unigram_log_probs(ids: NDArray[np.int32], size: int, ends: int = 0) -> list[float]:
    """Return the natural log of the smoothed relative frequency of every id, with this number of EOS added: (size,)."""
    counts = np.ones(size)
    for start in range(0, len(ids), AT_ONCE):  # bincount makes eight bytes of every id
        counts += np.bincount(ids[start : start + AT_ONCE], minlength=size)
    counts[EOS] += ends
    return [float(x) for x in np.log(counts / counts.sum())]
