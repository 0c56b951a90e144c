"""Text of Moses: its escapes, escaped or tokenized text told apart, lines of phrases, and typed text.

sacremoses is imported here alone.
"""

import codecs
import re
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, dropwhile, islice
from typing import NamedTuple, TypeVar

from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import BLOCK_BYTES, display_name, open_input, read_rows
from phrase_rescore.messages import Progress, counted, first_line, in_one_line, shown
from phrase_rescore.moses.file_kinds import TEXT, check_kind
from phrase_rescore.moses.table import SEPARATOR, WHOLE, Factors, check_factor, phrase_pair, phrase_words, split_fields, words

_ENTITIES = {  # & is escaped first and unescaped last
    b"&": b"&amp;", b"|": b"&#124;", b"<": b"&lt;", b">": b"&gt;",
    b"'": b"&apos;", b'"': b"&quot;", b"[": b"&#91;", b"]": b"&#93;",
}  # fmt: skip
_OLDER = (b"&bar;", b"&bra;", b"&ket;")  # what earlier versions wrote for | [ ]
ESCAPED = re.compile("|".join(entity.decode() for entity in (*_ENTITIES.values(), *_OLDER)))


def escape(text: bytes) -> bytes:
    """Escape special characters."""
    for char, entity in _ENTITIES.items():
        text = text.replace(char, entity)
    return text


def unescape(text: bytes) -> bytes:
    """Undo ``escape``."""
    for char, entity in reversed(_ENTITIES.items()):
        text = text.replace(entity, char)
    return text


def decoded(text: bytes) -> str:
    """Decode text. Raises RowError if it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        around = shown(text[max(0, error.start - 20) : error.start + 20])
        raise RowError(f"{around} is not UTF-8", "convert the file with iconv -t UTF-8") from None


def readable(phrase: bytes) -> str:
    """Write a phrase for people: Moses' escapes undone, what cannot be printed written out.

    >>> readable(b"l &apos; eau \\xff"), readable("a\\u2028b".encode())
    ("l ' eau \\\\xff", 'a\\\\u2028b')
    """
    return in_one_line(unescape(phrase).decode("utf-8", "backslashreplace"))


_QUOTE = re.compile(r"['\"]")
_MANY = 50  # lines
_BY_CHANCE = 0.05  # of lines
_APART, _ATTACHED = re.compile(r"\s[.]$"), re.compile(r"[^\s.][.]$")


@dataclass(frozen=True)
class Look:
    """Whether a text is escaped and tokenized, to warn of files that do not match; None where nothing in it shows."""

    escaped: bool | None  # &apos; for ', as Moses needs it
    tokenized: bool | None  # a blank before the point that ends a line
    cased: bool | None = None  # capitals in a third of the lines; in next to none


def look(segments: Sequence[str]) -> Look:
    """Return whether the text has Moses' escapes, is tokenized (marks in it hide this), and has capitals."""
    escapes = sum(ESCAPED.search(segment) is not None for segment in segments)
    plain = sum(_QUOTE.search(segment) is not None for segment in segments)
    apart = sum(_APART.search(segment) is not None for segment in segments)
    attached = sum(_ATTACHED.search(segment) is not None for segment in segments)
    clear = abs(apart - attached) > _BY_CHANCE * len(segments)
    tokenized = apart > attached if clear and not marks(segments) else None
    return Look(escapes > plain if escapes or plain else None, tokenized, _cased(segments))


def _cased(segments: Sequence[str]) -> bool | None:
    """Return whether the text has capitals; None for a short one, some capitals, or letters that are neither."""
    capitals = sum(segment != segment.lower() for segment in segments)
    if len(segments) < _MANY or all(segment.lower() == segment.upper() for segment in segments):
        return None
    return True if capitals * 3 > len(segments) else False if capitals * 100 < len(segments) else None


