"""An encoded text on disk, which training maps into memory: made once, used again while its inputs stay the same.

DIR/
    text.json               format version, fingerprint of inputs and options, numbers, file sizes
    words.vocab             the vocabulary, as in a model directory
    train.ids.npy           the text to learn from, int32: the ids of every sentence and EOS
    held_out.ids.npy        the sentences to measure on, the same way
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.prepared import Fingerprint, Layout, growing_array
from phrase_rescore.data.vocabulary import EOS, UNK, Vocabulary, format_vocabulary, read_vocabulary
from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.files.directories import replace_directory
from phrase_rescore.files.inputs import map_array
from phrase_rescore.lm.arpa import END, START, UNKNOWN
from phrase_rescore.lm.nplm import NULL
from phrase_rescore.moses.table import words

VOCAB, TRAIN, HELD_OUT = "words.vocab", "train.ids.npy", "held_out.ids.npy"
LAYOUT = Layout("the prepared text", "text.json", (VOCAB, TRAIN, HELD_OUT), version=1)
RESERVED = frozenset((START, END, UNKNOWN, NULL))  # what ARPA files and NPLM call what is not a word
_AT_ONCE = 1 << 20  # ids of a pass
_SENTENCES, _HASHES = "sentences", "hashes"  # scratch, gone when the store is whole


@dataclass(frozen=True)
class Numbers:
    """What a store holds; words are running words, EOS not counted."""

    sentences: int
    words: int
    held_out_sentences: int
    held_out_words: int
    empty: int  # lines without a word, left out
    unk: float  # UNK's share of the words to train on
    content: str  # a hash of text and vocabulary

    def __post_init__(self) -> None:
        """Raise ValueError for what no store holds: a summary may be damaged."""
        counts = (self.sentences, self.words, self.held_out_sentences, self.held_out_words, self.empty)
        if not all(isinstance(n, int) and n >= 0 for n in counts) or not 0 <= self.unk <= 1:
            raise ValueError(f"{counts}, {self.unk}")


@dataclass(frozen=True)
class TextStore:
    """A text to train on and a text held out, mapped from files, with the vocabulary that encodes them."""

    directory: str
    train: NDArray[np.int32]
    held_out: NDArray[np.int32]
    vocab: Vocabulary
    numbers: Numbers


class _Numbered(dict[bytes, int]):
    """Gives words numbers in the order of their first appearance, from 1 on: 0 ends a sentence."""

    def __missing__(self, word: bytes) -> int:
        number = self[word] = len(self) + 1
        return number


class _Smallest:
    """Finds, of hashes that go by, the one under which at most ``most`` of them lie, and at most the share ``share``."""

    def __init__(self, most: int, share: float) -> None:
        self._most, self._share, self._limit = most, share, 1 << 64
        self._seen, self._kept = 0, list[int]()

    def add(self, hashes: Iterable[int], n: int) -> None:
        self._seen += n
        self._kept += [h for h in hashes if h < self._limit]
        if len(self._kept) > 2 * self._most:
            self._cut()

    def _cut(self) -> None:
        self._kept.sort()
        if len(self._kept) > self._most:
            self._limit = self._kept[self._most]
            del self._kept[self._most :]

    def threshold(self) -> int:
        """Return it: hashes below it are chosen. Equal hashes are chosen together or not at all."""
        self._cut()
        allowed = int(self._share * self._seen)
        return self._kept[allowed] if allowed < len(self._kept) else self._limit


def prepare_text(
    directory: str,
    fingerprint: Fingerprint | None,
    lines: Iterable[list[bytes]],
    vocabulary: Callable[[Counter[bytes]], Vocabulary],
    held_out: int,
    held_out_share: float,
    progress: Callable[[int], object] | None = None,
    check: Callable[[Numbers], None] = lambda numbers: None,
) -> TextStore:
    """Encode lists of lines, a sentence each, into a new store, which appears whole or not at all and replaces an older one.

    The lines go by once. At most ``held_out`` sentences and ``held_out_share`` of them are held out, those whose hash is
    smallest: a sentence that stands twice is never in both parts. ``vocabulary`` gets the word counts of the text to train on;
    words spelled like the marks of ARPA files and NPLM are not among them. Memory grows with distinct words alone.
    ``progress`` is called with numbers of sentences. What ``check`` raises keeps the store from being replaced. The caller
    holds the lock of the directory (``files.locks``).

    Raises OptionError if the directory holds something else or if there is no sentence to learn from, and RescoreError if the
    files cannot be written.
    """
    LAYOUT.check_target(directory)
    try:
        with replace_directory(directory) as temporary:
            scratch = tuple(os.path.join(temporary, name) for name in (_SENTENCES, _HASHES))
            known, empty, limit = _number(lines, scratch, _Smallest(held_out, held_out_share), progress)
            text, hashes = (np.asarray(map_array(path, "prepare the text again")) for path in scratch)
            counts = np.zeros(len(known) + 1, np.int64)
            for ids, held in _chunks(text, hashes, limit):
                counts += np.bincount(ids[~held], minlength=len(counts))
            if not counts[0]:
                raise OptionError("there are no sentences to train on; pass tokenized text, a sentence a line")
            by_word = zip(known, counts[1:].tolist(), strict=True)
            vocab = vocabulary(Counter({word: n for word, n in by_word if n and word not in RESERVED}))
            numbers = _encode(temporary, text, hashes, limit, np.concatenate(([EOS], vocab.encode(list(known)))), vocab, empty)
            check(numbers)
            Path(temporary, VOCAB).write_bytes(format_vocabulary(vocab))
            del text, hashes
            for path in scratch:
                os.unlink(path)
            LAYOUT.write_summary(temporary, fingerprint, asdict(numbers))
    except OSError as error:
        raise RescoreError(f"cannot write {directory}: {error.strerror}; make room there, or name another directory") from None
    return _load(directory, numbers)


def _number(
    lines: Iterable[list[bytes]], files: tuple[str, ...], smallest: _Smallest,
    progress: Callable[[int], object] | None,
) -> tuple[_Numbered, int, int]:  # fmt: skip
    """Write the text in numbers of words, and every sentence's hash. Return the words, the empty lines, and the threshold."""
    known, empty = _Numbered(), 0
    with ExitStack() as stack:
        append_ids = stack.enter_context(growing_array(files[0], np.int32))
        append_hashes = stack.enter_context(growing_array(files[1], np.uint64))
        for block in lines:
            split = [found for line in block if (found := words(line.rstrip(b"\r\n")))]
            empty += len(block) - len(split)
            digests = b"".join(hashlib.blake2b(b" ".join(sentence), digest_size=8).digest() for sentence in split)
            of_block = np.frombuffer(digests, "<u8")
            append_hashes(of_block)
            smallest.add(of_block.tolist(), len(of_block))
            numbers = chain.from_iterable((*map(known.__getitem__, sentence), 0) for sentence in split)
            append_ids(np.fromiter(numbers, np.int32, sum(map(len, split)) + len(split)))
            if progress:
                progress(len(block))
    return known, empty, smallest.threshold()


