"""What a text looks like, by which one tells that two should not be compared as they are: escaped or not, tokenized or not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from phrase_rescore.moses.escaping import ESCAPED

_QUOTE = re.compile(r"['\"]")
_APART, _ATTACHED = re.compile(r"\s[.]$"), re.compile(r"[^\s.][.]$")


@dataclass(frozen=True)
class Look:
    """What a text looks like; None where nothing in it shows."""

    escaped: bool | None  # &apos; for ', as Moses needs it
    tokenized: bool | None  # a blank before the point that ends a line


def look(segments: Sequence[str]) -> Look:
    """Tell whether the text has Moses' escapes, and whether it is tokenized.

    >>> look(("c&apos; est tout .", "oui"))
    Look(escaped=True, tokenized=True)
    """
    escaped = any(ESCAPED.search(segment) for segment in segments)
    plain = any(_QUOTE.search(segment) for segment in segments)
    apart = sum(_APART.search(segment) is not None for segment in segments)
    attached = sum(_ATTACHED.search(segment) is not None for segment in segments)
    return Look(True if escaped else (False if plain else None), None if apart == attached else apart > attached)


def mismatch(reference: Look, output: Look) -> str | None:
    """Say why two texts should not be compared as they are; None if they can be."""
    for field, yes, no in (("escaped", "has Moses' escapes", "has none"), ("tokenized", "is tokenized", "is not")):
        ours, theirs = getattr(output, field), getattr(reference, field)
        if None not in (ours, theirs) and ours != theirs:
            return f"it {yes} and the reference {no}" if ours else f"the reference {yes} and it {no}"
    return None
