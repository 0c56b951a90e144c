"""From the files that ``train-lm`` was given to an encoded text: read, counted, encoded, or found as it was left."""

from __future__ import annotations

import codecs
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence

from phrase_rescore._version import __version__
from phrase_rescore.data.prepared import Fingerprint, fingerprint_of
from phrase_rescore.data.vocabulary import Vocabulary, most_frequent, read_shortlist
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.blocks import batches, read_rows
from phrase_rescore.files.directories import recover_directory
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.files.locks import locked
from phrase_rescore.files.paths import beside
from phrase_rescore.lm.config import Text
from phrase_rescore.lm.store import LAYOUT, RESERVED, Numbers, TextStore, open_text, prepare_text
from phrase_rescore.moses.table import SEPARATOR
from phrase_rescore.training.config import Observer

_AT_ONCE = 4096  # lines
_SHAPE_TEXT = ("shortlist", "min_count", "held_out", "held_out_share")  # of Text


def text_dir(text: Text, model_dir: str) -> str:
    """Return the directory of the encoded text."""
    return text.text_dir or beside(model_dir, "text")


def fingerprint(inputs: Sequence[str], text: Text) -> Fingerprint | None:
    """Return what the encoded text depends on, None if an input cannot be read twice."""
    options = {name: getattr(text, name) for name in _SHAPE_TEXT}
    return fingerprint_of(inputs, (text.vocab,), **options, version=__version__)


def find(inputs: Sequence[str], text: Text, model_dir: str) -> TextStore | None:
    """Return the encoded text of an earlier run if nothing has changed."""
    return open_text(text_dir(text, model_dir), fingerprint(inputs, text))


def prepare(
    inputs: Sequence[str], text: Text, model_dir: str, observer: Observer, check: Callable[[Numbers], None]
) -> TextStore:
    """Return the encoded text: that of an earlier run if nothing has changed, else a new one.

    ``check`` sees the numbers of the store; what it raises keeps an older one from being replaced.
    Raises InputError for a file that cannot be read, OptionError if there are no sentences or if another process is preparing.
    """
    directory = text_dir(text, model_dir)
    store = find(inputs, text, model_dir)
    if store:
        observer.say(f"text as prepared before in {directory}")
    else:
        os.makedirs(os.path.dirname(os.path.realpath(directory)), exist_ok=True)
        with locked(directory, "let it end: it prepares text there", observer.say):
            recover_directory(directory)
            store = _make(inputs, text, directory, observer, check)
    check(store.numbers)
    numbers = store.numbers
    held_out = f"{numbers.held_out_sentences:,} sentences held out"
    observer.say(f"{numbers.sentences:,} sentences of {numbers.words:,} words to learn from, {held_out}")
    if numbers.empty:
        observer.say(f"{numbers.empty:,} lines without a word left out")
    if text.held_out and text.held_out_share and not numbers.held_out_sentences:
        observer.say("warning: too few sentences to hold any out; the last model is kept, not the best")
    observer.say(f"the network knows {len(store.vocab.words):,} words, {1 - numbers.unk:.1%} of the running ones")
    if not numbers.unk:
        observer.say("warning: no unknown word in the text: UNK is not learnt; a smaller --shortlist would leave some")
    return store


def _make(inputs: Sequence[str], text: Text, directory: str, observer: Observer, check: Callable[[Numbers], None]) -> TextStore:
    LAYOUT.check_target(directory)
    if os.path.isdir(directory) and os.listdir(directory):
        observer.say(f"{directory} has the text of other inputs, options or versions; prepared anew")
    made_of = fingerprint(inputs, text)

    def vocabulary(counts: Counter[bytes]) -> Vocabulary:
        if text.vocab:
            return read_shortlist(text.vocab, RESERVED)
        often = Counter({word: n for word, n in counts.items() if n >= text.min_count})
        if not counts:
            raise OptionError("the text has no words but marks such as <s>; pass tokenized text")
        if not often:
            raise OptionError(f"no word stands {text.min_count} times or more; lower --min-count")
        if len(often) < len(counts):  # the rare words teach UNK
            ranked = sorted(often.items(), key=lambda item: (-item[1], item[0]))[: text.shortlist]
            return Vocabulary(tuple(word for word, _ in ranked), tuple(n for _, n in ranked))
        return most_frequent(counts, text.shortlist)[0]

    share, progress = text.held_out_share, observer.on_pairs
    with contextlib.closing(_lines(inputs, observer)) as lines:
        return prepare_text(directory, made_of, lines, vocabulary, text.held_out, share, progress, check)


def _lines(inputs: Sequence[str], observer: Observer) -> Generator[list[bytes]]:
    """Read the lines of all inputs, some at a time. Raises InputError for a file without any."""
    for path in inputs:
        with open_input(path, observer.on_read) as stream:
            empty = True
            for lines in batches(read_rows(stream), _AT_ONCE):
                if empty:
                    _check_text(lines, display_name(path))
                empty = False
                yield lines
        if empty:
            raise InputError(display_name(path), "is empty", "pass tokenized text, a sentence a line")


def _check_text(lines: Sequence[bytes], name: str) -> None:
    """Raise InputError if the first lines of a file are those of a table, an n-best list, an ARPA file or UTF-16."""
    looks = {
        "a phrase table or an n-best list": 2 * sum(SEPARATOR in line for line in lines) > len(lines),
        "an ARPA file": lines[0].strip() == b"\\data\\",
        "UTF-16": lines[0].startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
    }
    for what, like in looks.items():
        if like:
            raise InputError(name, f"looks like {what}", "pass tokenized text in UTF-8, a sentence a line", 1)
