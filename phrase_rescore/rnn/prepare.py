"""From the files that ``train`` was given to encoded pairs on disk, made once for the same inputs, memory-mapped. DIR/
pairs.json                                        format version, fingerprint of inputs and options, numbers, file sizes
source.vocab, target.vocab                        the shortlists, as in a model directory
{train,held_out}.{src,tgt}.{ids,offsets}.npy      the two sides of both parts as ``Ragged`` arrays: int32, int64
"""

import contextlib
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from phrase_rescore._version import __version__
from phrase_rescore.data import prepared, vocabulary
from phrase_rescore.data.prepared import Fingerprint, Layout, fingerprint_of, growing_array, mapped, unk_untrained
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.sampling import Smallest
from phrase_rescore.data.sorting import SortedPairs, check_room, sorted_pairs
from phrase_rescore.data.vocabulary import FEW_KNOWN, LEAST_KNOWN, UNK, Vocabulary, known_share, most_frequent, read_shortlist
from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.files.row_outputs import DroppedRows
from phrase_rescore.moses.pairs import PairBlock, read_pair_blocks, refuse_by_name
from phrase_rescore.progress import Listener, Progress, Say, silent
from phrase_rescore.rnn.checkpoint import SIDES, SOURCE_VOCAB, TARGET_VOCAB
from phrase_rescore.rnn.config import Data
from phrase_rescore.training.config import Observer
from phrase_rescore.training.session import Source

HELD_OUT_SOURCES = 0.005  # at most this share of the distinct sources is held out
_PARTS, _SIDES = ("train", "held_out"), ("src", "tgt")
_FILES = tuple(".".join((*names, "npy")) for names in product(_PARTS, _SIDES, ("ids", "offsets")))
_SHAPE_PAIRS = ("form", "factors", "drop_bad_rows", "shortlist", "held_out", "min_count", "max_length")  # of Data


@dataclass(frozen=True)
class PairNumbers(prepared.Numbers):
    """The counts of a store and of what was left out; all but the shares are numbers of distinct pairs."""

    training: int
    held_out: int
    left_out: int  # seen less often than asked for
    too_long: int
    source_unk: float  # UNK's share of the words to train on
    target_unk: float
    pairs_content: str  # a hash of all pairs and of the vocabularies


@dataclass(frozen=True)
class PairStore:
    """Pairs to train on and pairs held out, mapped from files, with the vocabularies that encode them."""

    directory: str
    train: EncodedPairs
    held_out: EncodedPairs
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    numbers: PairNumbers


class HeldOut(Smallest):
    """Holds out at most ``most`` pairs and 0.5 % of the sources, those of the smallest hashes, as pairs go by in order."""

    def __init__(self, most: int) -> None:
        super().__init__(most, HELD_OUT_SOURCES, lambda item: len(item[2]))  # the pairs of a source
        self._last, self._hash = b"", self.limit  # the last source, which the next block may continue; none is empty
        self._targets: list[bytes] = []  # its targets if it is kept

    def add(self, src: Sequence[bytes], tgt: Sequence[bytes]) -> None:
        """Take the sources and targets of the next pairs, one of each a pair."""
        end = 0
        for source, size in Counter(src).items():
            start, end = end, end + size
            if source != self._last:
                self.seen += 1
                digest = hashlib.blake2b(source, digest_size=8).digest()
                self._last, self._hash, self._targets = source, int.from_bytes(digest), []
                if self._hash < self.limit:
                    self.kept.append((self._hash, source, self._targets))
            if self._hash < self.limit:
                self._targets += tgt[start:end]
                self.weight += size
        if self.weight > 2 * self.most:
            self.forget()

    def sources(self) -> dict[bytes, list[bytes]]:
        """Return the sources to hold out, each with its targets, when all have gone by."""
        return {source: targets for _, source, targets in self.chosen()}


class _GrowingRagged:
    """The two files of a ``Ragged``."""

    def __init__(self, path: str, stack: contextlib.ExitStack) -> None:
        self._append_ids = stack.enter_context(growing_array(f"{path}.ids.npy", np.int32))
        self._append_offsets = stack.enter_context(growing_array(f"{path}.offsets.npy", np.int64))
        self._append_offsets(np.zeros(1, np.int64))
        self.phrases = self.words = self.unknown = 0
        self.hashes = hashlib.blake2b(), hashlib.blake2b()  # of ids and lengths

    def append(self, part: Ragged) -> None:
        self._append_ids(part.ids)
        self._append_offsets(part.offsets[1:] + self.words)
        self.hashes[0].update(part.ids.tobytes())
        self.hashes[1].update(part.lengths.tobytes())
        self.phrases += len(part)
        self.words += len(part.ids)
        self.unknown += int(np.count_nonzero(part.ids == UNK))