def mismatch(reference: Look, output: Look) -> str | None:
    """Return why two texts should not be compared as they are; None if they can be."""
    for field, yes, no in (("escaped", "has Moses' escapes", "has none"), ("tokenized", "is tokenized", "is not")):
        one, other = getattr(output, field), getattr(reference, field)
        if None not in (one, other) and one != other:
            return f"it {yes} and the reference {no}" if one else f"the reference {yes} and it {no}"
    return None


class _Mark(NamedTuple):
    """What programs write into text that is not a word of it."""

    what: str
    form: re.Pattern[str]  # of a line that has it
    remedy: str
    least: float = 0.1  # share of the lines by which it is one


_JOIN = "BLEU counts pieces as words; join them with"
_ADDED = r"(?:<[^ <>@]+>|__\w+__|>>\w+<<)"  # words that are none: <s>, <pad>, <2fr>, __fr__, >>fr<<
_MARKED = (
    _Mark("pieces of words that end in @@", re.compile(r"[^ ]@@(?: |$)"), f"{_JOIN} sed -r 's/@@( |$)//g'"),
    _Mark("pieces of words that begin with ▁", re.compile(r"(?:^| )▁"), f"{_JOIN} sed 's/ //g; s/▁/ /g; s/^ //'", 0.5),
    _Mark("pieces of words that begin with Ġ", re.compile(r"(?:^| )Ġ"), f"{_JOIN} sed 's/ //g; s/Ġ/ /g'", 0.5),
    _Mark("pieces of words that begin with ##", re.compile(r"[^ ] ##[^ #]"), f"{_JOIN} sed 's/ ##//g'"),
    _Mark("pieces of words with ￭", re.compile("￭"), f"{_JOIN} sed -r 's/ ?￭ ?//g'"),
    _Mark("factors", re.compile(r"^(?:[^ |]+(?:\|[^ |]+)+(?: +|$))+$"), r"keep the words with sed -r 's/\|[^ ]+//g'", 0.5),
    _Mark(
        "accents apart from their letters",
        re.compile("[AEIOUaeioucn][\u0300-\u0303\u0308\u0327]"),
        "join them with uconv -x nfc",
    ),
    _Mark("UTF-8 that was read as Latin-1 (Ã©)", re.compile("Ã[\u0080-\u00bf]"), "undo it with iconv -f UTF-8 -t LATIN1"),
    _Mark("escapes of escapes", re.compile(r"&amp;(?:apos|quot|lt|gt|amp|#124|#9[13]);"), r"undo one with sed 's/&amp;/\&/g'"),
    _Mark("a number before each line", re.compile(r"^-?\d+(?:[.]\d+)?[ \t,:]"), "cut it off with cut -d ' ' -f 2-", 0.9),
    _Mark("a number after each line", re.compile(r"[ \t]-?\d+[.]\d+$"), r"cut it off with sed -r 's/[ \t][^ \t]+$//'", 0.9),
    _Mark("marks at the ends of lines, such as </s>", re.compile(rf"^{_ADDED}(?: |$)|(?:^| ){_ADDED}$"), "delete them", 0.5),
    _Mark("<unk> or UNK", re.compile(r"(?:^| )(?:<unk>|<UNK>|UNK)(?: |$)"), "give the text before rare words were replaced"),
)


def marks(segments: Sequence[str]) -> list[str]:
    """Return what an output or reference has in many lines that is not of its text, each with its remedy: pieces, factors, ….

    >>> marks(["le|D chat|N", "il|P dort|V"])
    ["it has factors; keep the words with sed -r 's/\\\\|[^ ]+//g'"]
    """
    found, filled = list[str](), sum(map(bool, segments))
    for mark in _MARKED:
        if sum(mark.form.search(segment) is not None for segment in segments) > mark.least * filled:
            found.append(f"it has {mark.what}; {mark.remedy}")
    return found


START, END = b"<s>", b"</s>"  # of a sentence, in texts and files of n-gram models
_MARKS = frozenset((START, END))


_FEW = 20  # lines of a tokenized text that may end in an abbreviation; of real ones no more than a twentieth do
Tokenize = Callable[[bytes], bytes]  # from typed text to its tokens, with blanks between them


