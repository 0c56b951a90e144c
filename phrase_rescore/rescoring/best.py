"""The words of the best entry of every segment, what ``rescore --best`` writes."""

from collections.abc import Iterator

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.messages import counted
from phrase_rescore.moses.hypotheses import Entry
from phrase_rescore.rescoring.features import Texts, source_of

BLOCK_LINES = 4096  # written at once


class BestLines:
    """A line for every segment, in order: the words of its best entry, or nothing if it has no entries.

    With ``sources``, the lines of the file ``source``, there are as many lines as these.
    """

    def __init__(self, sources: Texts | None, source: str | None) -> None:
        self._sources, self._source = sources, source
        self._words = dict[int, bytes]()  # by segment
        self._translated = 0  # segments that have words to translate

    def add(self, entry: Entry) -> None:
        """Take the best entry of a segment. Raises RowError if the source has no such line, and as ``hypothesis``."""
        self._translated += self._sources is None or bool(source_of(entry, self._sources))
        self._words[entry.segment] = b" ".join(entry.hypothesis())

    def check(self, name: str) -> list[str]:
        """Return a warning if segments lack entries. Raises InputError if most lines of the source do."""
        if self._sources is None:
            to_translate = self._number_of_lines()
            lacking = to_translate - self._translated
            of = f"segment{'s' * (lacking > 1)} before the last"
        else:
            to_translate = sum(1 for words in self._sources if words)
            lacking = to_translate - self._translated
            of = f"of {counted(to_translate, 'non-empty line')} of {display_name(self._source or '')}"
            if 2 * lacking > to_translate:
                hint = "give the text that was decoded, cut to the segments of the list, with --source"
                raise InputError(name, f"entries for {self._translated:,} {of}", hint)
        return [f"no entry for {lacking:,} {of}; the output has empty lines there"] if lacking else []

    def lines(self) -> Iterator[list[bytes]]:
        """Yield the lines, some at a time: a list may skip millions of segments."""
        n = self._number_of_lines()
        for start in range(0, n, BLOCK_LINES):
            segments = range(start, min(start + BLOCK_LINES, n))
            yield [self._words.get(segment, b"") + b"\n" for segment in segments]

    def _number_of_lines(self) -> int:
        return max(self._words) + 1 if self._sources is None else len(self._sources)
