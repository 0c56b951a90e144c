"""Files written over hours, which go on after a kill, a full disk or a power cut: partials beside them, and a journal.

OUT.partial          what has been written so far, in whole blocks
OUT.partial.json     the journal: how many bytes of each partial count, their CRC-32, whose they are, where their writer stood;
                     a line of JSON, and its own CRC-32 on the next

What the journal counts is on disk before the journal says so, and the journal is replaced whole. So at whatever moment a run
ends, a later one finds a journal and at least the bytes that it counts; the bytes after them are cut off. The files take
their names when all partials are on disk, OUT the last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from phrase_rescore.errors import OptionError, RescoreError, cannot_write
from phrase_rescore.files.atomic import Writable, atomic_output, give_usual_rights, is_special, sync
from phrase_rescore.files.streams import CHUNK

SECONDS_BETWEEN = 10.0  # entries of the journal
_FORMAT_VERSION = 2


def _new_file(path: str, flags: int) -> int:
    """Open a file made here and now: what stands there, a killed run's or anybody's link, is taken away."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, flags | os.O_EXCL, 0o600)


class PartialFile:
    """Bytes appended to ``TARGET.partial``. A link stays, and what it leads to is replaced."""

    def __init__(self, target: str) -> None:
        self.name, self.target = target, os.path.realpath(target)
        self.path, self.length, self.crc = f"{self.target}.partial", 0, 0
        self._handle = -1

    def open(self, length: int = 0, crc: int = 0) -> None:
        """Lock the file and cut it at ``length``; make it if need be.

        Raises OptionError if it cannot be written or another process has it, RescoreError if ``crc`` is not the CRC-32 of its
        first ``length`` bytes.
        """
        if os.path.isdir(self.target):
            raise OptionError(f"{self.name} is a directory; name a file to write")
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OptionError(cannot_write(self.name, error)) from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OptionError(f"{self.path} is being written by another process; let it end") from None
        while self.length < length and (data := os.read(self._handle, min(CHUNK, length - self.length))):
            self._count(data)
        if (self.length, self.crc) != (length, crc):
            self.close()
            raise RescoreError(f"{self.path} is not what its journal says; delete it to begin anew")
        os.ftruncate(self._handle, length)

    def _count(self, data: bytes) -> None:
        self.length, self.crc = self.length + len(data), zlib.crc32(data, self.crc)

    def write(self, data: bytes) -> None:
        """Append all of it. Raises RescoreError when it cannot."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError as error:
            raise RescoreError(cannot_write(self.name, error)) from None
        self._count(data)

    def sync(self) -> None:
        os.fsync(self._handle)

    def publish(self) -> None:
        """Give the file its name."""
        give_usual_rights(self._handle)
        os.replace(self.path, self.target)
        sync(os.path.dirname(self.target))
        self.close()

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def discard(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class ResumableOutput:
    """OUT and files that belong to it, written as partials.

    ``identity`` is what must be the same for a run to go on from another's partials; ``beside`` names the other files that it
    may write. ``state`` is what the interrupted run left, None in a new one; ``finished`` says that all files are in place
    already and only the journal was left.

    Raises OptionError if the files cannot be written or are another run's, RescoreError if they are damaged.
    """

    def __init__(self, out: str, identity: dict[str, Any], resume: bool, beside: Sequence[str] = ()) -> None:
        self._table, self._others = PartialFile(out), dict[str, PartialFile]()
        self._beside = {os.path.realpath(path) for path in beside}
        self._journal = f"{self._table.path}.json"
        self._identity = json.loads(json.dumps(identity))
        self._saved, self._rows, self.rows = time.monotonic(), 0, 0
        found = self._read() if resume else None
        self.state: dict[str, Any] | None = found and found["state"]
        self._complete = found is not None and found["complete"]
        self.finished = self._complete and not os.path.exists(self._table.path)
        if self.finished:
            return
        if found is None:
            if not resume and os.path.exists(self._journal) and os.path.exists(self._table.path):
                raise OptionError(
                    f"{self._table.path} is of an interrupted run; go on with --resume, or delete it to begin anew"
                )
            self._table.open()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._journal)  # of a run whose partial is gone
            return
        self._rows = self.rows = found["rows"]
        self._table.open(*found["table"])
        for path, counted in found["others"].items():
            self._others[path] = PartialFile(path)
            if not self._complete or os.path.exists(self._others[path].path):  # else it has its name already
                self._others[path].open(*counted)

    def _read(self) -> dict[str, Any] | None:
        try:
            with open(self._journal, "rb") as stream:
                text, _, crc = stream.read().partition(b"\n")
            journal: dict[str, Any] = json.loads(text)
            if journal["format_version"] != _FORMAT_VERSION or crc != b"%08x\n" % zlib.crc32(text):
                raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            found = f"{self._journal} is damaged or not a journal of this version"
            raise RescoreError(f"{found}; delete it and {self._table.path} to begin anew") from None
        identity = journal["identity"]
        for key in sorted(identity.keys() | self._identity.keys()):
            was, now = identity.get(key), self._identity.get(key)
            if was != now:
                found = f"{key} was {was!r} and is {now!r} now"
                raise OptionError(f"--resume: {found}; delete {self._table.path} to begin anew")
        if strange := sorted(journal["others"].keys() - self._beside):
            found = f"the interrupted run wrote {strange[0]} too, and this one does not"
            raise OptionError(f"--resume: {found}; name it as before, or delete {self._table.path} to begin anew")
        return journal

    def _partials(self) -> list[PartialFile]:
        return [*self._others.values(), self._table]

    def write(self, data: bytes, rows: int) -> None:
        self._table.write(data)
        self.rows += rows

    @contextlib.contextmanager
    def other(self, path: str) -> Iterator[Writable]:
        """Open another file, whose partial goes on and ends with OUT's; a device or a named pipe is written to as it is."""
        if is_special(path):
            with atomic_output(path) as stream:
                yield stream
            return
        key = os.path.realpath(path)
        if key not in self._others:
            self._others[key] = PartialFile(path)
            self._others[key].open()
        yield self._others[key]

    def save(self, state: Callable[[], dict[str, Any]], complete: bool = False) -> None:
        """Put everything on disk, then the journal that counts it."""
        if self._complete:  # an earlier run has said so
            return
        for partial in self._partials():
            partial.sync()
        journal = {
            "format_version": _FORMAT_VERSION,
            "identity": self._identity,
            "complete": complete,
            "rows": self.rows,
            "table": [self._table.length, self._table.crc],
            "others": {path: [partial.length, partial.crc] for path, partial in self._others.items()},
            "state": state(),
        }
        text = json.dumps(journal).encode()
        new = f"{self._journal}.new"
        with open(new, "wb", opener=_new_file) as stream:  # no other run has this name: the table's partial is locked
            stream.write(b"%b\n%08x\n" % (text, zlib.crc32(text)))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, self._journal)
        sync(os.path.dirname(self._journal))
        self._rows, self._saved, self._complete = self.rows, time.monotonic(), complete

    def save_now_and_then(self, state: Callable[[], dict[str, Any]]) -> None:
        if time.monotonic() >= self._saved + SECONDS_BETWEEN:
            self.save(state)

    def publish(self) -> None:
        """Give all files their names, OUT the last, and remove the journal. ``save(…, complete=True)`` comes first."""
        for partial in self._partials():
            if os.path.exists(partial.path):
                partial.publish()
        os.unlink(self._journal)

    def give_up(self, state: Callable[[], dict[str, Any]], interrupted: bool) -> str:
        """Keep what a later run can go on from, and return what to say of it; if that is nothing, remove the partials.

        A failure before the first entry of the journal leaves nothing; an interruption leaves what there is.
        """
        if self.rows > self._rows and (self._rows or interrupted):
            with contextlib.suppress(OSError, RescoreError):  # a full disk: the last entry stands
                self.save(state)
        for partial in self._partials():
            partial.close()
        if self.finished:
            return f"{self._table.name} is complete; the same command with --resume removes {self._journal}"
        if self._rows:
            return f"{self._rows:,} rows are kept in {self._table.path}; the same command with --resume goes on"
        for partial in self._partials():
            partial.discard()
        return ""