class Sentences:
    """Reads sentences without ``<s>`` and ``</s>`` around, or a byte order mark before, counting those.

    Raises RowError for ``<s>`` or ``</s>`` between words, as lmplz.
    """

    def __init__(self, tokenize: Tokenize | None = None) -> None:
        self.tokenize, self.marked, self.byte_order_marks = tokenize, 0, 0
        self._apart = self._attached = 0  # lines that end in a point, as a token or as part of a word

    def __call__(self, line: bytes) -> list[bytes]:
        """Return the words of a line."""
        if line.startswith(codecs.BOM_UTF8):
            line = self.unmarked(line)
        text = line.rstrip(b"\r\n")
        if text.endswith(b" ."):
            self._apart += 1
        elif text.endswith(b".") and not text.endswith(b".."):
            self._attached += 1
        found = words(self.tokenize(text) if self.tokenize else text)
        return found if _MARKS.isdisjoint(found) else self.bare(found)

    def unmarked(self, line: bytes) -> bytes:
        """Return a line without a byte order mark, which is never a word, wherever files were concatenated."""
        if line.startswith(codecs.BOM_UTF8):
            self.byte_order_marks += 1
        return line.removeprefix(codecs.BOM_UTF8)

    def bare(self, sentence: list[bytes]) -> list[bytes]:
        """Return the words of a sentence without the marks around them."""
        if _MARKS.isdisjoint(sentence):
            return sentence
        self.marked += 1
        bare = list(dropwhile(START.__eq__, sentence))
        while bare and bare[-1] == END:
            bare.pop()
        if within := _MARKS.intersection(bare):
            raise RowError(f"{shown(min(within))} between words", "write one sentence a line, or delete the mark")
        return bare

    def warnings(self) -> list[str]:
        """Return warnings with the numbers of sentences that had marks, if some had."""
        around = f"<s> and </s> around {counted(self.marked, 'sentence')} were left out; the model adds its own"
        before = f"a byte order mark before {counted(self.byte_order_marks, 'line')} was left out"
        typed = f"{counted(self._attached, 'line')} end as 'word.', not 'word .'; tokenize the text as for Moses"
        is_typed = not self.tokenize and self._attached > max(_FEW, self._apart)
        return [around] * (self.marked > 0) + [before] * (self.byte_order_marks > 0) + [typed] * is_typed


T = TypeVar("T")


@dataclass(frozen=True)
class PhraseReader:
    """Reads a line as a phrase with single blanks. Raises RowError for none, two, a non-terminal, a word without ``factor``."""

    side: str
    factor: int | None = None
    tokenize: Tokenize | None = None  # for typed text

    def __call__(self, line: bytes) -> bytes:
        text = line.rstrip(b"\r\n")
        if SEPARATOR in text or b"\t" in text:
            raise RowError(f"{shown(text)} is more than a {self.side} phrase", "write one phrase a line and nothing else")
        if not words(text):
            raise RowError("the line is empty", f"write one {self.side} phrase a line")
        tokens = self.tokenize(text) if self.tokenize else text
        phrase = b" ".join(phrase_words(tokens, self.side))
        check_factor(phrase, self.factor, self.side)
        return phrase


@dataclass(frozen=True)
class PairReader:
    """Reads ``source ||| target [||| …]``, or two columns with a tab between. Raises RowError as ``PhraseReader`` does."""

    factors: Factors = WHOLE
    tokenize: tuple[Tokenize, Tokenize] | None = None  # for typed text, of each side

    def __call__(self, line: bytes) -> tuple[bytes, bytes]:
        line = line.rstrip(b"\r\n")
        sides = split_fields(line, 2)[:2] if SEPARATOR in line else line.split(b"\t")
        if len(sides) != 2:
            raise RowError(f"no phrase pair in {shown(line)}", "write 'source ||| target', or source, tab, target")
        if self.tokenize:
            sides = [of_side(text) for of_side, text in zip(self.tokenize, sides, strict=True)]
        return phrase_pair(sides[0], sides[1], self.factors)


