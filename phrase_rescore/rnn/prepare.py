"""From the files that ``train`` was given to prepared pairs: read, sorted, shortlisted, encoded, or found as they were left."""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from itertools import chain

from phrase_rescore._version import __version__
from phrase_rescore.data.coverage import FEW_KNOWN, LEAST_KNOWN, known_share
from phrase_rescore.data.prepared import fingerprint_of, unk_not_learnt
from phrase_rescore.data.sorting import check_room, sorted_pairs
from phrase_rescore.data.vocabulary import Vocabulary, count_words, most_frequent, read_shortlist
from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.outputs import DroppedRows
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.moses.pairs import PairBlock, read_pair_blocks, refuse_by_name
from phrase_rescore.rnn.config import Data
from phrase_rescore.rnn.store import LAYOUT, PairNumbers, PairStore, prepare_store
from phrase_rescore.training.config import Observer
from phrase_rescore.training.source import Source

_SIDES = ("source", "target")
_SHAPE_PAIRS = ("form", "factors", "drop_bad_rows", "shortlist", "held_out", "min_count", "max_length")  # of Data


class PairSource(Source[PairStore]):
    """The pairs of a training. Those of all rows serve, too, if bad rows are to be dropped."""

    layout = LAYOUT
    called = "distinct pairs"
    others = "pairs of other inputs, options or versions, or that cannot be compared"

    def __init__(self, inputs: Sequence[str], model_dir: str, data: Data, threads: int) -> None:
        self.data, self._threads = data, threads
        self.scratch: str = data.scratch or tempfile.gettempdir()
        self._dropped = beside(model_dir, "dropped")
        self._given = data.source_vocab, data.target_vocab
        files = (data.source_vocab, data.target_vocab, *(data.vocab_corpus or ()))
        options = {name: getattr(data, name) for name in _SHAPE_PAIRS} | {"version": __version__}
        of_some, of_all = (fingerprint_of(inputs, files, **options | more) for more in ({}, {"drop_bad_rows": False}))
        super().__init__(inputs, data.pairs_dir or beside(model_dir, "pairs"), of_all, of_some)

    def check(self, say: Callable[[str], None]) -> None:
        """Look at the first rows of every input, at given vocabularies and at the room in scratch, before hours of reading.

        What cannot be read twice is left alone. Raises InputError, and RescoreError without any room.
        """
        for path in self.inputs:
            refuse_by_name(path)
        files = [path for path in self.inputs if not is_stream(path)]
        for path in files:
            with contextlib.closing(self._read(path)) as pairs:
                next(pairs, None)  # and closed here, not by a destructor, from which no signal comes out
        for given in self._given:
            if given and not is_stream(given):
                read_shortlist(given)
        room = check_room(self.scratch)
        if room < sum(map(os.path.getsize, files)):
            found = f"{self.scratch} has room for {room / 2**30:.1f} GB, and sorting takes up to twice the text of all pairs"
            say(f"warning: {found}; --scratch names another directory")

    def report(self, store: PairStore, made: bool, say: Callable[[str], None]) -> None:
        """Say what the pairs are. Raises OptionError if there are none, or if given vocabularies lack too many words."""
        numbers = store.numbers
        shares = (numbers.source_unk, numbers.target_unk)
        if not made:
            for side, unknown in enumerate(shares):
                self._check_coverage(side, 1 - unknown, say)
        if not numbers.training:
            raise OptionError("there are no pairs to train on")
        say(f"{numbers.training:,} distinct pairs to learn from, {numbers.held_out:,} held out")
        if self.data.held_out and not numbers.held_out:
            say("warning: too few sources to hold any out; the last model is kept, not the best")
        known = (f"{1 - share:.1%} of the running {side} words" for side, share in zip(_SIDES, shares, strict=True))
        say(f"the shortlists have {' and '.join(known)}")
        for name, share in zip(_SIDES, shares, strict=True):
            if share == 0:
                say(unk_not_learnt(f"{name} word among the pairs"))

    def make(self, observer: Observer, check: Callable[[PairNumbers], None]) -> PairStore:
        """Read, sort and encode the pairs."""
        data = self.data
        with contextlib.ExitStack() as sorting:
            with DroppedRows(self._dropped, data.drop_bad_rows).opened() as dropped:
                blocks = chain.from_iterable(self._read(path, observer.on_read, dropped) for path in self.inputs)
                limits = data.min_count, data.max_length
                in_order = sorted_pairs(blocks, self.scratch, data.memory, self._threads, *limits, owner=self.directory)
                pairs = sorting.enter_context(in_order)  # all rows are read: their file is complete before the pairs are

            def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> tuple[Vocabulary, Vocabulary]:
                chosen = self._vocabulary(0, src, observer.say), self._vocabulary(1, tgt, observer.say)
                for side, counts in enumerate((src, tgt)):
                    share, lacking = known_share(counts, chosen[side], chosen[1 - side])
                    self._check_coverage(side, share, observer.say, lacking)
                return chosen

            made_of = self.fingerprints[1 if dropped.rows else 0]
            store = prepare_store(self.directory, made_of, pairs, vocabularies, data.held_out, observer.on_pairs, check)
        if said := dropped.summary():
            observer.say(f"warning: {said}")
        left_out = {"too long": store.numbers.too_long, f"seen less than {data.min_count} times": store.numbers.left_out}
        for why, number in left_out.items():
            if number:
                observer.say(f"{number:,} distinct pairs left out: {why}")
        return store

    def _read(
        self, path: str, on_read: Callable[[int], object] | None = None, dropped: DroppedRows | None = None
    ) -> Generator[PairBlock]:
        """Read the pairs of an input; bad rows are dropped if they are to be."""

        def drop(line: int, row: bytes, error: RowError) -> None:
            if dropped is not None:
                dropped.add(f"{display_name(path)}:{line}", row)

        data = self.data
        on_bad_row = drop if data.drop_bad_rows else None
        return read_pair_blocks(path, data.form, on_read, on_bad_row, data.min_count > 1, data.factors)

    def _vocabulary(self, side: int, counts: Counter[bytes], say: Callable[[str], None]) -> Vocabulary:
        """Return the shortlist of a side (0: source, 1: target), from a file or of words counted over a corpus or the pairs."""
        if path := self._given[side]:
            return read_shortlist(path)
        if self.data.vocab_corpus:
            corpus = self.data.vocab_corpus[side]
            with open_input(corpus) as stream:
                counts = count_words(read_rows(stream))
            if not counts:
                raise InputError(display_name(corpus), "has no word in it", "pass tokenized text")
        vocabulary, left_out = most_frequent(counts, self.data.shortlist)
        found = f"{_SIDES[side]}: {len(vocabulary.words):,} of {len(counts):,} words are in the shortlist"
        say(found + (f"; the {left_out:,} rarest were left out so that UNK is learnt" if left_out else ""))
        return vocabulary

    def _check_coverage(self, side: int, share: float, say: Callable[[str], None], lacking: str = "") -> None:
        """Warn of a given vocabulary that lacks many of a side's running words to learn from, or refuse it with OptionError.

        ``share`` of the words is in it; ``lacking`` names some of the others.
        """
        given = self._given[side]
        if (not given and not self.data.vocab_corpus) or share >= FEW_KNOWN:
            return
        option = f"--{_SIDES[side]}-vocab {given}" if given else f"--vocab-corpus: the {_SIDES[side]} shortlist"
        found = f"{option} has {share:.1%} of the running {_SIDES[side]} words of the pairs"
        if lacking:
            found += f"; {lacking}"
        if share < LEAST_KNOWN and not self.data.allow_poor_coverage:
            raise OptionError(f"{found}; give the vocabulary of these pairs, or pass --allow-poor-coverage")
        say(f"warning: {found}")
