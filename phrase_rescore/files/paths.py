"""Paths: which are streams, which are the same file, and what stands beside a file or directory while it is made."""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator

from phrase_rescore.errors import OptionError
from phrase_rescore.messages import printable

Path = str | os.PathLike[str]
_DESCRIPTOR = re.compile(r"/dev/fd/\d+|/proc/(?:self|thread-self|\d+)/fd/\d+|/dev/std(?:in|out|err)")

Named = tuple[str, str | None]  # what messages call a path, as -o or TABLE, and the path, if it is given


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


def partial_of(path: str, hidden: bool = True) -> str:
    """Return where the bytes of a file stand until they are complete: ``.NAME.partial`` or ``NAME.partial`` beside it."""
    directory, name = os.path.split(os.path.realpath(path))
    return os.path.join(directory, f".{name}.partial" if hidden else f"{name}.partial")


def check_apart(reads: Iterable[Named], writes: Iterable[Named], replaced: Iterable[Named] = ()) -> None:
    """Raise OptionError if what is written would destroy what is read, or be destroyed itself, before anything is touched.

    Standard input is read once. No file that is written may also be read, or be written twice; its partial neither. Nothing
    may be inside a directory that is ``replaced`` as a whole. Links and other spellings of a path are seen through.
    """
    inputs, outputs, directories = (
        [(name, path) for name, path in paths if path is not None] for paths in (reads, writes, replaced)
    )
    streams = [name for name, path in inputs if path == "-"]
    if len(streams) > 1:
        raise OptionError(f"{streams[0]} and {streams[1]} are both '-', standard input; name a file for one of them")
    pipes = dict[tuple[int, int], tuple[str, str]]()
    for name, path in inputs:
        if (pipe := _pipe(path)) is not None and pipe in pipes:
            found = f"{_shown(*pipes[pipe])} and {_shown(name, path)} are one pipe, which is read once"
            raise OptionError(f"{found}; name a file for one of them")
        if pipe is not None:
            pipes[pipe] = name, path
    partials = [(f"the partial of {name}", partial_of(path)) for name, path in outputs if not is_stream(path)]
    taken = {_identity(path, written=False): (name, path) for name, path in reversed(inputs)}
    for name, path in (*outputs, *partials, *directories):
        identity = _identity(path, written=True)
        if identity is not None and identity in taken:
            raise OptionError(f"{_shown(*taken[identity])} and {_shown(name, path)} are the same; name another for one of them")
        taken[identity] = name, path
    for outer in directories:
        for inner in (*inputs, *outputs, *directories):
            if not is_stream(inner[1]) and os.path.realpath(inner[1]).startswith(f"{os.path.realpath(outer[1])}/"):
                found = f"{_shown(*inner)} is inside {_shown(*outer)}, which is replaced as a whole"
                raise OptionError(f"{found}; name another for one of them")


def _pipe(path: str) -> tuple[int, int] | None:
    """Return what is equal for two names of a pipe; None for anything else."""
    try:
        status = os.fstat(0) if path == "-" else os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISFIFO(status.st_mode) else None


def _shown(name: str, path: str) -> str:
    return f"{name} {printable(os.fsencode(path), 1000)}"


def files_of(name: str, model_dir: str) -> list[tuple[str, str]]:
    """List the files of a model directory, which are read: for ``check_apart``."""
    paths = [os.path.join(model_dir, file) for file in os.listdir(model_dir)] if os.path.isdir(model_dir) else []
    return [(f"a file of {name}", path) for path in paths if os.path.isfile(path)]


def names_around(directory: str) -> tuple[str, str, str]:
    """Return what a directory's name leads to, the name under which its successor grows, and the one under which it goes."""
    target = os.path.realpath(directory)
    parent, name = os.path.split(target)
    return target, os.path.join(parent, f".{name}.partial"), os.path.join(parent, f".{name}.old")


def older_directory(directory: str) -> str | None:
    """Return where the directory is that a killed run was about to replace, None if it has its name."""
    target, _, old = names_around(directory)
    return old if os.path.isdir(old) and not os.path.lexists(target) else None


def _identity(path: str, written: bool) -> tuple[object, ...] | None:
    """Return what is equal for two names of one file, there or not yet there; None for devices, which may serve twice."""
    try:
        status = os.fstat(1 if written else 0) if path == "-" else os.stat(path)
    except OSError:
        directory, name = os.path.split(os.path.realpath(path))
        around = os.stat(directory) if os.path.exists(directory) else None
        return (around.st_dev, around.st_ino, name) if around else (directory, name)
    return None if stat.S_ISCHR(status.st_mode) or stat.S_ISSOCK(status.st_mode) else (status.st_dev, status.st_ino)


def unfinished(model_dir: str) -> str:
    """Return what to do if a training that runs or was interrupted is in the place of a model, else ''."""
    training = beside(model_dir, "training")
    ends = "if it does not run, its command with --resume continues it, with --finish ends it"
    return f"its training is not complete: {ends}; report -m {training} draws its losses" * os.path.isdir(training)


def beside(model_dir: str, what: str) -> str:
    """Return the path of what a training keeps beside the model: its pairs, its training state, its dropped rows.

    >>> beside("model//", "pairs"), beside("model/.", "pairs"), beside("/nowhere/model/..", "pairs")
    ('model.pairs', 'model.pairs', '/nowhere.pairs')
    """
    short = re.sub(r"(?<=.)(/\.?)+$", "", model_dir)
    return f"{os.path.realpath(short) if os.path.basename(short) in ('.', '..') else short}.{what}"
