"""The paths of a command: that each can be read or written, and that no two are the same file, before anything is touched."""

import contextlib
import enum
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from phrase_rescore.errors import OptionError, remedy
from phrase_rescore.messages import printable

Path = str | os.PathLike[str]
_DESCRIPTOR = re.compile(r"/dev/fd/\d+|/proc/(?:self|thread-self|\d+)/fd/\d+|/dev/std(?:in|out|err)")


class Role(enum.Enum):
    """What a command does with a path."""

    READ = enum.auto()
    READ_DIRECTORY = enum.auto()
    READ_EITHER = enum.auto()  # a file or a directory
    WRITE = enum.auto()
    WRITE_DIRECTORY = enum.auto()  # made or replaced as a whole
    CACHE_DIRECTORY = enum.auto()  # read if it is up to date, else made or replaced as a whole
    SCRATCH = enum.auto()  # a directory in which temporary files are made

    @property
    def is_directory(self) -> bool:
        return self not in (Role.READ, Role.READ_EITHER, Role.WRITE)

    @property
    def reads(self) -> bool:
        return self in (Role.READ, Role.READ_DIRECTORY, Role.READ_EITHER)

    @property
    def writes(self) -> bool:
        return not self.reads and self is not Role.SCRATCH


@dataclass(frozen=True)
class Use:
    """One path of a command: the option that names it as its user types it, the path, and what is done with it."""

    option: str
    path: str
    role: Role
    made_by: str = "train TABLE"  # what makes a model that is to be read
    may_be: str | None = None  # the option whose path this may be too

    def __str__(self) -> str:
        return f"{self.option} {printable(os.fsencode(self.path), 1000)}".lstrip()


def followed(path: str) -> Iterator[str]:
    """Yield the path, then what it links to, if it is a link, and so on."""
    with contextlib.suppress(OSError, ValueError):
        for _ in range(40):  # as the kernel follows
            yield path
            path = os.path.join(os.path.dirname(path), os.readlink(path))


def is_stream(path: str) -> bool:
    """Tell whether a path is written to, or read, as it is: ``-``, an open descriptor, a device, a pipe."""
    if path == "-" or any(_DESCRIPTOR.fullmatch(os.path.abspath(link)) for link in followed(path)):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def check_one_stream(*inputs: str | None) -> None:
    """Raise OptionError if more than one input is standard input."""
    if inputs.count("-") > 1:
        raise OptionError("two inputs are '-', standard input; name a file for one of them")


def partial_of(path: str, hidden: bool = True) -> str:
    """Return where the bytes of a file stand until they are complete: ``.NAME.partial`` or ``NAME.partial`` beside it."""
    directory, name = os.path.split(os.path.realpath(path))
    return os.path.join(directory, f".{name}.partial" if hidden else f"{name}.partial")


def check_paths(uses: Iterable[Use]) -> None:
    """Raise OptionError, which names the option, for paths that a command cannot read or write or must not mix up.

    Call it before anything is written, with derived paths after all others. Links and other spellings are seen through.
    """
    checked = list[Use]()
    for use in uses:
        _check(use)
        checked.append(use)
        if use.role is Role.WRITE and not is_stream(use.path):
            checked.append(Use(f"the partial of {use.option}", partial_of(use.path), Role.WRITE))
            _check(checked[-1])
    _check_apart(checked)


def check_new(uses: Iterable[Use]) -> None:
    """Raise OptionError if a file that an option names to be written is there already, and is not empty."""
    for use in uses:
        named = use.role is Role.WRITE and use.option.startswith("-") and not is_stream(use.path)
        if named and os.path.exists(use.path) and os.path.getsize(use.path):
            raise OptionError(f"{use} exists; name another file, or replace it with --overwrite")


def check_outputs(inputs: Iterable[str], *outputs: str) -> None:
    """Raise OptionError if a file that is to be written is an input, or another output: for programs without a command line."""
    _check_apart([*(Use("", path, Role.READ) for path in inputs), *(Use("", path, Role.WRITE) for path in outputs)])