def parsed_lines(lines: Iterable[bytes], parse: Callable[[bytes], T], name: str, at_once: int) -> Iterator[list[T]]:
    """Yield what ``parse`` makes of ``at_once`` lines, or fewer of BLOCK_BYTES. Raises InputError for its RowError."""
    done, size = list[T](), 0
    for number, line in enumerate(lines, 1):
        try:
            done.append(parse(line))
        except RowError as error:
            if done:
                yield done
            raise error.at(name, number) from None
        size += len(line)
        if len(done) == at_once or size >= BLOCK_BYTES:
            yield done
            done, size = [], 0
    if done:
        yield done


_LINES = 4096  # of a text, at a time


def read_sentences(path: str, read: Callable[[bytes], T], on_read: Progress | None = None) -> Generator[list[T]]:
    """Read lines of a text to train on, some at a time. Raises InputError as ``read``, for an empty file, for another kind."""
    with open_input(path, on_read) as stream:
        rows, name = read_rows(stream), display_name(path)
        first = list(islice(rows, _LINES))
        check_kind(name, first, TEXT)
        yield from parsed_lines(chain(first, rows), read, name, _LINES)


_LIKE_ENGLISH = {"ja", "ko"}  # sacremoses has rules for them, and takes the abbreviations of English


def check_language(option: str, language: str) -> None:
    """Raise OptionError, with the list, for a language that sacremoses has no rules for: it would take it for English."""
    from sacremoses.corpus import NonbreakingPrefixes  # here and below: half a second, which tokenized text need not wait for

    known = sorted(_LIKE_ENGLISH.union(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        hint = f"write one of {', '.join(known)}; for other languages en"
        raise OptionError(f"{option} {shown(language)}: sacremoses has no rules for this language; {hint}")


def sacremoses_version() -> str:
    """Return the version that makes the text."""
    return version("sacremoses")


class Tokenizer:
    """Makes tokens of typed text as Moses' tokenizer.perl does, escaped, and as a model knows them.

    A word that the model does not know, but knows in lower case, becomes lower-case. Dashes within words become ``@-@`` for a
    model that knows that, as ``tokenizer.perl -a`` writes it. Raises OptionError for an unknown language.
    """

    def __init__(self, language: str, known: Container[bytes]) -> None:
        check_language("--tokenize", language)
        from sacremoses import MosesTokenizer

        self._known, self._sacremoses = known, MosesTokenizer(lang=language)

    def __call__(self, text: bytes) -> bytes:
        """Return the words with single blanks between them. Raises RowError for text that is not UTF-8."""
        tokens = self._sacremoses.tokenize(decoded(text), aggressive_dash_splits=b"@-@" in self._known)
        return b" ".join(map(self._cased, tokens))

    def _cased(self, token: str) -> bytes:
        word, lower = token.encode(), token.lower().encode()
        return lower if word not in self._known and lower in self._known else word


def tokenizer_for(language: str | None, known: Container[bytes]) -> Tokenizer | None:
    """Return what makes tokens of typed text of a language; None for text that is tokenized already."""
    return None if language is None else Tokenizer(language, known)


def detokenized(lines: Sequence[str], language: str, name: str) -> tuple[str, ...]:
    """Join the tokens of a file's lines to text as people write it, Moses' escapes undone.

    Raises InputError for a line at which sacremoses fails.
    """
    from sacremoses import MosesDetokenizer

    detokenizer, plain = MosesDetokenizer(lang=language), list[str]()
    for number, line in enumerate(lines, 1):
        try:
            plain.append(detokenizer.detokenize(line.split(" ")))
        except Exception as error:  # such as its TypeError at some dashes of Czech
            found = f"sacremoses fails at {shown(line)} ({first_line(error)})"
            hint = "detokenize all files with Moses' detokenizer.perl, and leave --detokenize out"
            raise InputError(name, found, hint, number) from None
    return tuple(plain)
