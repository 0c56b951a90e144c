"""From the files that ``train`` was given to prepared pairs: read, sorted, shortlisted, encoded, or found as they were left."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain

from phrase_rescore import __version__
from phrase_rescore.data.sorting import sorted_pairs
from phrase_rescore.data.store import Fingerprint, PairStore, check_store_target, fingerprint_of, open_store, prepare_store
from phrase_rescore.data.vocabulary import Vocabulary, count_words, most_frequent, read_vocabulary
from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.atomic import SideFile
from phrase_rescore.files.blocks import read_rows
from phrase_rescore.files.streams import display_name, open_input
from phrase_rescore.moses.pair_readers import PairBlock, read_pair_blocks
from phrase_rescore.training.options import Observer, Options


def fingerprint(options: Options) -> Fingerprint | None:
    """What prepared pairs depend on; None if an input cannot be read twice."""
    return fingerprint_of(
        options.inputs,
        (options.source_vocab, options.target_vocab, *(options.vocab_corpus or ())),
        form=options.form,
        factors=list(options.factors),
        drop_bad_rows=options.drop_bad_rows,
        shortlist=options.settings.shortlist,
        held_out=options.held_out,
        min_count=options.min_count,
        max_length=options.max_length,
        version=__version__,
    )


def _blocks(options: Options, observer: Observer, dropped: SideFile) -> Iterator[PairBlock]:
    """The pairs of all inputs; bad rows go to a side file, if they are to be dropped."""

    def blocks_of(path: str) -> Iterator[PairBlock]:
        def drop(line: int, row: bytes, error: RowError) -> None:
            dropped.add(f"{display_name(path)}:{line}", row)

        on_bad_row = drop if options.drop_bad_rows else None
        return read_pair_blocks(path, options.form, observer.on_read, on_bad_row, options.min_count > 1, options.factors)

    return chain.from_iterable(map(blocks_of, options.inputs))


def _vocabularies(
    options: Options, counted: tuple[Counter[bytes], Counter[bytes]], say: Callable[[str], None]
) -> tuple[Vocabulary, Vocabulary]:
    """The shortlists of both sides: from files, or counted over a corpus or the distinct pairs."""
    result = []
    for i, side in enumerate(("source", "target")):
        if path := (options.source_vocab, options.target_vocab)[i]:
            result.append(read_vocabulary(path))
            if not result[-1].words:
                raise InputError(path, "is empty", "name the words of the shortlist, one a line")
            continue
        counts = counted[i]
        if options.vocab_corpus:
            with open_input(options.vocab_corpus[i]) as stream:
                counts = count_words(read_rows(stream))
            if not counts:
                raise InputError(display_name(options.vocab_corpus[i]), "has no word in it", "pass tokenized text")
        vocabulary, left_out = most_frequent(counts, options.settings.shortlist)
        types = f"{side}: {len(vocabulary.words):,} of {len(counts):,} words are in the shortlist"
        say(types + (f"; the {left_out:,} rarest were left out so that UNK is learnt" if left_out else ""))
        result.append(vocabulary)
    return result[0], result[1]


def prepared(options: Options, observer: Observer) -> PairStore:
    """The store of distinct pairs: that of an earlier run if nothing has changed, else a new one."""
    wanted = fingerprint(options)
    if store := open_store(options.store_dir, wanted):
        observer.say(f"distinct pairs as prepared before in {store.directory}")
        return store
    check_store_target(options.store_dir)
    scratch = options.scratch or tempfile.gettempdir()
    with SideFile(f"{options.model_dir}.dropped", options.drop_bad_rows).opened() as dropped:
        blocks = _blocks(options, observer, dropped)
        with sorted_pairs(blocks, scratch, options.memory, options.threads, options.min_count, options.max_length) as pairs:

            def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> tuple[Vocabulary, Vocabulary]:
                return _vocabularies(options, (src, tgt), observer.say)

            store = prepare_store(options.store_dir, wanted, pairs, vocabularies, options.held_out, observer.on_pairs)
    if dropped.rows:
        observer.say(f"warning: {dropped.summary()}")
    for number, what in (
        (store.numbers.too_long, "too long"),
        (store.numbers.left_out, f"seen less than {options.min_count} times"),
    ):
        if number:
            observer.say(f"{number:,} distinct pairs left out: {what}")
    return store