def _encode(
    directory: str, pairs: SortedPairs, vocabularies: tuple[Vocabulary, Vocabulary], held: Container[bytes], progress: Progress
) -> PairNumbers:
    """Write the arrays, and count what is in them."""
    with contextlib.ExitStack() as stack:
        arrays = {key: _GrowingRagged(os.path.join(directory, ".".join(key)), stack) for key in product(_PARTS, _SIDES)}
        for block in pairs:
            is_held = np.fromiter(map(held.__contains__, block.src), np.bool_, len(block.src))
            rows = {"train": np.flatnonzero(~is_held), "held_out": np.flatnonzero(is_held)}
            for side, phrases, shortlist in zip(_SIDES, (block.src, block.tgt), vocabularies, strict=True):
                encoded = Ragged.of_phrases(phrases, shortlist)
                for part, chosen in rows.items():
                    arrays[part, side].append(encoded.take(chosen))
            progress(len(block.src))
    source_unk, target_unk = (arrays["train", side].unknown / max(1, arrays["train", side].words) for side in _SIDES)
    contents = [hashed.digest() for array in arrays.values() for hashed in array.hashes]
    contents += map(vocabulary.format_vocabulary, vocabularies)
    content = hashlib.blake2b(b"".join(contents), digest_size=16).hexdigest()
    training, held_out = (arrays[part, "src"].phrases for part in _PARTS)
    return PairNumbers(training, held_out, pairs.left_out, pairs.too_long, source_unk, target_unk, content)


def prepare_store(
    directory: str, fingerprint: Fingerprint | None, pairs: SortedPairs,
    vocabularies: Callable[[Counter[bytes], Counter[bytes]], tuple[Vocabulary, Vocabulary]], held_out: int,
    progress: Progress = silent, check: Callable[[PairNumbers], None] = silent,
) -> PairStore:  # fmt: skip
    """Encode distinct pairs, which go by twice, into a new store; ``vocabularies`` chooses words by their counts."""
    choice = HeldOut(held_out)
    src_counts, tgt_counts = Counter[bytes](), Counter[bytes]()
    for block in pairs:
        src_counts.update(b" ".join(block.src).split(b" "))
        tgt_counts.update(b" ".join(block.tgt).split(b" "))
        choice.add(block.src, block.tgt)
        progress(len(block.src))
    held = choice.sources()
    src_counts -= Counter(word for source, targets in held.items() for word in source.split(b" ") * len(targets))
    tgt_counts -= Counter(word for targets in held.values() for word in b" ".join(targets).split(b" "))
    chosen = vocabularies(src_counts, tgt_counts)
    del src_counts, tgt_counts
    return LAYOUT.write(directory, fingerprint, lambda place: (_encode(place, pairs, chosen, held, progress), chosen), check)


