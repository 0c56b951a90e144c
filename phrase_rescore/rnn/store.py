"""Encoded phrase pairs on disk, which training maps into memory: made once, used again while their inputs stay the same.

DIR/
    pairs.json                                        format version, fingerprint of inputs and options, numbers, file sizes
    source.vocab, target.vocab                        the shortlists, as in a model directory
    {train,held_out}.{src,tgt}.{ids,offsets}.npy      the two sides of both parts as ``Ragged`` arrays: int32, int64
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from phrase_rescore.data import prepared
from phrase_rescore.data.held_out import Smallest
from phrase_rescore.data.prepared import Fingerprint, Layout, growing_array, mapped
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.sorting import SortedPairs
from phrase_rescore.data.vocabulary import UNK, Vocabulary, format_vocabulary, read_vocabulary

HELD_OUT_SOURCES = 0.005  # at most this share of the distinct sources is held out
SOURCE_VOCAB, TARGET_VOCAB = "source.vocab", "target.vocab"
_PARTS, _SIDES, _ARRAYS = ("train", "held_out"), ("src", "tgt"), ("ids", "offsets")
_FILES = (f"{part}.{side}.{array}.npy" for part in _PARTS for side in _SIDES for array in _ARRAYS)
ChooseVocabularies = Callable[[Counter[bytes], Counter[bytes]], tuple[Vocabulary, Vocabulary]]


@dataclass(frozen=True)
class PairNumbers(prepared.Numbers):
    """What a store holds and what was left out of it; all but the shares are numbers of distinct pairs."""

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
    """Chooses the sources to hold out while pairs go by in order of their source: those whose BLAKE2 hash is smallest.

    At most ``most`` pairs and 0.5 % of the sources are held out. The choice depends on the sources alone and never separates
    the targets of one source.
    """

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
    """The two files of a ``Ragged``, open as long as ``stack`` is."""

    def __init__(self, path: str, stack: ExitStack) -> None:
        self._append_ids = stack.enter_context(growing_array(f"{path}.ids.npy", np.int32))
        self._append_offsets = stack.enter_context(growing_array(f"{path}.offsets.npy", np.int64))
        self._append_offsets(np.zeros(1, np.int64))
        self.words = self.unknown = 0
        self._hashes = hashlib.blake2b(), hashlib.blake2b()  # of ids and lengths

    def append(self, part: Ragged) -> None:
        self._append_ids(part.ids)
        self._append_offsets(part.offsets[1:] + self.words)
        self._hashes[0].update(part.ids.tobytes())
        self._hashes[1].update(part.lengths.tobytes())
        self.words += len(part.ids)
        self.unknown += int(np.count_nonzero(part.ids == UNK))

    def digest(self) -> bytes:
        return b"".join(hashed.digest() for hashed in self._hashes)


def _encode(
    directory: str, pairs: SortedPairs, vocabularies: tuple[Vocabulary, Vocabulary], held: Container[bytes],
    progress: Callable[[int], object],
) -> PairNumbers:  # fmt: skip
    """Write the arrays, and count what is in them."""
    sizes = dict.fromkeys(_PARTS, 0)
    with ExitStack() as stack:
        arrays = {
            (part, side): _GrowingRagged(os.path.join(directory, f"{part}.{side}"), stack) for part in _PARTS for side in _SIDES
        }
        for block in pairs:
            is_held = np.fromiter(map(held.__contains__, block.src), np.bool_, len(block.src))
            rows = {"train": np.flatnonzero(~is_held), "held_out": np.flatnonzero(is_held)}
            for side, phrases, vocabulary in zip(_SIDES, (block.src, block.tgt), vocabularies, strict=True):
                encoded = Ragged.of_phrases(phrases, vocabulary)
                for part in _PARTS:
                    arrays[part, side].append(encoded.take(rows[part]))
            for part in _PARTS:
                sizes[part] += len(rows[part])
            progress(len(block.src))
    source_unk, target_unk = (arrays["train", side].unknown / max(1, arrays["train", side].words) for side in _SIDES)
    content = hashlib.blake2b(b"".join(array.digest() for array in arrays.values()), digest_size=16)
    for vocabulary in vocabularies:
        content.update(format_vocabulary(vocabulary))
    return PairNumbers(
        sizes["train"], sizes["held_out"], pairs.left_out, pairs.too_long, source_unk, target_unk, content.hexdigest()
    )


def prepare_store(
    directory: str,
    fingerprint: Fingerprint | None,
    pairs: SortedPairs,
    vocabularies: ChooseVocabularies,
    held_out: int,
    progress: Callable[[int], object] = lambda pairs: None,
    check: Callable[[PairNumbers], None] = lambda numbers: None,
) -> PairStore:
    """Encode distinct pairs into a new store, which appears whole or not at all and replaces an older one.

    At most ``held_out`` pairs are held out. The pairs go by twice. In between, ``vocabularies`` gets the word counts of both
    sides, of the pairs to train on alone, and chooses the shortlists. ``progress`` is called with the number of pairs of
    each block, in both passes. ``check`` and errors are as of ``Layout.write``.
    """
    choice = HeldOut(held_out)
    src_counts: Counter[bytes] = Counter()
    tgt_counts: Counter[bytes] = Counter()
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

    def fill(temporary: str) -> tuple[PairNumbers, dict[str, Vocabulary]]:
        numbers = _encode(temporary, pairs, chosen, held, progress)
        return numbers, dict(zip((SOURCE_VOCAB, TARGET_VOCAB), chosen, strict=True))

    return LAYOUT.write(directory, fingerprint, fill, check)


def _load(directory: str, numbers: PairNumbers) -> PairStore:
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

    src_vocab, tgt_vocab = (read_vocabulary(os.path.join(directory, name)) for name in (SOURCE_VOCAB, TARGET_VOCAB))
    train, held_out = part("train", numbers.training), part("held_out", numbers.held_out)
    return PairStore(directory, train, held_out, src_vocab, tgt_vocab, numbers)


# Version 1: the shortlists counted words of held-out pairs too
LAYOUT = Layout("pairs", "pairs.json", (SOURCE_VOCAB, TARGET_VOCAB, *_FILES), version=2, numbers=PairNumbers, load=_load)
