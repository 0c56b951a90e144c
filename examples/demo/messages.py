"""From catalogue messages to text as Moses reads it: cleaned, tokenized, escaped, lower-cased, in NFC."""

import html
import re
import unicodedata
from functools import cache

from sacremoses import MosesTokenizer

MAX_WORDS = 20
PLACEHOLDER = "%s"

# %(name)s, %d, %1$s, %5.2f; {name}, ${name}, {{ name }}, {0:d}; %1 as Qt has it.
_PLACEHOLDERS = re.compile(
    r"%\(\w+\)[-+0#]*\d*(?:\.\d+)?[a-zA-Z]"
    r"|%(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?l{0,2}[sdiufFgGrxXc](?![a-zA-Z])"
    r"|\$?\{\{?[^{}]*\}?\}"
    r"|(?<!\d)%\d(?!\d)"
)
# What no message has: markup, several lines, addresses, identifiers, escapes, and placeholders glued to a word, as
# those stand for an ending or for anything at all.
_UNFIT = re.compile(r"</?[a-zA-Z!][^>]*>|[\n\r]|://|\w_\w|[\\{}]|\$\w|[\w%]%s|%s\w|%s%s")
_ACCELERATOR = re.compile(r"[&_](?=\w)")
_LEADING_ACCELERATOR = re.compile(r"(?<!\w)[&_](?=\w)")
_LETTER = re.compile(r"[^\W\d_]")
_PLAIN_SIGNS = str.maketrans({"’": "'", "‘": "'", "…": "...", "\u00ad": None})


def to_words(english: str, french: str) -> tuple[str, str] | None:
    """The message and its translation, tokenized, or None if they are not text of one to twenty words a side."""
    texts = _strip_accelerators(_plain(english), _plain(french))
    if any(_UNFIT.search(text) or not _LETTER.search(text.replace(PLACEHOLDER, "")) for text in texts):
        return None
    if texts[0].count(PLACEHOLDER) != texts[1].count(PLACEHOLDER):
        return None
    # The tokenizer splits words and never joins them, so what has too many already need not pass it.
    if any(len(text.split()) > MAX_WORDS for text in texts):
        return None
    pair = tokenize(texts[0], "en"), tokenize(texts[1], "fr")
    return pair if all(1 <= len(text.split()) <= MAX_WORDS for text in pair) else None


def _plain(text: str) -> str:
    """The message without entities, typographic variants of signs and invisible characters; placeholders as `%s`."""
    text = unicodedata.normalize("NFC", html.unescape(text)).translate(_PLAIN_SIGNS).strip()
    text = "".join(char for char in text if char in "\n\r\t" or unicodedata.category(char) not in {"Cc", "Cf"})
    return _PLACEHOLDERS.sub(PLACEHOLDER, text).replace("%%", "%")


def _strip_accelerators(*texts: str) -> list[str]:
    """Take the marks of keyboard accelerators out: `_File`, `Save &as`, and `E_xit` where all sides have just one."""
    if len(set(texts)) > 1 and all(len(_ACCELERATOR.findall(text)) == 1 for text in texts):
        return [_ACCELERATOR.sub("", text) for text in texts]
    return [_LEADING_ACCELERATOR.sub("", text) for text in texts]


@cache
def _tokenizer(language: str) -> MosesTokenizer:
    return MosesTokenizer(lang=language)


@cache
def tokenize(text: str, language: str) -> str:
    """Tokenize and lower-case a text; `&`, `|`, `[`, `]`, quotes and angle brackets are escaped as Moses does."""
    tokens = _tokenizer(language).tokenize(" ".join(text.split()), protected_patterns=[re.escape(PLACEHOLDER)])
    return unicodedata.normalize("NFC", " ".join(tokens).lower())