def _load(directory: str, numbers: PairNumbers, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> PairStore:
    """Map the arrays. Raises InputError for a file that is damaged, ValueError if they do not belong together."""

    def part(name: str, pairs: int) -> EncodedPairs:
        sides = []
        for side in _SIDES:
            path = os.path.join(directory, f"{name}.{side}")
            ids, offsets = mapped(f"{path}.ids.npy", np.int32), mapped(f"{path}.offsets.npy", np.int64)
            if len(offsets) != pairs + 1 or offsets[0] != 0 or offsets[-1] != len(ids):
                raise ValueError(path)
            sides.append(Ragged(ids, offsets))
        return EncodedPairs(*sides)

    train, held_out = part("train", numbers.training), part("held_out", numbers.held_out)
    return PairStore(directory, train, held_out, src_vocab, tgt_vocab, numbers)


# Version 1: the shortlists counted words of held-out pairs too
LAYOUT = Layout("pairs", "pairs.json", (SOURCE_VOCAB, TARGET_VOCAB), _FILES, version=2, numbers=PairNumbers, load=_load)


class PairSource(Source[PairStore]):
    """The pairs of a training. Those of all rows serve, too, if bad rows are to be dropped."""

    layout = LAYOUT
    called = "distinct pairs"
    others = "pairs prepared from other inputs, options or versions, or from streams"

    def __init__(self, inputs: Sequence[str], model_dir: str, data: Data, threads: int) -> None:
        self.data, self._threads = data, threads
        self.scratch: str = data.scratch or tempfile.gettempdir()
        self._dropped = beside(model_dir, "dropped")
        self._given = data.source_vocab, data.target_vocab
        files = (data.source_vocab, data.target_vocab, *(data.vocab_corpus or ()))
        options = {name: getattr(data, name) for name in _SHAPE_PAIRS} | {"version": __version__}
        of_some, of_all = (fingerprint_of(inputs, files, **options | more) for more in ({}, {"drop_bad_rows": False}))
        super().__init__(inputs, data.pairs_dir or beside(model_dir, "pairs"), of_all, of_some)

    def check(self, listener: Listener) -> None:
        """Check the first rows of every input, vocabularies and the room, but no streams. Raises InputError."""
        for path in self.inputs:
            refuse_by_name(path)
        files = [path for path in self.inputs if not is_stream(path)]
        for pairs in self._openings(files):
            with contextlib.closing(pairs):
                next(pairs, None)  # and closed here, not by a destructor, from which no signal comes out
        for given in self._given:
            if given and not is_stream(given):
                read_shortlist(given)
        room = check_room(self.scratch)
        if room < sum(map(os.path.getsize, files)):
            found = f"{self.scratch} has room for {room / 2**30:.1f} GB, but sorting needs up to twice the text of all pairs"
            listener.warn(f"{found}; name another directory with --scratch")

    def report(self, store: PairStore, made: bool, listener: Listener) -> None:
        """Report the number of pairs. Raises OptionError if there are none, or if given vocabularies lack too many words."""
        say, warn = listener.say, listener.warn
        numbers, shares = store.numbers, (store.numbers.source_unk, store.numbers.target_unk)
        if not made:
            for side, unknown in enumerate(shares):
                self._check_coverage(side, 1 - unknown, warn)
        if not numbers.training:
            raise OptionError("there are no pairs to train on")
        say(f"{numbers.training:,} distinct pairs to train on, {numbers.held_out:,} held out")
        if self.data.held_out and not numbers.held_out:
            warn("too few sources to hold any out; the last step is kept, not the best")
        known = (f"{1 - share:.1%} of the running {side} words" for side, share in zip(SIDES, shares, strict=True))
        say(f"the shortlists have {' and '.join(known)}")
        for name, share in zip(SIDES, shares, strict=True):
            if share == 0:
                warn(unk_untrained(f"{name} word among the pairs"))

    def make(self, observer: Observer, check: Callable[[PairNumbers], None]) -> PairStore:
        """Read, sort and encode the pairs."""
        data = self.data
        with contextlib.ExitStack() as sorting:
            with DroppedRows(self._dropped, data.drop_bad_rows).opened() as dropped:
                blocks = self._blocks(observer.on_read, dropped)
                limits = data.min_count, data.max_length
                in_order = sorted_pairs(blocks, self.scratch, self.directory, data.memory, self._threads, *limits)
                pairs = sorting.enter_context(in_order)  # all rows are read: their file is complete before the pairs are

            def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> tuple[Vocabulary, Vocabulary]:
                chosen = self._vocabulary(0, src, observer.say), self._vocabulary(1, tgt, observer.say)
                for side, counts in enumerate((src, tgt)):
                    share, lacking = known_share(counts, chosen[side], chosen[1 - side])
                    self._check_coverage(side, share, observer.warn, lacking)
                return chosen

            made_of = self.fingerprints[1 if dropped.rows else 0]
            store = prepare_store(self.directory, made_of, pairs, vocabularies, data.held_out, observer.on_pairs, check)
        if dropped.rows:
            observer.warn(dropped.summary())
        rarely = f"seen less than {data.min_count} times"
        for why, number in (("too long", store.numbers.too_long), (rarely, store.numbers.left_out)):
            if number:
                observer.say(f"{number:,} distinct pairs left out: {why}")
        return store

    def _openings(self, files: Sequence[str]) -> list[Generator[PairBlock]]:
        """Return what reads the pairs of each file, or of all, by which they are checked before hours of work."""
        return [self._read(path) for path in files]

    def _blocks(self, on_read: Progress | None = None, dropped: DroppedRows | None = None) -> Iterator[PairBlock]:
        """Read all pairs, in their order."""
        return chain.from_iterable(self._read(path, on_read, dropped) for path in self.inputs)

    def _read(self, path: str, on_read: Progress | None = None, dropped: DroppedRows | None = None) -> Generator[PairBlock]:
        def drop(line: int, row: bytes, error: RowError) -> None:
            if dropped is not None:
                dropped.add(f"{display_name(path)}:{line}", row)

        data = self.data
        on_bad_row = drop if data.drop_bad_rows else None
        return read_pair_blocks(path, data.form, on_read, on_bad_row, data.min_count > 1, data.factors)

    def _vocabulary(self, side: int, counts: Counter[bytes], say: Say) -> Vocabulary:
        """Return the shortlist of a side (0: source, 1: target), from a file or of words counted over a corpus or the pairs."""
        if path := self._given[side]:
            return read_shortlist(path)
        if self.data.vocab_corpus:
            corpus = self.data.vocab_corpus[side]
            with open_input(corpus) as stream:
                counts = vocabulary.count_words(read_rows(stream))
            if not counts:
                raise InputError(display_name(corpus), "has no words", "pass tokenized text")
        shortlist, left_out = most_frequent(counts, self.data.shortlist)
        found = f"{SIDES[side]}: {len(shortlist.words):,} of {len(counts):,} words are in the shortlist"
        say(found + (f"; the {left_out:,} rarest are left out to train UNK" if left_out else ""))
        return shortlist

    def _check_coverage(self, side: int, share: float, warn: Say, lacking: str = "") -> None:
        """Warn of a given vocabulary that has a small ``share`` of a side's running words, or refuse it with OptionError."""
        given = self._given[side]
        if (not given and not self.data.vocab_corpus) or share >= FEW_KNOWN:
            return
        option = f"--{SIDES[side]}-vocab {given}" if given else f"--vocab-corpus: the {SIDES[side]} shortlist"
        found = f"{option} has {share:.1%} of the running {SIDES[side]} words of the pairs"
        if lacking:
            found += f"; {lacking}"
        if share < LEAST_KNOWN and not self.data.allow_poor_coverage:
            raise OptionError(f"{found}; give the vocabulary of these pairs, or pass --allow-poor-coverage")
        warn(found)
