"""Text as people write it, to tokens of Moses and back: the one place that imports sacremoses."""

from collections.abc import Container, Sequence
from importlib.metadata import version

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.messages import first_line, shown
from phrase_rescore.moses.text import decoded

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
