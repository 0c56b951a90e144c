"""detokenizer.perl of Moses' scripts/tokenizer, rule by rule: lines come out the same.

sacremoses is such a port, too, and differs in Czech, Finnish and East Asian text. Languages are those that it knows.
"""

from collections.abc import Iterator

import regex  # it has the properties of Unicode that Perl has

from phrase_rescore.errors import OptionError
from phrase_rescore.messages import shown
from phrase_rescore.moses.text import unescape

_AS_ENGLISH = {"ja", "ko"}  # Moses has rules for them, and takes the abbreviations of English


def check_language(language: str) -> None:
    """Raise OptionError, with the list, for a language that Moses has no rules for: it would take it for English."""
    from sacremoses.corpus import NonbreakingPrefixes  # half a second, which lines of tokens need not wait for

    known = sorted(_AS_ENGLISH.union(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        hint = f"write one of {', '.join(known)}; for other languages Moses uses the rules of en"
        raise OptionError(f"--detokenize {shown(language)}: Moses has no rules for this language; {hint}")


def _single_blanks(text: str) -> str:
    return " ".join(filter(None, text.split(" ")))


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
