"""From the files that ``train-lm`` was given to an encoded text on disk, made once for the same inputs, memory-mapped. DIR/
text.json               format version, fingerprint of inputs and options, numbers, file sizes
words.vocab             the vocabulary, as in a model directory
train.ids.npy           the text to train on, int32: the ids of every sentence and EOS
held_out.ids.npy        the held-out sentences, the same way
"""

import contextlib
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore._version import __version__
from phrase_rescore.data.prepared import Fingerprint, Layout, Numbers, fingerprint_of, growing_array, mapped
from phrase_rescore.data.sampling import Smallest
from phrase_rescore.data.vocabulary import EOS, UNK, Vocabulary, format_vocabulary, most_frequent, read_shortlist, untrained_unk
from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import open_input
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.lm.config import Text
from phrase_rescore.lm.nplm import NULL, UNKNOWN
from phrase_rescore.messages import Listener, Progress, silent
from phrase_rescore.moses.text import END, START, Sentences, read_sentences
from phrase_rescore.training.config import Observer
from phrase_rescore.training.run import Source

VOCAB, TRAIN, HELD_OUT = "words.vocab", "train.ids.npy", "held_out.ids.npy"
RESERVED = frozenset((START, END, UNKNOWN, UNKNOWN.upper(), NULL))  # what ARPA files and NPLM call what is not a word
_IDS = 1 << 20  # of a text, at a time
Array = NDArray[Any]


@dataclass(frozen=True)
class TextNumbers(Numbers):
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

    train: NDArray[np.int32]
    held_out: NDArray[np.int32]
    vocab: Vocabulary
    numbers: TextNumbers

    def summary(self) -> dict[str, Any]:
        """Return what the training summary of config.json says of the text."""
        numbers = self.numbers
        return {
            "sentences": {"training": numbers.sentences, "held_out": numbers.held_out_sentences},
            "words": {"training": numbers.words, "held_out": numbers.held_out_words},
        }


def prepare_text(
    directory: str, fingerprint: Fingerprint | None, sentences: Iterable[list[list[bytes]]],
    vocabulary: Callable[[Counter[bytes]], Vocabulary], held_out: int, held_out_share: float,
    progress: Progress = silent, check: Callable[[TextNumbers], None] = silent,
) -> TextStore:  # fmt: skip
    """Encode lists of sentences, lists of words, into a new store, as ``Layout.write`` does. Memory grows with distinct words.

    At most ``held_out`` sentences and ``held_out_share`` of them are held out, those whose hash is smallest: a repeated
    sentence is never in both parts. ``vocabulary`` gets the word counts of the text to train on, without RESERVED words.
    """

    def fill(temporary: str) -> tuple[TextNumbers, tuple[Vocabulary]]:
        scratch = tuple(os.path.join(temporary, name) for name in ("sentences", "hashes"))
        known, empty, limit = _number(sentences, scratch, Smallest(held_out, held_out_share), progress)
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
        return numbers, (vocab,)

    return LAYOUT.write(directory, fingerprint, fill, check)


def _number(
    sentences: Iterable[list[list[bytes]]], files: tuple[str, ...], smallest: Smallest, progress: Progress
) -> tuple[dict[bytes, int], int, int]:  # fmt: skip
    """Write the text in numbers of words, and every sentence's hash. Return the words, the empty lines, and the threshold."""
    known: dict[bytes, int] = defaultdict(count(1).__next__)  # in the order of their first appearance; 0 ends a sentence
    empty = 0
    with growing_array(files[0], np.int32) as append_ids, growing_array(files[1], np.uint64) as append_hashes:
        for block in sentences:
            split = list(filter(None, block))
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


def _chunks(text: Array, hashes: Array, limit: int) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
    """Yield parts of a text, each with which of its ids are held out."""
    sentence = 0
    for start in range(0, len(text), _IDS):
        ids = text[start : start + _IDS]
        which = sentence + np.cumsum(ids == 0) - (ids == 0)  # the sentence that each id is in
        last = int(which[-1]) + 1
        held = hashes[sentence:last] < np.uint64(limit) if limit < 1 << 64 else np.ones(last - sentence, np.bool_)
        yield ids, held[which - sentence]
        sentence += int(np.count_nonzero(ids == 0))


