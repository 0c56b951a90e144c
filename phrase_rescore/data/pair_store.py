"""Encoded pairs of phrases or sentences on disk, made once for the same inputs, memory-mapped. DIR/
pairs.json                                        format version, fingerprint of inputs and options, numbers, file sizes
source.vocab, target.vocab                        the shortlists, as in a model directory
{train,held_out}.{src,tgt}.{ids,offsets}.npy      the two sides of both parts as ``Ragged`` arrays: int32, int64
"""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from phrase_rescore.data.prepared import Fingerprint, Layout, Numbers, growing_array, mapped
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.sampling import Smallest
from phrase_rescore.data.sorting import SortedPairs
from phrase_rescore.data.vocabulary import (
    SOURCE_VOCAB,
    TARGET_VOCAB,
    UNK,
    Vocabularies,
    Vocabulary,
    format_vocabulary,
    refuse_swapped,
)
from phrase_rescore.messages import Progress, silent

HELD_OUT_SOURCES = 0.005  # at most this share of the distinct sources is held out
_PARTS, _SIDES = ("train", "held_out"), ("src", "tgt")
_FILES = tuple(".".join((*names, "npy")) for names in product(_PARTS, _SIDES, ("ids", "offsets")))


@dataclass(frozen=True)
class PairNumbers(Numbers):
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

    @property
    def unk_shares(self) -> tuple[float, float]:
        """UNK's share of the words to train on, source and target."""
        return self.numbers.source_unk, self.numbers.target_unk

    def refuse_swapped(self, name: str, vocabs: Vocabularies, model: str) -> None:
        """Raise InputError if the sides of these pairs, from a file of this name, are those of another model swapped."""
        src, tgt = (Counter(dict(zip(own.words, own.counts, strict=True))) for own in (self.src_vocab, self.tgt_vocab))
        refuse_swapped(name, (src, tgt), vocabs, model)

    def summary(self) -> dict[str, Any]:
        """Return what the training summary of config.json says of the pairs."""
        return {"distinct_pairs": {"training": len(self.train), "held_out": len(self.held_out)}}


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
    directory: str, pairs: SortedPairs, vocabularies: Vocabularies, held: Container[bytes], progress: Progress
) -> PairNumbers:
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
    contents += map(format_vocabulary, vocabularies)
    content = hashlib.blake2b(b"".join(contents), digest_size=16).hexdigest()
    training, held_out = (arrays[part, "src"].phrases for part in _PARTS)
    return PairNumbers(training, held_out, pairs.left_out, pairs.too_long, source_unk, target_unk, content)


def prepare_store(
    directory: str, fingerprint: Fingerprint | None, pairs: SortedPairs,
    vocabularies: Callable[[Counter[bytes], Counter[bytes]], Vocabularies], held_out: int,
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


LAYOUT = Layout("pairs", "pairs.json", (SOURCE_VOCAB, TARGET_VOCAB), _FILES, version=2, numbers=PairNumbers, load=_load)
