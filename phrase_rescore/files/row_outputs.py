"""Outputs of rows: files and streams whose rows are counted, those that are resumed, rows that are left out.

A file written over hours is resumed after a kill, a full disk or a power cut. Beside it are OUT.partial, what has been written
so far, and OUT.partial.json, the journal: how many bytes of each partial count, their CRC-32, whose they are, where their
writer stood. The journal is a line of JSON, and its own CRC-32 on the next.
``commit`` makes the next entry of the journal, in memory: what was written up to it counts. Every few seconds what it counts is
put on disk, then the journal, which is replaced whole. So a later run finds a journal and at least the bytes that it counts;
bytes after them are cut off. The files take their names when all partials are on disk, OUT the last.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from phrase_rescore.errors import OptionError, RescoreError, writing
from phrase_rescore.files.outputs import PartialFile, atomic_output, write_durably
from phrase_rescore.files.paths import is_stream
from phrase_rescore.messages import counted

SECONDS_BETWEEN = 10.0  # entries of the journal that are saved
_FORMAT_VERSION = 3


def _identified(value: object) -> str:
    """Write a value of an identity; a model's signature by the first digits of its hash."""
    return ", ".join(re.findall(r"\|model:(\w{8})", str(value))) or repr(value)


class ResumableOutput:
    """OUT and files that belong to it, written as partials. Raises OptionError for another run's, RescoreError for damage.

    ``identity`` must be the same for a run to resume another's partials; ``beside`` names the other files that it may write.
    ``state`` is what the interrupted run left, None in a new one; ``complete`` says that it had written everything.
    """

    def __init__(self, out: str, identity: dict[str, Any], resume: bool, beside: Iterable[str] = ()) -> None:
        self._table, self._others = PartialFile(out, hidden=False), dict[str, PartialFile]()
        self.path = self._table.path  # where the bytes of OUT are
        self._journal = f"{self.path}.json"
        self._identity = json.loads(json.dumps(identity))
        self.rows = 0
        self.state: dict[str, Any] | None = None
        self._entry = b""  # of the journal: what counts and is not saved yet
        self._saved: dict[str, Any] | None = None  # what counts after a kill
        self._saved_at = time.monotonic()
        begun = os.path.exists(self.path) and os.path.getsize(self.path) > 0
        if not resume and begun and os.path.exists(self._journal):
            with writing(self.path, OptionError):
                self._table.check_dead()
            hint = f"add --resume to continue it, or delete {self.path} to start over"
            raise OptionError(f"{self.path} is left from an interrupted run; {hint}")
        if resume and begun and (journal := self._read(beside)):
            self._resume(journal)
            return
        self._table.make()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._journal)  # of a run whose partial is gone

    @property
    def complete(self) -> bool:
        """Whether the journal on disk says that everything is written."""
        return self._saved is not None and bool(self._saved["complete"])

    def _read(self, beside: Iterable[str]) -> dict[str, Any] | None:
        """Return the journal, if there is one. Raises as the class does."""
        try:
            text, _, crc = Path(self._journal).read_bytes().partition(b"\n")
            journal: dict[str, Any] = json.loads(text)
            if journal["format_version"] != _FORMAT_VERSION or crc != b"%08x\n" % zlib.crc32(text):
                raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            found = f"{self._journal} is damaged or not a journal of this version"
            raise RescoreError(f"{found}; delete it and {self.path} to start over") from None
        identity, hint = journal["identity"], f"delete {self.path} to start over"
        for key in sorted(identity.keys() | self._identity.keys()):
            was, now = identity.get(key), self._identity.get(key)
            if was != now:
                found = f"{self.path} was made with {key} {_identified(was)}, not {_identified(now)}"
                raise OptionError(f"--resume: {found}; give the command as it was, or {hint}")
        if strange := sorted(journal["others"].keys() - set(map(os.path.realpath, beside))):
            found = f"the interrupted run wrote {strange[0]} too, and this one does not"
            raise OptionError(f"--resume: {found}; name it as before, or {hint}")
        return journal

    def _resume(self, journal: dict[str, Any]) -> None:
        """Cut the partials off where the journal says. The others of a complete run may have their names already."""
        self.state, self.rows, self._saved = journal["state"], journal["rows"], journal
        self._others = {path: PartialFile(path, hidden=False) for path in journal["others"]}
        ends = [*journal["others"].values(), journal["table"]]
        try:
            for partial, (length, crc) in zip(self._partials(), ends, strict=True):
                if (os.path.exists(partial.path) or not journal["complete"]) and not partial.resume(length, crc):
                    found = f"{partial.path} differs from what its journal says"
                    raise RescoreError(f"{found}; delete {self.path} to start over")
        except BaseException:
            for partial in self._partials():
                partial.close()
            raise

    def _partials(self) -> list[PartialFile]:
        return [*self._others.values(), self._table]

    def write(self, data: bytes, rows: int) -> None:
        """Write rows of OUT. They count with the next ``commit``."""
        self._table.write(data)
        self.rows += rows

    def other(self, path: str) -> PartialFile:
        """Return the partial of another file, which is resumed and ends with OUT's."""
        partial = PartialFile(path, hidden=False)
        if partial.target not in self._others:
            if not self.complete:
                partial.make()
            self._others[partial.target] = partial
        return self._others[partial.target]

    def commit(self, state: Callable[[], dict[str, Any]], complete: bool = False) -> None:
        """Count everything that was written so far, at once. ``state`` is what a later run needs to resume from here."""
        if self.complete:  # as an earlier run left it
            return
        journal = {
            "format_version": _FORMAT_VERSION, "identity": self._identity, "complete": complete, "rows": self.rows,
            "table": [self._table.length, self._table.crc],
            "others": {path: [partial.length, partial.crc] for path, partial in self._others.items()}, "state": state(),
        }  # fmt: skip
        self._entry = json.dumps(journal).encode()
        if complete or time.monotonic() >= self._saved_at + SECONDS_BETWEEN:
            self._save()

    def _save(self) -> None:
        """Put what counts on disk, then the journal that says so. Raises RescoreError if it cannot."""
        if not self._entry:
            return
        for partial in self._partials():
            partial.sync()
        with writing(self._journal):
            write_durably(self._journal, b"%b\n%08x\n" % (self._entry, zlib.crc32(self._entry)))  # the partial is locked
        self._saved, self._saved_at, self._entry = json.loads(self._entry), time.monotonic(), b""

    def publish(self) -> None:
        """Give all files their names, OUT the last, and remove the journal. ``commit(…, complete=True)`` comes first."""
        for partial in self._partials():
            if partial.handle >= 0:
                partial.publish(keep_empty=partial is self._table)
        os.unlink(self._journal)

    @contextlib.contextmanager
    def kept(self) -> Iterator[ResumableOutput]:
        """Keep what counts when the ``with`` block fails; a note on the error says how to resume. If none does, all goes."""
        try:
            yield self
        except BaseException as error:
            if self._saved or not isinstance(error, RescoreError):
                with contextlib.suppress(OSError, RescoreError):  # a full disk: the last entry stands
                    self._save()
            if self._saved and os.path.exists(self.path):
                rows = counted(self._saved["rows"], "row")
                error.add_note(f"{rows} are kept in {self.path}; the same command with --resume continues")
            for partial in self._partials():
                if self._saved:
                    partial.close()
                else:
                    partial.discard()
            raise