def _encode(folder: str, text: Array, hashes: Array, limit: int, new_ids: Array, vocab: Vocabulary, empty: int) -> TextNumbers:
    content = [hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)]
    counts = np.zeros((2, 3), np.int64)  # of each part: ids, EOS, UNK
    with ExitStack() as stack:
        append = [stack.enter_context(growing_array(os.path.join(folder, name), np.int32)) for name in (TRAIN, HELD_OUT)]
        for ids, held in _chunks(text, hashes, limit):
            encoded = new_ids[ids].astype(np.int32)
            for part, rows in enumerate((encoded[~held], encoded[held])):
                append[part](rows)
                content[part].update(rows.tobytes())
                counts[part] += len(rows), np.count_nonzero(rows == EOS), np.count_nonzero(rows == UNK)
    (train, sentences, unknown), (held_out, held_out_sentences, _) = counts.tolist()
    words = train - sentences
    digest = hashlib.blake2b(b"".join(part.digest() for part in content) + format_vocabulary(vocab), digest_size=16).hexdigest()
    return TextNumbers(sentences, words, held_out_sentences, held_out - held_out_sentences, empty, unknown / words, digest)


def _load(directory: str, numbers: TextNumbers, vocab: Vocabulary) -> TextStore:
    """Map the arrays. Raises InputError for a file that is damaged, ValueError if they do not belong together."""
    train, held_out = (mapped(os.path.join(directory, name), np.int32) for name in (TRAIN, HELD_OUT))
    lengths = numbers.words + numbers.sentences, numbers.held_out_words + numbers.held_out_sentences
    if (len(train), len(held_out)) != lengths:
        raise ValueError(directory)
    return TextStore(train, held_out, vocab, numbers)


LAYOUT = Layout("text", "text.json", (VOCAB,), (TRAIN, HELD_OUT), version=1, numbers=TextNumbers, load=_load)


class TextSource(Source[TextStore]):
    """The text of a training."""

    layout = LAYOUT
    called = "text"

    def __init__(self, inputs: Sequence[str], model_dir: str, text: Text) -> None:
        self.text, self._read = text, Sentences()
        self.most_held_out = text.held_out if text.held_out_share else 0
        options = {name: getattr(text, name) for name in ("shortlist", "min_count", "held_out", "held_out_share")}
        fingerprint = fingerprint_of(inputs, (text.vocab,), **options, version=__version__)
        super().__init__(inputs, text.text_dir or beside(model_dir, "text"), fingerprint)

    def check(self) -> None:
        """Open every input, and read a given vocabulary, before hours of work. Raises InputError."""
        for path in self.inputs:
            if not is_stream(path):
                open_input(path).close()
        if self.text.vocab and not is_stream(self.text.vocab):
            read_shortlist(self.text.vocab, RESERVED)

    def report(self, store: TextStore, listener: Listener) -> None:
        """Report the size of the text."""
        numbers = store.numbers
        held_out = f"{numbers.held_out_sentences:,} sentences held out"
        say, warn = listener.say, listener.warn
        say(f"{numbers.sentences:,} sentences of {numbers.words:,} words to train on, {held_out}")
        for warning in self._read.warnings():
            warn(warning)
        if numbers.empty:
            say(f"{numbers.empty:,} lines without a word left out")
        if self.text.held_out and self.text.held_out_share and not numbers.held_out_sentences:
            warn("too few sentences to hold any out; the last step is kept, not the best")
        say(f"the network knows {len(store.vocab.words):,} words, {1 - numbers.unk:.1%} of the running ones")
        for warning in untrained_unk({"": numbers.unk}, "use a smaller --shortlist to train UNK"):
            warn(warning)

    def make(self, observer: Observer, check: Callable[[TextNumbers], None]) -> TextStore:
        """Read, count and encode the text."""
        place, shares = (self.directory, self.fingerprints[0]), (self.text.held_out, self.text.held_out_share)
        with contextlib.closing(_sentences(self.inputs, self._read, observer)) as sentences:
            return prepare_text(*place, sentences, self._vocabulary, *shares, observer.on_pairs, check)

    def _vocabulary(self, counts: Counter[bytes]) -> Vocabulary:
        """Return the words that the network knows, from a file or as they are counted in the text."""
        text = self.text
        if text.vocab:
            return read_shortlist(text.vocab, RESERVED)
        often = Counter({word: n for word, n in counts.items() if n >= text.min_count})
        if not counts:
            raise OptionError("the text has no words but marks such as <unk>; pass tokenized text")
        if not often:
            raise OptionError(f"no word occurs {text.min_count} times; lower --min-count")
        return most_frequent(often, text.shortlist, teach_unk=len(often) == len(counts))[0]  # else the rare words do


def _sentences(inputs: Sequence[str], read: Sentences, observer: Observer) -> Generator[list[list[bytes]]]:
    """Read the sentences of all inputs, some at a time. Raises InputError for a file without any."""
    for path in inputs:
        yield from read_sentences(path, read, observer.on_read)
