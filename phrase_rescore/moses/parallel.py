"""Texts that are given together, a line a segment: whether they can belong together. Who reads two asks here before the work.

A list, source or reference of another text costs hours and ends with a number. What contradicts itself is refused. What hardly
can be right is doubted: refused too, but --force goes on.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.paths import is_stream
from phrase_rescore.messages import Say, counted, silent
from phrase_rescore.moses.hypotheses import parse_line


@dataclass(frozen=True)
class Doubts:
    """What is done about files that hardly can be right: InputError, or with ``force`` a warning."""

    force: bool = False
    warn: Say = silent

    def of(self, path: str, found: str, hint: str) -> None:
        """Doubt a file for what was ``found``; the ``hint`` says what to give instead."""
        name = display_name(path)
        if not self.force:
            raise InputError(name, found, f"{hint}; --force goes on")
        self.warn(f"{name}: {found}")


def check_lines(texts: Mapping[str, Sized]) -> None:
    """Raise InputError if outputs and references, by path, have different numbers of lines."""
    first = next(iter(texts))
    for path, text in texts.items():
        if len(text) != len(texts[first]):
            found = f"{counted(len(text), 'line')} where {display_name(first)} has {len(texts[first]):,}"
            hint = "outputs and references have a line for every segment, in the same order"
            raise InputError(display_name(path), found, hint)


def check_segments(lists: Sequence[str], path: str, lines: Sequence[Sized], doubts: Doubts) -> None:
    """Compare the last segments of n-best lists with the ``lines`` of a source or reference, in words.

    Raises InputError for a list that has more segments, and doubts one that ends before the last line with words. Lists that
    cannot be read twice are left out: a segment without a line is noticed there.
    """
    name = display_name(path)
    wanted = max((number for number, line in enumerate(lines, 1) if len(line)), default=0)
    for of_list in lists:
        if is_stream(of_list) or (segments := _segments(of_list)) is None:
            continue
        found = f"its last segment is {segments - 1}, but {name} has {counted(len(lines), 'line')}"
        hint = "give the text of this list"
        if segments > len(lines):
            raise InputError(of_list, found, hint)
        if segments < wanted:
            doubts.of(of_list, found, f"{hint}, cut to its segments")


def _segments(path: str) -> int | None:
    """Return the number of a list's last segment plus 1; None if its last line is not an entry, as its reader will say."""
    with open_input(path) as stream:
        last = deque(read_rows(stream), 1)
    try:
        return parse_line(last.pop()).segment + 1 if last else None
    except RowError:
        return None
