"""The paths of a command: that each can be read or written, and that no two are the same file, before anything is touched."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from phrase_rescore.errors import OptionError, printable, remedy

_DESCRIPTOR = re.compile(r"/dev/fd/\d+|/proc/(?:self|thread-self|\d+)/fd/\d+|/dev/std(?:in|out|err)")
_MOST_LINKS = 40  # as the kernel follows


class Role(enum.Enum):
    """What a command does with a path."""

    READ = enum.auto()
    READ_DIRECTORY = enum.auto()
    WRITE = enum.auto()
    WRITE_DIRECTORY = enum.auto()  # made or replaced as a whole
    SCRATCH = enum.auto()  # a directory in which temporary files are made


_READS = (Role.READ, Role.READ_DIRECTORY)
_WRITES = (Role.WRITE, Role.WRITE_DIRECTORY)
_DIRECTORIES = (Role.READ_DIRECTORY, Role.WRITE_DIRECTORY, Role.SCRATCH)


@dataclass(frozen=True)
class Use:
    """One path of a command: the option that names it as its user types it, the path, and what is done with it."""

    option: str
    path: str
    role: Role
    made_by: str = "train TABLE"  # what makes a model that is to be read

    def __str__(self) -> str:
        return f"{self.option} {printable(os.fsencode(self.path), 1000)}"


def normal(path: str) -> str:
    """Return the path from which names of other files are derived: what stands beside it, not in it.

    >>> normal("model//"), normal("model/."), normal("/nowhere/model/..")
    ('model', 'model', '/nowhere')
    """
    short = re.sub(r"(?<=.)(/\.?)+$", "", path)
    return os.path.realpath(short) if os.path.basename(short) in (".", "..") else short


def _is_descriptor(path: str) -> bool:
    """Tell whether the path, or a link that it leads through, is an open file of a process, as ``/dev/stdout`` is."""
    for _ in range(_MOST_LINKS):
        if _DESCRIPTOR.fullmatch(os.path.abspath(path)):
            return True
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except (OSError, ValueError):
            return False
    return False


def is_stream(path: str) -> bool:
    """Tell whether a path is written to, or read, as it is: ``-``, an open descriptor, a device, a pipe."""
    if path == "-" or _is_descriptor(path):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def check_paths(uses: Iterable[Use]) -> None:
    """Raise OptionError, which names the option, for paths that a command cannot read or write or must not mix up.

    Call it before anything is opened for writing, with all paths, those derived from others too. Files are the same if their
    device and inode are, through links and other spellings; one that is not there yet is its directory and its name. Nothing
    may lie in a directory that is replaced as a whole.
    """
    uses = list(uses)
    for use in uses:
        try:
            _check(use)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            found = error.strerror if isinstance(error, OSError) else str(error)
            hint = remedy(error, writing=use.role not in _READS) if isinstance(error, OSError) else "check the name"
            raise OptionError(f"{use}: {found}" + (f"; {hint}" if hint else "")) from None
    identities = list(map(_identity, uses))
    for (one, its), (other, others) in combinations(zip(uses, identities, strict=True), 2):
        if one.role not in _WRITES and other.role not in _WRITES:
            continue
        if its is not None and its == others:
            raise OptionError(f"{one} and {other} are the same; name another for one of them")
        for outer, inner in ((one, other), (other, one)):
            if outer.role is Role.WRITE_DIRECTORY and _is_inside(inner.path, outer.path):
                raise OptionError(f"{inner} is inside {outer}, which is replaced as a whole; name another for one of them")


def names_around(directory: str) -> tuple[str, str, str]:
    """Return what a directory's name leads to, the name under which its successor grows, and the one under which it goes."""
    target = os.path.realpath(directory)
    parent, name = os.path.split(target)
    return target, os.path.join(parent, f".{name}.partial"), os.path.join(parent, f".{name}.old")


def older_directory(directory: str) -> str | None:
    """Return where the directory is that a killed run was about to replace, None if it has its name."""
    target, _, old = names_around(directory)
    return old if os.path.isdir(old) and not os.path.lexists(target) else None


def missing_model(directory: str, made_by: str = "train TABLE") -> str:
    """Say of what is not a directory that it is not a model, and what to do."""
    if os.path.lexists(directory):
        return f"a file, not a model directory; name the directory that 'phrase-rescore {made_by.partition(' ')[0]}' made"
    if old := older_directory(directory):
        return f"no such model directory; a run that replaced it was killed; run it again, or give {old} its name back"
    return f"no such model directory; make one with 'phrase-rescore {made_by} -m {directory}'"


def _check(use: Use) -> None:
    """Check one path by itself. Raises OptionError, or what the system says of it."""
    is_directory = use.role in _DIRECTORIES
    if not use.path:
        raise OptionError(f"{use.option} is empty; name a {'directory' if is_directory else 'file'}")
    if is_stream(use.path):
        if is_directory:
            raise OptionError(f"{use} is not a directory; name one")
        if use.path != "-" and not _may(use.path, os.W_OK if use.role in _WRITES else os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    elif use.role in _WRITES:
        _check_writable(use)
    elif use.role is Role.READ:
        if os.path.isdir(use.path):
            raise OptionError(f"{use} is a directory; name a file in it")
        os.close(os.open(use.path, os.O_RDONLY))
    elif use.role is Role.READ_DIRECTORY and not os.path.isdir(use.path):
        raise OptionError(f"{use}: {printable(missing_model(use.path, use.made_by), 2000)}")
    else:
        os.scandir(use.path).close()
        if use.role is Role.SCRATCH and not _may(use.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _may(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _check_writable(use: Use) -> None:
    """Check that a file, or a directory, can take this name. Nothing is made."""
    path = os.path.realpath(use.path)
    if use.role is Role.WRITE and (os.path.isdir(path) or use.path.endswith("/")):
        raise OptionError(f"{use} is a directory; name a file to write")
    if use.role is Role.WRITE_DIRECTORY and os.path.isdir(path) and os.path.samefile(path, os.curdir):
        raise OptionError(f"{use} is the working directory; name a directory in it")
    if use.role is Role.WRITE_DIRECTORY and os.path.lexists(use.path):
        with contextlib.suppress(FileNotFoundError):  # a link to what is not there yet
            os.scandir(use.path).close()
    parent, name = os.path.split(path)
    while use.role is Role.WRITE_DIRECTORY and not os.path.lexists(parent):  # missing ones are made
        parent = os.path.dirname(parent)
    if len(os.fsencode(name)) > os.pathconf(parent, "PC_NAME_MAX"):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    os.stat(os.path.join(parent, ""))  # raises ENOTDIR for a file
    if not _may(parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _identity(use: Use) -> tuple[object, ...] | None:
    """Return what is equal for two names of one file, there or not yet there; None for devices, which may serve twice."""
    try:
        if use.path == "-":
            found = os.fstat(1 if use.role in _WRITES else 0)
        else:
            found = os.stat(use.path)
    except OSError:
        directory, name = os.path.split(os.path.realpath(use.path))
        around = os.stat(directory) if os.path.exists(directory) else None
        return (around.st_dev, around.st_ino, name) if around else (directory, name)
    return None if stat.S_ISCHR(found.st_mode) or stat.S_ISSOCK(found.st_mode) else (found.st_dev, found.st_ino)


def _is_inside(path: str, directory: str) -> bool:
    if is_stream(path):
        return False
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(directory), ""))


def beside(model_dir: str, what: str) -> str:
    """Return the path of what a training keeps beside the model: its pairs, its training state, its dropped rows."""
    return f"{normal(model_dir)}.{what}"
