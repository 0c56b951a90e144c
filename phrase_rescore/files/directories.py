"""Directories that are replaced as a whole: at every moment the older one or the new one is there, complete."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from phrase_rescore.errors import OptionError, writing
from phrase_rescore.files.outputs import apply_umask, sync
from phrase_rescore.files.paths import names_around, older_directory


def check_replaceable(directory: str) -> None:
    """Raise OptionError if the directory cannot be replaced by another one because of what it is, whatever is in it."""
    target = os.path.realpath(directory)
    if os.path.commonpath([target, os.path.realpath(os.curdir)]) == target:
        raise OptionError(f"{directory} is the current directory or has it inside, and would be replaced; name another")
    if os.path.ismount(target):
        raise OptionError(f"{directory} is a mount point and cannot be replaced; name a directory in it")


def remove_directory(directory: str | os.PathLike[str]) -> None:
    """Remove a directory and all in it, if it is there; a disk that fails once is asked again."""
    for _ in range(2):
        shutil.rmtree(directory, ignore_errors=True)


def recover_directory(directory: str) -> None:
    """Put right what was left by a run that was killed while it replaced the directory: the older one gets its name back.

    The caller holds the lock of the directory (``files.locks``). Raises OSError if the older one cannot be moved.
    """
    target, temporary, old = names_around(directory)
    if older_directory(directory):
        os.rename(old, target)
    for left in (temporary, old):
        remove_directory(left)


@contextlib.contextmanager
def replace_directory(directory: str) -> Iterator[str]:
    """Make a directory to fill that takes its name only when the ``with`` block ends well; otherwise nothing is left of it.

    What stood under that name goes; a link stays and its target is replaced. After a kill, ``recover_directory`` puts right
    what is left. The caller holds the lock of the directory (``files.locks``). Raises OptionError if it cannot be made.
    """
    target, temporary, old = names_around(directory)
    with writing(directory, OptionError):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        recover_directory(directory)
        os.mkdir(temporary, 0o700)
    try:
        yield temporary
        apply_umask(temporary, 0o777)
        for path in (os.path.join(temporary, name) for name in os.listdir(temporary)):
            apply_umask(path)  # safetensors makes its files readable by nobody else
            sync(path)
        sync(temporary)
        if os.path.isdir(target):
            os.rename(target, old)
        os.rename(temporary, target)
        sync(os.path.dirname(target))
    finally:
        recover_directory(directory)
