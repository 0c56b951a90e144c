"""Lines that a person types, tokenized already: a phrase, a pair, or refused in one line.

An input's first byte chooses factors; the rest are lines.
"""

import re
from collections.abc import Callable
from typing import Any

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import InputError, RowError
    from phrase_rescore.moses.table import WHOLE, Factors
    from phrase_rescore.moses.text import PairReader, PhraseReader, parsed_lines

from harness import fuzz, told

FACTORS: tuple[Factors, ...] = (WHOLE, (0, None), (None, 1), (1, 0))
SEEDS = [
    b"the house\ndas haus\n",
    b"the house ||| das haus ||| 0.5 ||| 0-0\nthe house\tdas haus\r\n",
    b"a|b c|d ||| x|y\n|a b|\n\n \t \n",
    "café \u2028 \u00a0 l&apos; eau ||| \u0085\n".encode() + b"\xff\0 ||| [X] ||| ]\n[a] b\tc\n",
    b"a ||| b\tc\n||| |||\na|||b\n|||||||\n",
]
TOKENS = (b"|||", b" ||| ", b"||||", b"|", b"[X]", b"[", b"]", b"\t", b"  ", b"\r", b"\r\n", b"\n", b"\0", b"\xe2\x80\xa8")


def check_phrase(phrase: bytes, text: bytes, factor: int | None) -> None:
    """A phrase that was read has the words of its text, with single blanks between them."""
    assert phrase.split(b" ") == re.findall(rb"[^ \t]+", text)
    assert not re.search(rb"[\t\n]|(?<![^ ])\[[^ ]*\](?![^ ])", phrase), phrase
    for word in phrase.split(b" "):
        assert factor is None or word.split(b"|")[factor]


def read_or_refused(read: Callable[[bytes], Any], line: bytes) -> Any:
    try:
        return read(line)
    except RowError as error:
        told(error)
        return None


def check_line(line: bytes, factors: Factors) -> None:
    stripped = line.rstrip(b"\r\n")
    for side, factor in zip(("source", "target"), factors, strict=True):
        phrase = read_or_refused(PhraseReader(side, factor), line)
        if phrase is not None:
            assert b"|||" not in line
            assert b"\t" not in line
            check_phrase(phrase, stripped, factor)
    if (pair := read_or_refused(PairReader(factors), line)) is None:
        return
    sides = stripped.split(b"|||")[:2] if b"|||" in line else stripped.split(b"\t")
    for phrase, side, factor in zip(pair, sides, factors, strict=True):
        check_phrase(phrase, side, factor)
    if not pair[1].endswith(b"\r") and b"|||" not in b" ".join(pair):
        for separator in (b"\t", b" ||| "):
            assert PairReader(factors)(separator.join(pair) + b"\n") == pair


def check_lines(lines: list[bytes], factors: Factors, at_once: int) -> None:
    """However many are read at once, the answers are the same, and the error names the first line that is wrong."""
    pairs = [read_or_refused(PairReader(factors), line) for line in lines]
    wrong = [number for number, pair in enumerate(pairs, 1) if pair is None][:1]
    found, refused = list[tuple[bytes, bytes]](), list[int | None]()
    try:
        for some in parsed_lines(lines, PairReader(factors), "<stdin>", at_once):
            assert 0 < len(some) <= at_once
            found += some
    except InputError as error:
        told(error)
        refused.append(error.line)
    assert refused == wrong
    assert found == pairs[: wrong[0] - 1 if wrong else None]


def check(data: bytes) -> None:
    choice = data[0] if data else 0
    lines = data[1:].splitlines(keepends=True)
    factors = FACTORS[choice % 4]
    for line in data[1:].split(b"\n"):
        check_line(line + b"\n", factors)
    check_lines(lines, factors, 1 + choice // 4 % 4)


if __name__ == "__main__":
    fuzz(check, [bytes([choice]) + seed for seed in SEEDS for choice in (0, 1, 7)], 512, TOKENS)
