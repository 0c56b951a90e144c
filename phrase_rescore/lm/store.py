"""An encoded text on disk, which training maps into memory: made once, used again while its inputs stay the same.

DIR/
    text.json               format version, fingerprint of inputs and options, numbers, file sizes
    words.vocab             the vocabulary, as in a model directory
    train.ids.npy           the text to learn from, int32: the ids of every sentence and EOS
    held_out.ids.npy        the sentences to measure on, the same way
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data import prepared
from phrase_rescore.data.held_out import Smallest
from phrase_rescore.data.prepared import Fingerprint, Layout, growing_array, mapped
from phrase_rescore.data.vocabulary import EOS, UNK, Vocabulary, format_vocabulary, read_vocabulary
from phrase_rescore.errors import OptionError
from phrase_rescore.lm.arpa import END, START, UNKNOWN
from phrase_rescore.lm.nplm import NULL
from phrase_rescore.moses.table import words

VOCAB, TRAIN, HELD_OUT = "words.vocab", "train.ids.npy", "held_out.ids.npy"
RESERVED = frozenset((START, END, UNKNOWN, NULL))  # what ARPA files and NPLM call what is not a word
_AT_ONCE = 1 << 20  # ids of a pass
_SENTENCES, _HASHES = "sentences", "hashes"  # scratch, gone when the store is whole


@dataclass(frozen=True)
class TextNumbers(prepared.Numbers):
    """What a store holds; words are running words, EOS not counted."""

    sentences: int
    words: int
    held_out_sentences: int
    held_out_words: int
    empty: int  # lines without a word, left out
    unk: float  # UNK's share of the words to train on
    content: str  # a hash of text and vocabulary


@dataclass(frozen=True)
class TextStore:
    """A text to train on and a text held out, mapped from files, with the vocabulary that encodes them."""

    directory: str
    train: NDArray[np.int32]
    held_out: NDArray[np.int32]
    vocab: Vocabulary
    numbers: TextNumbers


class _Numbered(dict[bytes, int]):
    """Gives words numbers in the order of their first appearance, from 1 on: 0 ends a sentence."""

    def __missing__(self, word: bytes) -> int:
        number = self[word] = len(self) + 1
        return number


def prepare_text(
    directory: str,
    fingerprint: Fingerprint | None,
    lines: Iterable[list[bytes]],
    vocabulary: Callable[[Counter[bytes]], Vocabulary],
    held_out: int,
    held_out_share: float,
    progress: Callable[[int], object] = lambda sentences: None,
    check: Callable[[TextNumbers], None] = lambda numbers: None,
) -> TextStore:
    """Encode lists of lines, a sentence each, into a new store, which appears whole or not at all and replaces an older one.

    The lines go by once. At most ``held_out`` sentences and ``held_out_share`` of them are held out, those whose hash is
    smallest: a repeated sentence is never in both parts. ``vocabulary`` gets the word counts of the text to train on;
    words spelled like the marks of ARPA files and NPLM are not among them. Memory grows with distinct words alone.
    ``progress`` is called with numbers of sentences. ``check`` and errors are as of ``Layout.write``; OptionError, too, if
    there is no sentence to learn from.
    """

    def fill(temporary: str) -> tuple[TextNumbers, dict[str, Vocabulary]]:
        scratch = tuple(os.path.join(temporary, name) for name in (_SENTENCES, _HASHES))
        known, empty, limit = _number(lines, scratch, Smallest(held_out, held_out_share), progress)
        text, hashes = mapped(scratch[0], np.int32), mapped(scratch[1], np.uint64)
        counts = np.zeros(len(known) + 1, np.int64)
        for ids, held in _chunks(text, hashes, limit):
            counts += np.bincount(ids[~held], minlength=len(counts))
        if not counts[0]:
            raise OptionError("there are no sentences to train on; pass tokenized text, a sentence a line")
        by_word = zip(known, counts[1:].tolist(), strict=True)
        vocab = vocabulary(Counter({word: n for word, n in by_word if n and word not in RESERVED}))
        new_ids = np.concatenate(([EOS], vocab.encode(list(known))))
        numbers = _encode(temporary, text, hashes, limit, new_ids, vocab, empty)
        for path in scratch:
            os.unlink(path)
        return numbers, {VOCAB: vocab}

    return LAYOUT.write(directory, fingerprint, fill, check)


def _number(
    lines: Iterable[list[bytes]], files: tuple[str, ...], smallest: Smallest, progress: Callable[[int], object]
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
            smallest.seen += len(of_block)
            smallest.kept += [(hashed,) for hashed in of_block.tolist() if hashed < smallest.limit]
            if len(smallest.kept) > 2 * smallest.most:
                smallest.forget()
            numbers = chain.from_iterable((*map(known.__getitem__, sentence), 0) for sentence in split)
            append_ids(np.fromiter(numbers, np.int32, sum(map(len, split)) + len(split)))
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
) -> TextNumbers:
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
    return TextNumbers(ends[0], train, ends[1], held_out, empty, unknown / train, digest)


def _load(directory: str, numbers: TextNumbers) -> TextStore:
    """Map the arrays. Raises InputError for a file that is damaged, ValueError if they do not belong together."""

    def part(name: str, size: int) -> NDArray[np.int32]:
        ids = mapped(os.path.join(directory, name), np.int32)
        if len(ids) != size:
            raise ValueError(name)
        return ids

    vocab = read_vocabulary(os.path.join(directory, VOCAB))
    train = part(TRAIN, numbers.words + numbers.sentences)
    held_out = part(HELD_OUT, numbers.held_out_words + numbers.held_out_sentences)
    return TextStore(directory, train, held_out, vocab, numbers)


LAYOUT = Layout("text", "text.json", (VOCAB, TRAIN, HELD_OUT), version=1, numbers=TextNumbers, load=_load)
