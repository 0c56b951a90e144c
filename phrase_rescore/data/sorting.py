"""Distinct phrase pairs of inputs larger than memory: sorted by GNU sort, kept in a file, read as often as needed.

A pair is a line ``source TAB target``: words hold neither tab nor newline, and every other byte passes through unharmed,
NUL included. The order is that of the lines' bytes (``LC_ALL=C``), so equal sources are neighbours.
"""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.files.outputs import remove_directory
from phrase_rescore.moses.pairs import PairBlock

_CHUNK = 1 << 20  # bytes read back at a time
_NAMES = ("sort", "gsort", "gnusort")  # GNU's on most systems, beside BSD's, and beside that of uutils
_MORE_ROOM = "name a directory with more room with --scratch"


@dataclass
class SortedPairs:
    """Distinct pairs in a file, in the order of their lines; iterating, any number of times, gives them in blocks."""

    path: str
    left_out: int = 0  # distinct pairs, none of them too long, that were seen less than ``min_count`` times
    too_long: int = 0  # distinct pairs with a phrase of more than ``max_length`` words

    def __iter__(self) -> Iterator[PairBlock]:
        with open(self.path, "rb") as stream:
            for chunk in _chunks(stream):
                phrases = chunk[:-1].replace(b"\n", b"\t").split(b"\t")
                yield PairBlock(phrases[0::2], phrases[1::2])


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield a stream in pieces of whole lines. A piece that ends within a line, as when sort was killed, is left out."""
    while chunk := stream.read(_CHUNK):
        if not chunk.endswith(b"\n"):
            chunk += stream.readline()
        if chunk.endswith(b"\n"):
            yield chunk


def _gnu_sort() -> str:
    """Return the name of GNU sort. Raises OptionError if there is none: others differ in options, bytes they take, limits."""
    for name in _NAMES:
        with contextlib.suppress(OSError):
            version = subprocess.run([name, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if b"GNU coreutils" in version.stdout.partition(b"\n")[0]:
                return name
    raise OptionError(f"no GNU sort in PATH (looked for {', '.join(_NAMES)}); install GNU coreutils")


def _add(totals: dict[bytes, float], pairs: Iterable[bytes], counts: Iterable[float]) -> None:
    for pair, count in zip(pairs, counts, strict=False):
        totals[pair] = totals.get(pair, 0) + count


def _feed(stream: IO[bytes], blocks: Iterable[PairBlock], counted: bool) -> bool:
    """Write the lines of all pairs, each once a block. Returns False if the reader went away."""
    try:
        for src, tgt, counts in blocks:
            pairs = map(b"\t".join, zip(src, tgt, strict=True))
            if counted:
                assert counts is not None, "read_pair_blocks(counts=True)"
                totals: dict[bytes, float] = {}
                _add(totals, pairs, counts)
                stream.writelines(b"%b\t%a\n" % item for item in totals.items())
            else:
                stream.writelines(pair + b"\n" for pair in dict.fromkeys(pairs))
        stream.close()
    except BrokenPipeError:
        return False
    return True


def _sorted(
    program: str, directory: str, memory: int, threads: int, blocks: Iterable[PairBlock], counted: bool
) -> Generator[bytes]:
    """Yield the lines of all pairs as sort gives them back, in pieces. Raises RescoreError if sort fails, or breaks off."""
    # With counts, equal pairs are different lines: they meet when the count takes no part in the comparison
    order = ["--stable", "--field-separator=\t", "--key=1,2"] if counted else ["--unique"]
    # By its own batches of 16 runs sort would copy large inputs once more
    bounds = [f"--buffer-size={memory}b", f"--parallel={threads}", "--batch-size=64"]
    command, pipe = [program, *order, *bounds, f"--temporary-directory={directory}"], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "LC_ALL": "C"})
    given, taken, messages = streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream]
    try:
        complete = _feed(given, blocks, counted)  # sort reads everything before it writes anything
        yield from _chunks(taken)
        complaints, status = messages.read().decode("utf-8", "backslashreplace").splitlines(), process.wait()
        if status or not complete:
            ended = f"killed by signal {-status}" if status < 0 else f"sort ended with status {status}"
            why = complaints[-1] if complaints else ended
            raise RescoreError(f"sorting the phrase pairs failed: {why}; {_MORE_ROOM}, or sort with less memory")
    finally:
        process.kill()
        for stream in streams:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        process.wait()


def _totals(chunks: Iterable[bytes], counted: bool) -> Iterator[dict[bytes, float]]:
    """Yield the distinct pairs of sorted lines, in order, with how often each was seen (once, without counts)."""
    last_pair: dict[bytes, float] = {}  # which the next chunk may continue
    for chunk in chunks:
        lines = chunk[:-1].split(b"\n")
        if not counted:
            yield dict.fromkeys(lines, 1)
            continue
        split = [line.rpartition(b"\t") for line in lines]
        totals = last_pair
        _add(totals, (pair for pair, _, _ in split), (float(count) for _, _, count in split))
        last = next(reversed(totals))
        last_pair = {last: totals.pop(last)}
        yield totals
    yield last_pair


def _is_short(pair: bytes, max_length: int) -> bool:
    src, _, tgt = pair.partition(b"\t")
    return src.count(b" ") < max_length and tgt.count(b" ") < max_length


def _keep(result: SortedPairs, chunks: Iterable[bytes], min_count: int, max_length: int | None) -> None:
    with open(result.path, "wb") as stream:
        for totals in _totals(chunks, min_count > 1):
            short = list(totals) if max_length is None else [pair for pair in totals if _is_short(pair, max_length)]
            kept = short if min_count <= 1 else [pair for pair in short if totals[pair] >= min_count]
            result.too_long += len(totals) - len(short)
            result.left_out += len(short) - len(kept)
            stream.writelines(pair + b"\n" for pair in kept)


def scratch_name(scratch: str, owner: str) -> str:
    """Return the directory in ``scratch`` of whoever has the lock of ``owner`` here, where a killed run leaves it."""
    who = f"{os.uname().nodename}\0{os.geteuid()}\0{os.path.realpath(owner)}"
    return os.path.join(scratch, f"phrase-rescore-{hashlib.blake2b(os.fsencode(who), digest_size=8).hexdigest()}")


@contextlib.contextmanager
def sorted_pairs(
    blocks: Iterable[PairBlock], scratch: str, owner: str, memory: int, threads: int, min_count: int = 1,
    max_length: int | None = None,
) -> Iterator[SortedPairs]:  # fmt: skip
    """Yield the distinct pairs of all blocks, once each, which exist until the ``with`` block ends.

    ``memory``: the bytes that sorting may use; the rest lies in a directory made in ``scratch``, which is always removed.
    For an ``owner``, a path whose lock the caller has, it always has the same name, and what a killed run left in it goes.
    Pairs with a phrase of more than ``max_length`` words are left out, and those whose counts add up to less than ``min_count``
    (above 1, blocks need counts). Raises OptionError without GNU sort or a usable ``scratch``, RescoreError if it fails.
    """
    program, directory = _gnu_sort(), scratch_name(scratch, owner)
    remove_directory(directory)
    with contextlib.ExitStack() as made:
        try:
            os.mkdir(directory, 0o700)
        except OSError as error:
            raise OptionError(f"cannot write in {scratch}: {error.strerror}; name another directory with --scratch") from None
        made.callback(remove_directory, directory)
        result = SortedPairs(os.path.join(directory, "pairs"))
        with contextlib.closing(_sorted(program, directory, memory, threads, blocks, min_count > 1)) as chunks:
            try:
                _keep(result, chunks, min_count, max_length)
            except OSError as error:
                raise RescoreError(f"cannot write in {scratch}: {error.strerror}; {_MORE_ROOM}") from None
        yield result
