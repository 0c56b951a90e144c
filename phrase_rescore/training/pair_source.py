"""From the files that a training was given to encoded pairs on disk, of phrases or of sentences: read, sorted, encoded."""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from phrase_rescore._version import __version__
from phrase_rescore.data import vocabulary
from phrase_rescore.data.pair_store import LAYOUT, PairNumbers, PairStore, prepare_store
from phrase_rescore.data.prepared import fingerprint_of
from phrase_rescore.data.sorting import check_room, sorted_pairs
from phrase_rescore.data.vocabulary import SIDES, Vocabularies, Vocabulary, read_shortlist, untrained_unk
from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.files.row_outputs import DroppedRows
from phrase_rescore.moses.file_kinds import JUDGED, TEXT, check_kind
from phrase_rescore.moses.pairs import PairBlock
from phrase_rescore.progress import Listener, Progress, Say, silent
from phrase_rescore.training.config import Observer, Pairs
from phrase_rescore.training.session import Source

_SHAPE_PAIRS = ("shortlist", "held_out", "max_length")  # of Pairs: what is prepared depends on them


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
    others = "pairs prepared from other inputs, options or versions, or from streams"

    def __init__(self, paths: Sequence[str], model_dir: str, pairs: Pairs, threads: int, inputs: PairInputs) -> None:
        self.scratch: str = pairs.scratch or tempfile.gettempdir()
        self.most_held_out = pairs.held_out
        self._pairs, self._threads, self._inputs = pairs, threads, inputs
        self._dropped = DroppedRows(beside(model_dir, "dropped"), inputs.drops)
        self._given = pairs.source_vocab, pairs.target_vocab
        files = (*self._given, *(pairs.vocab_corpus or ()))
        options = {name: getattr(pairs, name) for name in _SHAPE_PAIRS} | inputs.options
        options |= {"min_count": inputs.min_count, "version": __version__}
        of_all, of_some = (fingerprint_of(paths, files, **options, drop_bad_rows=drops) for drops in (False, inputs.drops))
        super().__init__(paths, pairs.pairs_dir or beside(model_dir, "pairs"), of_all, of_some)

    def check(self, listener: Listener) -> None:
        """Check the first rows of every input, vocabularies and the room, but no streams. Raises InputError."""
        for group in self._inputs.groups:
            if not any(map(is_stream, group)):
                with contextlib.closing(self._read(group)) as pairs:
                    next(pairs, None)  # and closed here, not by a destructor, from which no signal comes out
        for given in self._given:
            if given and not is_stream(given):
                read_shortlist(given)
        room = check_room(self.scratch)
        if room < sum(os.path.getsize(path) for path in self.inputs if not is_stream(path)):
            found = f"{self.scratch} has room for {room / 2**30:.1f} GB, but sorting needs up to twice the text of all pairs"
            listener.warn(f"{found}; name another directory with --scratch")

    def report(self, store: PairStore, made: bool, listener: Listener) -> None:
        """Report the number of pairs. Raises OptionError if there are none, or if given vocabularies lack too many words."""
        say, warn = listener.say, listener.warn
        numbers, unknown = store.numbers, store.unk_shares
        if not made:
            for i, share in enumerate(unknown):
                self._check_coverage(i, 1 - share, warn)
        if not numbers.training:
            raise OptionError("there are no pairs to train on")
        say(f"{numbers.training:,} distinct pairs to train on, {numbers.held_out:,} held out")
        if self._pairs.held_out and not numbers.held_out:
            warn("too few sources to hold any out; the last step is kept, not the best")
        known = (f"{1 - share:.1%} of the running {side} words" for side, share in zip(SIDES, unknown, strict=True))
        say(f"the shortlists have {' and '.join(known)}")
        for warning in untrained_unk(dict(zip(SIDES, unknown, strict=True)), "use a smaller --shortlist to train UNK"):
            warn(warning)

    def make(self, observer: Observer, check: Callable[[PairNumbers], None]) -> PairStore:
        """Read, sort and encode the pairs."""
        pairs, inputs = self._pairs, self._inputs

        def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> Vocabularies:
            return self._vocabularies((src, tgt), observer)

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
        """Read all pairs, in their order; keep the bad rows that are dropped."""
        for group in self._inputs.groups:
            name = display_name(group[0])

            def drop(line: int, row: bytes, error: RowError, name: str = name) -> None:
                self._dropped.add(f"{name}:{line}", row)

            yield from self._read(group, on_read, drop)

    def _read(
        self, group: Sequence[str], on_read: Progress | None = None, on_bad_row: Callable[..., None] = silent
    ) -> Generator[PairBlock]:
        """Read the pairs of files that belong together."""
        more = {"on_bad_row": on_bad_row} if self._inputs.drops else {}
        return self._inputs.read(*group, on_read=on_read, **more)

    def _vocabularies(self, counts: Sequence[Counter[bytes]], listener: Listener) -> Vocabularies:
        """Return the shortlists of both sides. Raises OptionError for given ones that lack too many of the words."""
        chosen = self._vocabulary(0, counts[0], listener.say), self._vocabulary(1, counts[1], listener.say)
        for side in range(2):
            share, lacking = vocabulary.known_share(counts[side], chosen[side], chosen[1 - side])
            self._check_coverage(side, share, listener.warn, lacking)
        return chosen

    def _vocabulary(self, side: int, counts: Counter[bytes], say: Say) -> Vocabulary:
        """Return the shortlist of a side (0: source, 1: target), from a file or of words counted over a corpus or the pairs."""
        if path := self._given[side]:
            return read_shortlist(path)
        if self._pairs.vocab_corpus:
            corpus = self._pairs.vocab_corpus[side]
            with open_input(corpus) as stream:
                rows = read_rows(stream)
                first = list(islice(rows, JUDGED))
                check_kind(display_name(corpus), first, TEXT)
                counts = vocabulary.count_words(chain(first, rows))
            if not counts:
                raise InputError(display_name(corpus), "has no words", "pass tokenized text")
        shortlist, left_out = vocabulary.most_frequent(counts, self._pairs.shortlist)
        chosen = f"{SIDES[side]}: {len(shortlist.words):,} of {len(counts):,} words are in the shortlist"
        say(chosen + (f"; the {left_out:,} rarest are left out to train UNK" if left_out else ""))
        return shortlist

    def _check_coverage(self, side: int, share: float, warn: Say, lacking: str = "") -> None:
        """Warn of a given vocabulary that has a small ``share`` of a side's running words, or refuse it with OptionError."""
        given, name = self._given[side], SIDES[side]
        if (not given and not self._pairs.vocab_corpus) or share >= vocabulary.FEW_KNOWN:
            return
        option = f"--{name}-vocab {given}" if given else f"--vocab-corpus: the {name} shortlist"
        found = f"{option} has {share:.1%} of the running {name} words of the pairs"
        if lacking:
            found += f"; {lacking}"
        if share < vocabulary.LEAST_KNOWN and not self._pairs.allow_poor_coverage:
            raise OptionError(f"{found}; give the vocabulary of these pairs, or pass --allow-poor-coverage")
        warn(found)