def _check_apart(uses: Iterable[Use]) -> None:
    """Raise OptionError if two are one file and one of them is written, or if one is inside another that is replaced."""
    for (one, its), (other, others) in combinations([(use, _identity(use.path, use.role.writes)) for use in uses], 2):
        same = its is not None and its == others and one.may_be != other.option and other.may_be != one.option
        if same and (one.role.writes or other.role.writes):
            raise OptionError(f"{one} and {other} are the same; name another for one of them")
        for outer, inner in ((one, other), (other, one)):
            if outer.role in (Role.WRITE_DIRECTORY, Role.CACHE_DIRECTORY) and _is_inside(inner.path, outer.path):
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
    try:
        if is_stream(use.path):
            if use.role.is_directory:
                raise OptionError(f"{use} is not a directory; name one")
            if use.path != "-":
                _check_access(use.path, os.W_OK if use.role.writes else os.R_OK)
        elif use.role is Role.SCRATCH:
            os.scandir(use.path).close()
            _check_access(use.path, os.W_OK | os.X_OK)
        elif use.role.writes:
            _check_writable(use)
        elif use.role is Role.READ_DIRECTORY and not os.path.isdir(use.path):
            raise OptionError(f"{use}: {printable(missing_model(use.path, use.made_by), 2000)}")
        elif use.role is not Role.READ and os.path.isdir(use.path):
            os.scandir(use.path).close()
        elif os.path.isdir(use.path):
            raise OptionError(f"{use} is a directory; name a file in it")
        else:
            os.close(os.open(use.path, os.O_RDONLY))
    except OSError as error:
        hint = remedy(error, writing=not use.role.reads)
        raise OptionError(f"{use}: {error.strerror}" + (f"; {hint}" if hint else "")) from None
    except ValueError as error:  # a NUL byte
        raise OptionError(f"{use}: {error}; check the name") from None


def _check_access(path: str, mode: int) -> None:
    if not os.access(path, mode, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_writable(use: Use) -> None:
    """Check that a file, or a directory, can take this name. Nothing is made."""
    path = os.path.realpath(use.path)
    parent, name = os.path.split(path)
    if use.role is Role.WRITE and (os.path.isdir(path) or use.path.endswith("/")):
        raise OptionError(f"{use} is a directory; name a file to write")
    if use.role is not Role.WRITE:
        if os.path.isdir(path) and os.path.samefile(path, os.curdir):
            raise OptionError(f"{use} is the working directory; name a directory in it")
        if os.path.lexists(path):
            os.scandir(path).close()
            if use.role is Role.CACHE_DIRECTORY:
                return  # it may be only read, perhaps where one may not write
        while not os.path.lexists(parent):  # missing ones are made
            parent = os.path.dirname(parent)
    if len(os.fsencode(name)) > os.pathconf(parent, "PC_NAME_MAX"):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    os.stat(os.path.join(parent, ""))  # raises ENOTDIR for a file
    _check_access(parent, os.W_OK | os.X_OK)


def _identity(path: str, writes: bool) -> tuple[object, ...] | None:
    """Return what is equal for two names of one file, there or not yet there; None for devices, which may serve twice."""
    try:
        found = os.fstat(1 if writes else 0) if path == "-" else os.stat(path)
    except OSError:
        directory, name = os.path.split(os.path.realpath(path))
        around = os.stat(directory) if os.path.exists(directory) else None
        return (around.st_dev, around.st_ino, name) if around else (directory, name)
    return None if stat.S_ISCHR(found.st_mode) or stat.S_ISSOCK(found.st_mode) else (found.st_dev, found.st_ino)


def _is_inside(path: str, directory: str) -> bool:
    return not is_stream(path) and os.path.realpath(path).startswith(os.path.join(os.path.realpath(directory), ""))


def beside(model_dir: str, what: str) -> str:
    """Return the path of what a training keeps beside the model: its pairs, its training state, its dropped rows.

    >>> beside("model//", "pairs"), beside("model/.", "pairs"), beside("/nowhere/model/..", "pairs")
    ('model.pairs', 'model.pairs', '/nowhere.pairs')
    """
    short = re.sub(r"(?<=.)(/\.?)+$", "", model_dir)
    return f"{os.path.realpath(short) if os.path.basename(short) in ('.', '..') else short}.{what}"
