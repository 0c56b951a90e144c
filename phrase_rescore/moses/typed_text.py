"""Text as a person types it, made into words as Moses' own scripts make them (``scripts/tokenizer/tokenizer.perl``)."""

from __future__ import annotations

from sacremoses import MosesTokenizer

from phrase_rescore.errors import RowError, shown


class TypedText:
    """``TypedText("fr")(b"L'eau")`` is ``b"l&apos; eau"``: tokenized, special characters escaped, lower-cased if so asked.

    Raises RowError for bytes that are no UTF-8.
    """

    def __init__(self, language: str, lowercase: bool = False) -> None:
        self._tokenizer, self._lowercase = MosesTokenizer(lang=language), lowercase

    def __call__(self, text: bytes) -> bytes:
        try:
            typed = text.decode()
        except UnicodeDecodeError:
            raise RowError(f"{shown(text.strip())} is no UTF-8", "typed text is tokenized as UTF-8; convert it") from None
        tokenized: str = self._tokenizer.tokenize(typed.lower() if self._lowercase else typed, return_str=True, escape=True)
        return tokenized.encode()