def _chunks(text: NDArray[Any], hashes: NDArray[Any], limit: int) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Yield parts of a text, each with which of its ids are held out."""
    sentence = 0
    for start in range(0, len(text), _AT_ONCE):
        ids = text[start : start + _AT_ONCE]
        which = sentence + np.cumsum(ids == 0) - (ids == 0)  # the sentence that each id is in
        last = int(which[-1]) + 1
        held = hashes[sentence:last] < np.uint64(limit) if limit < 1 << 64 else np.ones(last - sentence, np.bool_)
        yield ids, held[which - sentence]
        sentence += int(np.count_nonzero(ids == 0))


def _encode(
    directory: str, text: NDArray[Any], hashes: NDArray[Any], limit: int, new_ids: NDArray[Any], vocab: Vocabulary, empty: int
) -> Numbers:
    """Write both parts in the ids of the vocabulary, and count what is in them."""
    sizes, ends, unknown = [0, 0], [0, 0], 0
    content = [hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)]
    with ExitStack() as stack:
        append = [stack.enter_context(growing_array(os.path.join(directory, name), np.int32)) for name in (TRAIN, HELD_OUT)]
        for ids, held in _chunks(text, hashes, limit):
            encoded = new_ids[ids].astype(np.int32)
            for part, rows in enumerate((encoded[~held], encoded[held])):
                append[part](rows)
                content[part].update(rows.tobytes())
                ends[part] += int(np.count_nonzero(rows == EOS))
                sizes[part] += len(rows)
            unknown += int(np.count_nonzero(encoded[~held] == UNK))
    train, held_out = (size - end for size, end in zip(sizes, ends, strict=True))
    digest = hashlib.blake2b(b"".join(part.digest() for part in content) + format_vocabulary(vocab), digest_size=16).hexdigest()
    return Numbers(ends[0], train, ends[1], held_out, empty, unknown / train, digest)


def _load(directory: str, numbers: Numbers) -> TextStore:
    """Map the arrays. Raises InputError for a file that is damaged, ValueError if they do not belong together."""

    def part(name: str, size: int) -> NDArray[np.int32]:
        ids = np.asarray(map_array(os.path.join(directory, name), "prepare the text again"))
        if ids.dtype != np.int32 or ids.shape != (size,):
            raise ValueError(name)
        return ids

    vocab = read_vocabulary(os.path.join(directory, VOCAB))
    train = part(TRAIN, numbers.words + numbers.sentences)
    held_out = part(HELD_OUT, numbers.held_out_words + numbers.held_out_sentences)
    return TextStore(directory, train, held_out, vocab, numbers)


def open_text(directory: str, fingerprint: Fingerprint | None) -> TextStore | None:
    """Return the store if it is whole and was made from the files and options that ``fingerprint`` tells of, else None."""
    return LAYOUT.open(directory, fingerprint, lambda numbers: _load(directory, Numbers(**numbers)))
