"""The decoded text of an n-best list: its lines, and whether they and the list belong together."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from phrase_rescore.errors import RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.messages import Say
from phrase_rescore.moses.file_kinds import JUDGED, SEGMENTS, check_kind
from phrase_rescore.moses.hypotheses import Entry, check_source, map_entries
from phrase_rescore.moses.parallel import LEAST, Doubts, check_lengths, check_segments
from phrase_rescore.moses.text import Sentences, parsed_lines

Texts = Sequence[Sequence[bytes]]  # lines, in words


def read_source(path: str, warn: Say) -> Texts:
    """Read a text without ``<s>`` and ``</s>`` around lines. Raises InputError for a file of another kind, a mark inside."""
    name, sentences = display_name(path), Sentences()
    with open_input(path) as stream:
        rows = list(read_rows(stream))
    check_kind(name, rows[:JUDGED], SEGMENTS)
    lines = list(chain.from_iterable(parsed_lines(rows, sentences, name, len(rows))))
    for warning in sentences.warnings():
        warn(f"{name}: {warning}")
    return lines


def source_of(entry: Entry, sources: Texts) -> Sequence[bytes]:
    """Return the source of an entry. Raises RowError if there is none."""
    if entry.segment >= len(sources):
        found = f"segment {entry.segment}, but the source has {len(sources):,}"
        raise RowError(found, "give the text that was decoded with --source; numbers begin at 0")
    return sources[entry.segment]


def word_counts(sources: Texts) -> Counter[bytes]:
    """Count the words of a text."""
    return Counter(chain.from_iterable(sources))


class Decoded:
    """A list's source at ``path``, to compare with the first entry of every segment: before the work, or of a stream in it."""

    def __init__(self, path: str, sources: Texts, doubts: Doubts) -> None:
        self.path, self.sources, self.doubts = path, sources, doubts
        self._lengths: dict[tuple[bytes, ...], int] | None = {}  # of a hypothesis, by source; None: they were compared

    def check_list(self, nbest: str) -> None:
        """Compare a list that can be read twice. Raises InputError as ``check_segments`` and ``check_block``."""
        check_segments([nbest], self.path, self.sources, self.doubts, self._check)
        self._check_lengths(nbest)

    def check_block(self, firsts: Sequence[Entry], name: str) -> None:
        """Raise InputError for phrases or alignments of entries that do not fit; doubt the lengths of the first ones."""
        map_entries(firsts, name, self._check)
        if len(self._lengths or ()) >= LEAST:
            self._check_lengths(name)

    def _check_lengths(self, name: str) -> None:
        if self._lengths:
            check_lengths(name, [(words, len(source)) for source, words in self._lengths.items()], self.path, self.doubts)
            self._lengths = None

    def _check(self, entry: Entry) -> None:
        source = source_of(entry, self.sources)
        if self._lengths is not None:
            self._lengths.setdefault(tuple(source), len(entry.hypothesis()))
        if self.doubts.force:  # Moses' -drop-unknown and XML in the source have other words, and Marian's lists pieces
            return
        try:
            check_source(entry, source)
        except RowError as error:
            raise RowError(error.found, f"{error.hint}; --force goes on") from None
