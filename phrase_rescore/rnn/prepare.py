"""From the files that ``train`` was given to prepared pairs: read, sorted, shortlisted, encoded, or found as they were left."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from phrase_rescore._version import __version__
from phrase_rescore.data.coverage import FEW_KNOWN, LEAST_KNOWN, known_share
from phrase_rescore.data.prepared import Fingerprint, fingerprint_of
from phrase_rescore.data.sorting import check_room, is_in_scratch, remove_scratch, sorted_pairs
from phrase_rescore.data.vocabulary import Vocabulary, count_words, most_frequent, read_shortlist
from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.blocks import read_rows
from phrase_rescore.files.directories import recover_directory
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.files.locks import lock_name, locked
from phrase_rescore.files.outputs import DroppedRows
from phrase_rescore.files.paths import beside
from phrase_rescore.moses.pairs import PairBlock, read_pair_blocks, refuse_by_name
from phrase_rescore.rnn.store import (
    LAYOUT,
    Numbers,
    PairStore,
    open_store,
    prepare_store,
)
from phrase_rescore.training.config import Data, Observer

_SIDES = ("source", "target")
_SHAPE_PAIRS = ("form", "factors", "drop_bad_rows", "shortlist", "held_out", "min_count", "max_length")  # of Data


def store_dir(data: Data, model_dir: str) -> str:
    """Return the directory of the prepared pairs."""
    return data.pairs_dir or beside(model_dir, "pairs")


def scratch_dir(data: Data) -> str:
    """Return the directory in which the pairs are sorted."""
    return data.scratch or tempfile.gettempdir()


def fingerprint(inputs: Sequence[str], data: Data) -> Fingerprint | None:
    """Return what prepared pairs depend on, None if an input cannot be read twice."""
    files = (data.source_vocab, data.target_vocab, *(data.vocab_corpus or ()))
    return fingerprint_of(inputs, files, **{name: getattr(data, name) for name in _SHAPE_PAIRS}, version=__version__)


def find(inputs: Sequence[str], data: Data, model_dir: str) -> PairStore | None:
    """Return the store of an earlier run if nothing has changed; one without bad rows serves if they are to be dropped, too."""
    for wanted in dict.fromkeys((data, replace(data, drop_bad_rows=False))):
        if store := open_store(store_dir(data, model_dir), fingerprint(inputs, wanted)):
            return store
    return None


def check_inputs(inputs: Sequence[str], data: Data, say: Callable[[str], None]) -> None:
    """Look at the first rows of every input, at given vocabularies and at the room in scratch, before hours of reading.

    What cannot be read twice is left alone. Raises InputError, and RescoreError without any room.
    """
    for path in inputs:
        refuse_by_name(path)
    files = [path for path in inputs if os.path.isfile(path)]
    for path in files:
        on_bad_row = (lambda line, row, error: None) if data.drop_bad_rows else None
        pairs = read_pair_blocks(path, data.form, None, on_bad_row, data.min_count > 1, data.factors)
        with contextlib.closing(pairs):  # not by a destructor, from which no signal comes out
            next(pairs, None)
    for given in (data.source_vocab, data.target_vocab):
        if given and os.path.isfile(given):
            read_shortlist(given)
    room = check_room(scratch_dir(data))
    if room < sum(map(os.path.getsize, files)):
        found = f"{scratch_dir(data)} has room for {room / 2**30:.1f} GB, and sorting takes up to twice the text of all pairs"
        say(f"warning: {found}; --scratch names another directory")


def prepare(
    inputs: Sequence[str], data: Data, model_dir: str, threads: int, observer: Observer,
    check: Callable[[Numbers], None] = lambda numbers: None,
) -> PairStore:  # fmt: skip
    """Return the distinct pairs of the inputs: the store of an earlier run if nothing has changed, else a new one.

    ``check`` sees the numbers of the store; what it raises keeps an older one from being replaced.
    Raises InputError for a bad row, OptionError if there are no pairs or if another process is preparing them.
    """
    store = _prepare(inputs, data, model_dir, threads, observer, check)
    check(store.numbers)
    numbers = store.numbers
    if not numbers.training:
        raise OptionError("there are no pairs to train on")
    observer.say(f"{numbers.training:,} distinct pairs to learn from, {numbers.held_out:,} held out")
    if data.held_out and not numbers.held_out:
        observer.say("warning: too few sources to hold any out; the last model is kept, not the best")
    shares = tuple(zip(_SIDES, (numbers.source_unk, numbers.target_unk), strict=True))
    known = " and ".join(f"{1 - share:.1%} of the running {side} words" for side, share in shares)
    observer.say(f"the shortlists have {known}")
    for side, share in shares:
        if share == 0:
            what = f"no unknown {side} word among the pairs: UNK is not learnt; a smaller --shortlist would leave some"
            observer.say(f"warning: {what}")
    return store


def _prepare(
    inputs: Sequence[str], data: Data, model_dir: str, threads: int, observer: Observer, check: Callable[[Numbers], None]
) -> PairStore:  # fmt: skip
    """Return the store of an earlier run if nothing has changed, else a new one, made while nobody else may make one there."""
    directory = store_dir(data, model_dir)
    store = find(inputs, data, model_dir)
    is_left = os.path.lexists(lock_name(directory)) or is_in_scratch(scratch_dir(data), directory)
    if store is None or is_left:
        os.makedirs(os.path.dirname(os.path.realpath(directory)), exist_ok=True)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(directory, "let it end: it prepares pairs there", observer.say))
            except OptionError:
                if store is None:
                    raise
            else:
                recover_directory(directory)  # from here on what killed runs left is nobody's
                remove_scratch(scratch_dir(data), directory)
                store = find(inputs, data, model_dir)
            if store is None:
                return _make(inputs, data, model_dir, threads, observer, check)
    observer.say(f"distinct pairs as prepared before in {store.directory}")
    for side, unknown in enumerate((store.numbers.source_unk, store.numbers.target_unk)):
        _check_coverage(data, side, 1 - unknown, observer.say)
    return store


def _make(
    inputs: Sequence[str], data: Data, model_dir: str, threads: int, observer: Observer, check: Callable[[Numbers], None]
) -> PairStore:  # fmt: skip
    """Make a store, in the place of one of other pairs if there is one."""
    directory = store_dir(data, model_dir)
    LAYOUT.check_target(directory)
    if os.path.isdir(directory) and os.listdir(directory):
        observer.say(f"{directory} has pairs of other inputs, options or versions, or that cannot be compared; prepared anew")
    fingerprints = fingerprint(inputs, data), fingerprint(inputs, replace(data, drop_bad_rows=False))
    with contextlib.ExitStack() as sorting:
        with DroppedRows(beside(model_dir, "dropped"), data.drop_bad_rows).opened() as dropped:
            blocks = _blocks(inputs, data, dropped, observer)
            limits = data.min_count, data.max_length
            sorted_ones = sorted_pairs(blocks, scratch_dir(data), data.memory, threads, *limits, owner=directory)
            pairs = sorting.enter_context(sorted_ones)  # all rows are read: their file is complete before the pairs are

        def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> tuple[Vocabulary, Vocabulary]:
            chosen = _vocabulary(data, 0, src, observer.say), _vocabulary(data, 1, tgt, observer.say)
            for side, counts in enumerate((src, tgt)):
                share, lacking = known_share(counts, chosen[side], chosen[1 - side])
                _check_coverage(data, side, share, observer.say, lacking)
            return chosen

        made_of = fingerprints[not dropped.rows]
        store = prepare_store(directory, made_of, pairs, vocabularies, data.held_out, observer.on_pairs, check)
    if said := dropped.summary():
        observer.say(f"warning: {said}")
    left_out = {"too long": store.numbers.too_long, f"seen less than {data.min_count} times": store.numbers.left_out}
    for why, number in left_out.items():
        if number:
            observer.say(f"{number:,} distinct pairs left out: {why}")
    return store


def _blocks(inputs: Sequence[str], data: Data, dropped: DroppedRows, observer: Observer) -> Iterator[PairBlock]:
    """Read the pairs of all inputs; bad rows go to a side file if they are to be dropped."""

    def blocks_of(path: str) -> Iterator[PairBlock]:
        def drop(line: int, row: bytes, error: RowError) -> None:
            dropped.add(f"{display_name(path)}:{line}", row)

        on_bad_row = drop if data.drop_bad_rows else None
        return read_pair_blocks(path, data.form, observer.on_read, on_bad_row, data.min_count > 1, data.factors)

    return chain.from_iterable(map(blocks_of, inputs))


def _vocabulary(data: Data, side: int, counts: Counter[bytes], say: Callable[[str], None]) -> Vocabulary:
    """Return the shortlist of a side (0: source, 1: target), from a file or of words counted over a corpus or the pairs."""
    if path := (data.source_vocab, data.target_vocab)[side]:
        return read_shortlist(path)
    if data.vocab_corpus:
        corpus = data.vocab_corpus[side]
        with open_input(corpus) as stream:
            counts = count_words(read_rows(stream))
        if not counts:
            raise InputError(display_name(corpus), "has no word in it", "pass tokenized text")
    vocabulary, left_out = most_frequent(counts, data.shortlist)
    found = f"{_SIDES[side]}: {len(vocabulary.words):,} of {len(counts):,} words are in the shortlist"
    say(found + (f"; the {left_out:,} rarest were left out so that UNK is learnt" if left_out else ""))
    return vocabulary


def _check_coverage(data: Data, side: int, share: float, say: Callable[[str], None], lacking: str = "") -> None:
    """Warn of a given vocabulary that lacks many of a side's running words to learn from, or refuse it with OptionError.

    ``share`` of the words is in it; ``lacking`` names some of the others.
    """
    given = (data.source_vocab, data.target_vocab)[side]
    if (not given and not data.vocab_corpus) or share >= FEW_KNOWN:
        return
    option = f"--{_SIDES[side]}-vocab {given}" if given else f"--vocab-corpus: the {_SIDES[side]} shortlist"
    found = f"{option} has {share:.1%} of the running {_SIDES[side]} words of the pairs" + (f"; {lacking}" if lacking else "")
    if share < LEAST_KNOWN and not data.allow_poor_coverage:
        raise OptionError(f"{found}; give the vocabulary of these pairs, or pass --allow-poor-coverage")
    say(f"warning: {found}")
