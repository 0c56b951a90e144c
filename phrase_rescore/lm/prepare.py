"""From the files that ``train-lm`` was given to an encoded text: read, counted, encoded, or found as it was left."""

import codecs
import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence

from phrase_rescore._version import __version__
from phrase_rescore.data.prepared import fingerprint_of, unk_not_learnt
from phrase_rescore.data.vocabulary import Vocabulary, most_frequent, read_shortlist
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import batches, display_name, open_input, read_rows
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.lm.config import Text
from phrase_rescore.lm.store import LAYOUT, RESERVED, TextNumbers, TextStore, prepare_text
from phrase_rescore.moses.table import SEPARATOR
from phrase_rescore.training.config import Observer
from phrase_rescore.training.source import Source

_AT_ONCE = 4096  # lines
_SHAPE_TEXT = ("shortlist", "min_count", "held_out", "held_out_share")  # of Text


class TextSource(Source[TextStore]):
    """The text of a training."""

    layout = LAYOUT
    called = "text"
    others = "the text of other inputs, options or versions"

    def __init__(self, inputs: Sequence[str], model_dir: str, text: Text) -> None:
        self.text = text
        options = {name: getattr(text, name) for name in _SHAPE_TEXT}
        fingerprint = fingerprint_of(inputs, (text.vocab,), **options, version=__version__)
        super().__init__(inputs, text.text_dir or beside(model_dir, "text"), fingerprint)

    def check(self, say: Callable[[str], None]) -> None:
        """Open every input, and read a given vocabulary, before hours of work. Raises InputError."""
        for path in self.inputs:
            if not is_stream(path):
                open_input(path).close()
        if self.text.vocab and not is_stream(self.text.vocab):
            read_shortlist(self.text.vocab, RESERVED)

    def report(self, store: TextStore, made: bool, say: Callable[[str], None]) -> None:
        """Say what the text is."""
        numbers = store.numbers
        held_out = f"{numbers.held_out_sentences:,} sentences held out"
        say(f"{numbers.sentences:,} sentences of {numbers.words:,} words to learn from, {held_out}")
        if numbers.empty:
            say(f"{numbers.empty:,} lines without a word left out")
        if self.text.held_out and self.text.held_out_share and not numbers.held_out_sentences:
            say("warning: too few sentences to hold any out; the last model is kept, not the best")
        say(f"the network knows {len(store.vocab.words):,} words, {1 - numbers.unk:.1%} of the running ones")
        if not numbers.unk:
            say(unk_not_learnt("word in the text"))

    def make(self, observer: Observer, check: Callable[[TextNumbers], None]) -> TextStore:
        """Read, count and encode the text."""
        text = self.text
        with contextlib.closing(_lines(self.inputs, observer)) as lines:
            return prepare_text(
                self.directory, self.fingerprints[0], lines, self._vocabulary, text.held_out, text.held_out_share,
                observer.on_pairs, check,
            )  # fmt: skip

    def _vocabulary(self, counts: Counter[bytes]) -> Vocabulary:
        """Return the words that the network knows, from a file or as they are counted in the text."""
        text = self.text
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
