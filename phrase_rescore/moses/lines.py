"""Lines that a person or another program writes: phrases, phrase pairs, and text that is yet to be tokenized."""

from __future__ import annotations

from collections.abc import Callable

from phrase_rescore.errors import RowError, shown
from phrase_rescore.moses.fields import SEPARATOR, split_fields

Prepare = Callable[[bytes], bytes]  # from a side as it was written to words with blanks between


class TypedText:
    """``TypedText("fr")(b"L'eau")`` is ``b"l&apos; eau"``: tokenized, special characters escaped, lower-cased if so asked.

    Raises RowError for bytes that are no UTF-8.
    """

    def __init__(self, language: str, lowercase: bool = False) -> None:
        from sacremoses import MosesTokenizer  # half a second, which lines of tokens need not wait for

        self._tokenizer, self._lowercase = MosesTokenizer(lang=language), lowercase

    def __call__(self, text: bytes) -> bytes:
        try:
            typed = text.decode()
        except UnicodeDecodeError:
            raise RowError(f"{shown(text.strip())} is no UTF-8", "typed text is tokenized as UTF-8; convert it") from None
        tokenized: str = self._tokenizer.tokenize(typed.lower() if self._lowercase else typed, return_str=True, escape=True)
        return tokenized.encode()


def as_written(side: bytes) -> bytes:
    return side


def split_pair(line: bytes) -> tuple[bytes, bytes]:
    """Source and target of ``source ||| target [||| …]`` or of two columns with a tab between.

    Raises RowError for anything else.
    """
    line = line.rstrip(b"\r\n")
    sides = split_fields(line, 2)[:2] if SEPARATOR in line else line.split(b"\t")
    if len(sides) != 2:
        raise RowError(f"no phrase pair in {shown(line)}", "write 'source ||| target', or source, tab, target")
    return sides[0], sides[1]