class DroppedRows:
    """The .dropped file: rows left out of the output, if there are any. Unless they are ``expected``, nothing is touched."""

    def __init__(self, path: str, expected: bool) -> None:
        self.path, self.expected = path, expected
        self.rows, self.where = 0, list[str]()
        self._stream: PartialFile | BinaryIO | None = None

    @contextlib.contextmanager
    def opened(self, partial: PartialFile | None = None) -> Iterator[DroppedRows]:
        """Take rows in ``partial``, which others publish, or a file that goes if the block fails. Raises OptionError."""
        output: contextlib.AbstractContextManager[PartialFile | BinaryIO | None] = contextlib.nullcontext(partial)
        if self.expected and not partial:
            output = atomic_output(self.path) if is_stream(self.path) else PartialFile(self.path).written(keep_empty=False)
        with output as self._stream:
            yield self

    def add(self, where: str, row: bytes) -> None:
        """Keep a row (without newline); ``where`` it stood is remembered for the first few."""
        assert self._stream, "only while it is opened"
        self._stream.write(row + b"\n")
        self.rows += 1
        if len(self.where) < 10:
            self.where.append(where)

    def summary(self) -> str:
        """``dropped 2 rows, kept in FILE: 17, 40``, or nothing if there is nothing to say."""
        if not self.rows:
            return ""
        more = ", …" if self.rows > len(self.where) else ""
        return f"dropped {counted(self.rows, 'row')}, kept in {self.path}: {', '.join(self.where)}{more}"


class RowOutput:
    """Rows that are counted as they are written to a stream or a file."""

    complete = False

    def __init__(self, stream: BinaryIO, at_once: bool) -> None:
        self._stream, self._at_once, self.rows, self.begun = stream, at_once, 0, False

    def write(self, data: bytes, rows: int) -> None:
        self.begun = self.begun or bool(data)  # some of it may be written before an error
        self._stream.write(data)
        if self._at_once:  # a reader need not wait, and one that went away is noticed
            self._stream.flush()
        self.rows += rows

    def commit(self, state: Callable[[], dict[str, Any]]) -> None:
        """Do nothing: what goes to a stream cannot be taken back, nor resumed."""


@contextlib.contextmanager
def row_output(out: str) -> Iterator[RowOutput]:
    """Open what ``atomic_output`` does for rows. An error gets a note on how many rows went to a stream before it."""
    streamed, output = is_stream(out), None
    try:
        with atomic_output(out) as stream:
            output = RowOutput(stream, at_once=streamed)
            yield output
    except (Exception, KeyboardInterrupt) as error:
        if streamed and output and output.begun:
            error.add_note(f"OUTPUT IS INCOMPLETE: {output.rows} rows")
        raise
