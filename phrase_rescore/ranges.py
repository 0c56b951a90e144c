"""The numbers and words that people give: an option has the range of the setting behind it; nan and infinities are refused."""

import re
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Integral, Real
from typing import Any

from phrase_rescore.errors import OptionError
from phrase_rescore.messages import shown

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_LONGEST = 60  # characters of a number in a message


@dataclass(frozen=True)
class Range:
    """The numbers from ``least`` (or above it, if ``above``) to ``most``; neither nan nor an infinity is one."""

    least: float
    most: float
    above: bool = False
    whole: bool = False

    def __str__(self) -> str:
        if self.whole:
            return f"a whole number from {self.least} to {self.most}"
        return f"a number {'above' if self.above else 'from'} {self.least:g}{', up' if self.above else ''} to {self.most:g}"

    def __contains__(self, value: Any) -> bool:
        if not isinstance(value, Integral if self.whole else Real) or isinstance(value, bool):
            return False
        return bool(self.least <= value <= self.most) and not (self.above and value == self.least)  # type: ignore[operator]

    def number(self, text: str) -> float:
        """Read a number as it is typed, in this range or not. Raises OptionError if it is not a number."""
        form, number = (_WHOLE, int) if self.whole else (_DECIMAL, float)
        if not form.fullmatch(text):
            raise OptionError(f"{shown(text)} is not {self}")
        return number(text)

    def read(self, text: str) -> float:
        """Read a number as it is typed. Raises OptionError if it is not in this range."""
        value = self.number(text)
        if value not in self:
            raise OptionError(f"{shown(text)} is not {self}")
        return value


class Words(tuple[str, ...]):
    """The words that a setting may be."""

    def __str__(self) -> str:
        return f"one of {', '.join(self)}"


Whole = partial(Range, whole=True)  # numbers

SEEDS = Whole(0, 2**63 - 1)
DIGITS = Whole(2, 17)  # significant
FACTORS, LAYERS = Whole(0, 100), Whole(1, 16)  # layers of recurrent cells
LENGTHS = Whole(1, 10_000)  # words of a phrase
JOBS, THREADS = Whole(1, 1024), Whole(1, 1024)
WORKERS = Whole(1, 100_000)  # of a cluster that is started
COLUMNS, REPLACED = Whole(1, 10_000), Whole(0, 10_000)  # score columns
TABLE_ROWS, BLOCK_SIZES, SAMPLE_ROWS = Whole(0, 10**15), Whole(1, 10**9), Whole(100, 10**9)
BYTES = Whole(1, 2**50)
SECONDS = Range(0, 1e9, above=True)  # 31 years
HYPOTHESES, BEAMS = Whole(1, 100_000), Whole(1, 100_000)
SAMPLES = Whole(1, 1_000_000)  # of a test of significance
RESTARTS = Whole(0, 10_000)  # of tuning
EXAMPLES = Whole(0, 1_000_000)  # of each kind that is shown


class SettingError(OptionError):
    """A setting that is not a number of its range, or none of its words."""

    def __init__(self, name: str, found: str) -> None:
        super().__init__(f"{name}: {found}")
        self.name, self.found = name, found


def check(name: str, value: object, wanted: Range | Words) -> None:
    """Raise SettingError if the setting of this name is not a number of its range, or none of its words."""
    if value in wanted:
        return
    if isinstance(value, int) and value.bit_length() > 3 * _LONGEST:  # Python writes no integers of thousands of digits
        found = "a number of so many digits"
    else:
        found = shown(repr(value), _LONGEST)
    raise SettingError(name, f"{found} is not {wanted}")


def ranged(default: Any, wanted: Range | Words) -> Any:
    """Declare a field of a ``Checked`` dataclass that is in this range (or None, if that is its default)."""
    return field(default=default, metadata={"range": wanted})


class Checked:
    """A dataclass whose numbers and words are checked when it is made. Raises SettingError."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if "range" in item.metadata and not (value is None and item.default is None):
                check(item.name, value, item.metadata["range"])
