"""tokenizer.perl, lowercase.perl and detokenizer.perl of Moses' scripts/tokenizer, rule by rule: lines come out the same.

sacremoses is such a port, too, and differs: numbers in Czech, endings in Finnish, last words with points in them, letters of
Catalan, Indic and East Asian text. Only the abbreviations are taken from it (Moses' scripts/share/nonbreaking_prefixes).
"""

from collections.abc import Iterator

import regex  # it has the properties of Unicode that Perl has

from phrase_rescore.errors import OptionError, RowError, shown
from phrase_rescore.moses.text import escape, unescape

_AS_ENGLISH = {"ja", "ko"}  # Moses has rules for them, and takes the abbreviations of English
_NUMBERS = " #NUMERIC_ONLY#"
_LACKING = {"tdt": "Nu" + _NUMBERS}  # in Moses' file, and not in sacremoses
_NEVER_FOUND = {  # Moses' files have a blank after these, so that no word is one; sacremoses takes it off
    "as": "ভি", "bn": "ভি", "es": "Fil gr pÃ¡g", "it": "Amn Arch all es", "ml": "പി", "mni": "ভি", "nl": "Nrs",
    "sk": "Pf", "sv": "Ö",
}  # fmt: skip


def check_language(option: str, language: str) -> None:
    """Raise OptionError, with the list, for a language that Moses has no rules for: it would take it for English."""
    from sacremoses.corpus import NonbreakingPrefixes  # half a second, which lines of tokens need not wait for

    known = sorted(_AS_ENGLISH.union(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        hint = f"write one of {', '.join(known)}; for other languages Moses uses the rules of en"
        raise OptionError(f"{option} {shown(language)}: Moses has no rules for this language; {hint}")


def _single_blanks(text: str) -> str:
    return " ".join(filter(None, text.split(" ")))


# ---- tokenizer.perl

_APART, _NOT_SMALL = r" \1 ", r"(?=$|[^\p{Ll}])"
_IN_WORDS = {  # what else a word may have in it, and where that stands apart
    "fi": (":", [("(:)" + _NOT_SMALL, _APART)]),
    "sv": (":", [("(:)" + _NOT_SMALL, _APART)]),
    "tdt": ("", [("(')" + _NOT_SMALL, _APART)]),
    "ca": ("·", [("(Â·)" + _NOT_SMALL, _APART)]),  # Perl reads the script as Latin-1, and so its point as two characters
}
_DOTS_AND_COMMAS = [(r"(\.{2,})", _APART), (r"([^\p{N}]),", r"\1 , "), (r",([^\p{N}])", r" , \1"), (r"(\p{N}),$", r"\1 ,")]
_BETWEEN_OTHERS = (r"([^\p{Alpha}])'([^\p{Alpha}])", r"\1 ' \2")
_BEFORE = (r"([^\p{Alpha}])'(\p{Alpha})", r"\1 ' \2")
_AFTER = (r"(\p{Alpha})'([^\p{Alpha}])", r"\1 ' \2")
_ELIDED = [_BETWEEN_OTHERS, _BEFORE, _AFTER, (r"(\p{Alpha})'(\p{Alpha})", r"\1' \2")]
_APOSTROPHES = {
    "en": [
        _BETWEEN_OTHERS, (r"([^\p{Alpha}\p{N}])'(\p{Alpha})", r"\1 ' \2"), _AFTER,
        (r"(\p{Alpha})'(\p{Alpha})", r"\1 '\2"), (r"(\p{N})'(s)", r"\1 '\2"),
    ],
    "ca": _ELIDED, "fr": _ELIDED, "ga": _ELIDED, "it": _ELIDED, "tdt": [_BETWEEN_OTHERS, _BEFORE, _AFTER],
}  # fmt: skip
_BLANKS, _CONTROL, _END = regex.compile(r"\s+"), regex.compile(r"[\0-\x1f]"), regex.compile(r"\.' ?$")
_LETTER, _SMALL, _DIGIT = regex.compile(r"\p{Alpha}"), regex.compile(r"\p{Lower}"), regex.compile("[0-9]")


class Tokenizer:
    """What ``tokenizer.perl -l LANGUAGE -no-escape`` makes of a line.

    >>> Tokenizer("en")("Mr. Smith's house, in the U.S.")
    "Mr. Smith 's house , in the U.S ."
    """

    def __init__(self, language: str) -> None:
        from sacremoses.corpus import NonbreakingPrefixes

        within, rules = _IN_WORDS.get(language, ("", []))
        rules = [(rf"([^\p{{Alnum}}\s.'`,\-{within}])", _APART), *rules, *_DOTS_AND_COMMAS]
        rules += _APOSTROPHES.get(language, [("(')", _APART)])
        self._rules = [(regex.compile(pattern), replacement) for pattern, replacement in rules]
        entries = [*NonbreakingPrefixes().words("en" if language in _AS_ENGLISH else language), _LACKING.get(language, "")]
        self._abbreviations = {entry.removesuffix(_NUMBERS): entry.endswith(_NUMBERS) for entry in entries}  # the last counts
        for entry in _NEVER_FOUND.get(language, "").split():
            self._abbreviations.pop(entry, None)

    def __call__(self, line: str) -> str:
        text = _single_blanks(_CONTROL.sub("", _BLANKS.sub(" ", line)))
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        tokens: str = _END.sub(" . ' ", _single_blanks(" ".join(self._words(text.rstrip(" ").split(" ")))))
        return tokens

    def _words(self, words: list[str]) -> Iterator[str]:
        """Yield words, with the point at the end apart if it ends a sentence."""
        for word, following in zip(words, [*words[1:], None], strict=True):
            stem = word.removesuffix(".")
            whole = stem == word or not word.strip(".") or (following is not None and self._keeps_point(stem, following))
            yield word if whole else f"{stem} ."

    def _keeps_point(self, word: str, following: str) -> bool:
        if ("." in word and _LETTER.search(word)) or _SMALL.match(following):
            return True
        return word in self._abbreviations and (not self._abbreviations[word] or _DIGIT.match(following) is not None)


class TypedText:
    """Tokenizes, escapes and, as requested, lower-cases typed text as Moses' scripts do: ``L'eau`` is ``l&apos; eau``.

    Raises OptionError for an unknown language, RowError for bytes that are not UTF-8.
    """

    def __init__(self, language: str, lowercase: bool = False) -> None:
        check_language("--tokenize", language)
        self._tokenize, self._lowercase = Tokenizer(language), lowercase

    def __call__(self, text: bytes) -> bytes:
        try:
            tokens = self._tokenize(text.decode())
        except UnicodeDecodeError:
            raise RowError(f"{shown(text.strip())} is not UTF-8", "typed text is tokenized as UTF-8; convert it") from None
        if self._lowercase:  # last, since a point is an abbreviation's by the case around it; no letter by its neighbours
            tokens = "".join(map(str.lower, tokens))
        return escape(tokens.encode())


# ---- detokenizer.perl

_CJK = regex.compile(
    "[\u1100-\u11ff\u2e80-\ua4cf\ua840-\ua87f\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff65-\uffdc\U00020000-\U0002ffff]"
)
_OPENING, _CLOSING = regex.compile(r"[\p{Sc}(\[{¿¡]+"), regex.compile(r"[,.?!:;\\%}\])]+")
_QUOTES, _DOUBLE = regex.compile("['\"„“`]+"), regex.compile("[„“]+")
_CONTRACTED, _ELISION = regex.compile(r"\p{Alnum} '\p{Alpha}"), regex.compile(r"\p{Alpha}' \p{Alpha}")
_DECIMAL, _DASH = regex.compile("[0-9]+ [.,] [0-9]+"), regex.compile(r"(?i)\p{Alpha} [-–] (li$|mail)")
_ENDING = regex.compile(
    "([NnAaÄä]|[Ss]s[aä]|[Ss]t[aä]|[Hh][uyaäö]n|[UuYyAaÄäÖö]n|[Ss]een|[Ll]l[aä]|[Ll]t[aä]|[Ll]le|[Kk]s[ie]|[Tt]ta|[Ii]ne)"
    "(ni|si|mme|nne|nsa)?(ko|kö|han|hän|pa|pä|kaan|kään|kin)?"
)


class Detokenizer:
    """What ``detokenizer.perl -l LANGUAGE`` makes of a line: Moses' escapes are undone.

    >>> Detokenizer("cs")("roku 2012 , 5 &quot; ano &quot; .")
    'roku 2012,5 "ano".'
    """

    def __init__(self, language: str) -> None:
        self._language = language

    def __call__(self, line: str) -> str:
        if not line.strip() or regex.match("<.+>$", line):
            return line
        text = f" {line} ".replace(" @-@ ", "-")
        for older, char in ("&bar;", "|"), ("&bra;", "["), ("&ket;", "]"):
            text = text.replace(older, char)
        words = unescape(text.encode()).decode().rstrip(" ").split(" ")
        return _single_blanks("".join(self._pieces(words)))

    def _pieces(self, words: list[str]) -> Iterator[str]:
        """Yield words, each with the blank before it; the first is empty or has a dash."""
        language, blank, quotes = self._language, " ", dict[str, int]()
        places = iter(range(len(words)))
        for i in places:
            word, last, following = words[i], words[i - 1], words[i + 1 : i + 3]
            left = right = False  # whether it joins what comes before, and after
            if _CJK.match(word):
                left = language != "ko" and _CJK.match(last[-1:]) is not None
            elif _OPENING.fullmatch(word):
                right = True
            elif _CLOSING.fullmatch(word):
                left = True
                if language == "fr" and word in ("?", "!", ":", ";", "\\", "%"):
                    word = f" {word}"
            elif (language == "en" and _CONTRACTED.match(f"{last[-1:]} {word}")) or (
                language == "cs" and _DECIMAL.fullmatch(" ".join(words[max(0, i - 2) : i + 1]))
            ):
                left = True
            elif language in ("fr", "it") and _ELISION.match(" ".join([word[-2:], *following])):
                right = True
            elif language == "cs" and i < len(words) - 3 and _DASH.match(" ".join([word[-1:], *following])):
                word, right = word + following[0], True
                next(places)  # the dash
            elif _QUOTES.fullmatch(word):
                kind = '"' if _DOUBLE.fullmatch(word) else word
                if language == "cs" and word in ("„", "“"):
                    quotes[kind] = int(word == "“")
                left = quotes.get(kind, 0) % 2 == 1
                if not left and language == "en" and word == "'" and last.endswith("s"):
                    left = True  # the Jones' house
                else:
                    right = not left
                    quotes[kind] = quotes.get(kind, 0) + 1
            elif language == "fi" and last.endswith(":") and _ENDING.fullmatch(word):
                word, left = word.lower(), True
            yield word if left else blank + word
            blank = "" if right else " "
