"""Moses' escapes of special characters, as scripts/tokenizer/escape-special-chars.perl writes them."""

from __future__ import annotations

import re

_ENTITIES = {  # & is escaped first and unescaped last
    b"&": b"&amp;", b"|": b"&#124;", b"<": b"&lt;", b">": b"&gt;",
    b"'": b"&apos;", b'"': b"&quot;", b"[": b"&#91;", b"]": b"&#93;",
}  # fmt: skip
_OLDER = (b"&bar;", b"&bra;", b"&ket;")  # what earlier versions wrote for | [ ]
ESCAPED = re.compile("|".join(entity.decode() for entity in (*_ENTITIES.values(), *_OLDER)))


def escape(text: bytes) -> bytes:
    """Escape special characters.

    >>> escape(b"l'eau & [X]")
    b'l&apos;eau &amp; &#91;X&#93;'
    """
    for char, entity in _ENTITIES.items():
        text = text.replace(char, entity)
    return text


def unescape(text: bytes) -> bytes:
    """Undo ``escape``.

    >>> unescape(escape(b"&apos; <a|b>"))
    b'&apos; <a|b>'
    """
    for char, entity in reversed(_ENTITIES.items()):
        text = text.replace(entity, char)
    return text


def readable(phrase: bytes) -> str:
    """Write a phrase for people: Moses' escapes undone, what cannot be printed written out.

    >>> readable(b"l &apos; eau \\xff"), readable("a\\u2028b".encode())
    ("l ' eau \\\\xff", 'a\\\\u2028b')
    """
    decoded = unescape(phrase).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in decoded)
