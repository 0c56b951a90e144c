"""The exceptions of this package. Libraries raise, the command line turns them into one line and an exit status."""

from __future__ import annotations


class RescoreError(Exception):
    """Everything a user can cause or mend; ``str()`` is one line that says what was found and what to do."""


class OptionError(RescoreError):
    """Options that contradict each other or the input (the command line exits with 2)."""


class ModelError(RescoreError):
    """A model directory that is missing, of another format, or damaged."""


class InputError(RescoreError):
    """A file that cannot be read as what it should be.

    ``str()`` is ``path:line: found; hint``, without ``:line`` where no row is to blame.
    """

    def __init__(self, path: str, found: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(path, found, hint, line)  # all of them, so that the error survives pickling
        self.path, self.found, self.hint, self.line = path, found, hint, line

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.found}".replace("\n", "\\n") + (f"; {self.hint}" if self.hint else "")


class RowError(RescoreError):
    """A row that cannot be used; the reader that knows where it stands turns it into an InputError."""

    def __init__(self, found: str, hint: str) -> None:
        super().__init__(found, hint)
        self.found, self.hint = found, hint

    def __str__(self) -> str:
        return f"{self.found}; {self.hint}"

    def at(self, path: str, line: int) -> InputError:
        return InputError(path, self.found, self.hint, line)


def shown(data: bytes, limit: int = 60) -> str:
    """Bytes from a file as one printable line for a message, cut at ``limit`` characters.

    >>> shown(b"caf\\xc3\\xa9 \\xff\\t")
    "'café \\\\xff\\\\t'"
    """
    text = data[: 4 * limit].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"'{text}'" if len(text) <= limit and len(data) <= 4 * limit else f"'{text[:limit]}…'"
