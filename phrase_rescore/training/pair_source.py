"""From the files that a training was given to encoded pairs on disk, of phrases or of sentences: read, sorted, encoded."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phrase_rescore._version import __version__
from phrase_rescore.data.pair_store import LAYOUT, PairNumbers, PairStore, prepare_store
from phrase_rescore.data.prepared import fingerprint_of
from phrase_rescore.data.sorting import sorted_pairs
from phrase_rescore.data.vocabulary import SIDES, Vocabularies, Vocabulary, most_frequent, read_shortlist, untrained_unk
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.files.row_outputs import DroppedRows
from phrase_rescore.moses.pairs import PairBlock
from phrase_rescore.progress import Listener, Progress, Say, silent
from phrase_rescore.training.config import Observer, Pairs
from phrase_rescore.training.session import Source

_SHAPE_PAIRS = ("shortlist", "held_out", "max_length")  # of Pairs: what is prepared depends on them
_FEW_KNOWN, _LEAST_KNOWN = 0.9, 0.5  # shares of known words below which a given vocabulary is warned of, and refused


@dataclass(frozen=True)
class PairInputs:
    """The inputs of a training on pairs, and how they are read: its room knows their format."""

    groups: Sequence[tuple[str, ...]]  # files that belong together
    read: Callable[..., Generator[PairBlock]]  # takes the files of a group, ``on_read`` and, where rows drop, ``on_bad_row``
    options: dict[str, Any]  # what changes the pairs besides what follows
    min_count: int = 1  # pairs seen less often are left out; above 1 blocks have counts
    drops: bool = False  # bad rows are dropped


class PairSource(Source[PairStore]):
    """The pairs of a training. Those of all rows serve, too, if bad rows are to be dropped."""

    layout = LAYOUT
    called = "distinct pairs"

    def __init__(self, paths: Sequence[str], model_dir: str, pairs: Pairs, threads: int, inputs: PairInputs) -> None:
        self.scratch: str = pairs.scratch or tempfile.gettempdir()
        self.most_held_out = pairs.held_out
        self._pairs, self._threads, self._inputs = pairs, threads, inputs
        self._dropped = DroppedRows(beside(model_dir, "dropped"), inputs.drops)
        self._given = pairs.source_vocab, pairs.target_vocab
        options = {name: getattr(pairs, name) for name in _SHAPE_PAIRS} | inputs.options
        options |= {"min_count": inputs.min_count, "version": __version__}
        made_of = (fingerprint_of(paths, self._given, **options, drop_bad_rows=drops) for drops in (False, inputs.drops))
        super().__init__(paths, pairs.pairs_dir or beside(model_dir, "pairs"), *made_of)

    def check(self) -> None:
        """Check the first rows of every input, and vocabularies, but no streams. Raises InputError."""
        for group in self._inputs.groups:
            if not any(map(is_stream, group)):
                with contextlib.closing(self._read(group)) as pairs:
                    next(pairs, None)  # and closed here, not by a destructor, from which no signal comes out
        for given in self._given:
            if given and not is_stream(given):
                read_shortlist(given)

    def report(self, store: PairStore, listener: Listener) -> None:
        """Report the number of pairs. Raises OptionError if there are none, or if given vocabularies lack too many words."""
        say, warn = listener.say, listener.warn
        numbers, unknown = store.numbers, store.unk_shares
        if not numbers.training:
            raise OptionError("there are no pairs to train on")
        say(f"{numbers.training:,} distinct pairs to train on, {numbers.held_out:,} held out")
        if self._pairs.held_out and not numbers.held_out:
            warn("too few sources to hold any out; the last step is kept, not the best")
        known = (f"{1 - share:.1%} of the running {side} words" for side, share in zip(SIDES, unknown, strict=True))
        say(f"the shortlists have {' and '.join(known)}")
        for side, given, share in zip(SIDES, self._given, unknown, strict=True):
            found = f"--{side}-vocab {given} has {1 - share:.1%} of the running {side} words of the pairs"
            if given and 1 - share < _LEAST_KNOWN:
                raise OptionError(f"{found}; give the vocabulary of these pairs")
            if given and 1 - share < _FEW_KNOWN:
                warn(found)
        for warning in untrained_unk(dict(zip(SIDES, unknown, strict=True)), "use a smaller --shortlist to train UNK"):
            warn(warning)

    def make(self, observer: Observer, check: Callable[[PairNumbers], None]) -> PairStore:
        """Read, sort and encode the pairs."""
        pairs, inputs = self._pairs, self._inputs

        def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> Vocabularies:
            return self._vocabulary(0, src, observer.say), self._vocabulary(1, tgt, observer.say)

        with contextlib.ExitStack() as sorting:
            with self._dropped.opened():
                limits = inputs.min_count, pairs.max_length
                blocks = self._blocks(observer.on_read)
                in_order = sorted_pairs(blocks, self.scratch, self.directory, pairs.memory, self._threads, *limits)
                distinct = sorting.enter_context(in_order)  # all rows are read: their file is complete before the pairs are
            made_of = self.fingerprints[1 if self._dropped.rows else 0]
            how_many = pairs.held_out, observer.on_pairs
            store = prepare_store(self.directory, made_of, distinct, vocabularies, *how_many, check)
        if dropped := self._dropped.summary():
            observer.warn(dropped)
        rarely = f"seen less than {inputs.min_count} times"
        for why, number in (("too long", store.numbers.too_long), (rarely, store.numbers.left_out)):
            if number:
                observer.say(f"{number:,} distinct pairs left out: {why}")
        return store

    def _blocks(self, on_read: Progress | None) -> Iterator[PairBlock]:
        for group in self._inputs.groups:
            name = display_name(group[0])

            def drop(line: int, row: bytes, error: RowError, name: str = name) -> None:
                self._dropped.add(f"{name}:{line}", row)

            yield from self._read(group, on_read, drop)

    def _read(
        self, group: Sequence[str], on_read: Progress | None = None, on_bad_row: Callable[..., None] = silent
    ) -> Generator[PairBlock]:
        more = {"on_bad_row": on_bad_row} if self._inputs.drops else {}
        return self._inputs.read(*group, on_read=on_read, **more)

    def _vocabulary(self, side: int, counts: Counter[bytes], say: Say) -> Vocabulary:
        """Return the shortlist of a side (0: source, 1: target), from a file or of the words of the pairs."""
        if path := self._given[side]:
            return read_shortlist(path)
        shortlist, left_out = most_frequent(counts, self._pairs.shortlist)
        chosen = f"{SIDES[side]}: {len(shortlist.words):,} of {len(counts):,} words are in the shortlist"
        say(chosen + (f"; the {left_out:,} rarest are left out to train UNK" if left_out else ""))
        return shortlist
