"""Rows and blocks of phrase tables, factors, columns on and off, the readers of phrase pairs: any bytes at all.

An input's first byte chooses numbers of scores and factors; the rest are rows.
"""

import io
import math
import re
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import InputError, RowError
    from phrase_rescore.files.inputs import Block
    from phrase_rescore.moses import table as moses_table
    from phrase_rescore.moses.pairs import FORMATS, read_pair_blocks
    from phrase_rescore.moses.table import WHOLE, Factors, parse_block, parse_row, select_factor

from harness import fuzz, told
from row_edits import with_scores

FACTORS: tuple[Factors, ...] = (WHOLE, (0, None), (None, 1), (1, 0))
FORMS = (None, *FORMATS)
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", *(b"%c\x2a\x4d\x18" % n for n in range(0x50, 0x60)))
COLUMNS = b" 0.25 2.718282"


SEEDS = [
    b"the house ||| das haus ||| 0.5 0.25 1 6.1e-05 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n" * 2,
    b"a ||| b ||| 1 ||| ||| 1 1 1\r\nc ||| d ||| 2\n",
    b" a\t||| b ||| 1  1\t1 \n[X] ||| ] ||| .5 5.\n||| ||| 1\n",
    b"a|x b|y ||| c|z ||| 1e-5 +1E+5 |||| x\n|||||||||\nnan ||| inf ||| 1e999 0x1p3\n",
    "café été ||| l&apos; \u2028 \u00a0 \u0085 ||| 1_0 1\n".encode() + b"\xff\xfe\0\v\f ||| \x1c ||| 1\n",
    b"the house ||| das haus ||| 0-0 1-1\n" * 3,
    b"the house\tdas haus\r\na\tb\tc\n",
    b"a ||| b ||| 0-0 ||| 0.5 0.25 ||| 2 1\n",
    bytes.fromhex("1f8b0800000000000203330000b7efdc8301000000"),  # gzip
]
TOKENS = (b"|||", b" ||| ", b" ||||", b"|", b"[X]", b"]", b"0.5", b".5", b"1e-05", b"0-0", b"\t", b"  ", b"\r", b"\xe2\x80\xa8")


def refusal(read: Callable[..., object], *args: object) -> str:
    """What the error of a call says, or nothing if there is none."""
    try:
        read(*args)
    except RowError as error:
        return told(error)
    return ""


def check_row(row: bytes, n_scores: int) -> None:
    """A row is refused, or its columns come on and off without a stray byte."""
    if refusal(parse_row, row):
        return
    parsed = parse_row(row)
    assert b"|||".join(parsed.fields) == row
    assert parsed.src == re.findall(rb"[^ \t]+", row.split(b"|||")[0])
    assert parsed.tgt == re.findall(rb"[^ \t]+", row.split(b"|||")[1])
    scores = re.findall(rb"[^ \t\r]+", parsed.fields[2])
    assert len(scores) == parsed.n_scores
    assert not any(math.isnan(float(score)) for score in scores)
    longer = with_scores(parsed.fields, 0, COLUMNS)
    assert with_scores(parse_row(longer, parsed.n_scores + 2).fields, 2, b"") == row
    assert parse_block(Block(0, 1, longer + b"\n"), parsed.n_scores + 2).write(2, [b""]) == row + b"\n"
    replaced = with_scores(parse_row(longer).fields, 2, COLUMNS)
    assert replaced == longer
    assert bool(refusal(parse_row, row, n_scores)) == (parsed.n_scores != n_scores)


def check_block(data: bytes, n_scores: int, factors: Factors) -> None:
    """Rows cut by one expression are the rows parsed one by one."""
    block = Block(3, 41, data)
    found = moses_table.parse_block(block, n_scores, (factors,))
    kept, bad = list[tuple[int, bytes, bytes]](), list[int]()
    values = list[list[float]]()
    for line, row in enumerate(block.rows(), 41):
        try:
            parsed = parse_row(row, n_scores)
            moses_table.check_factors(b" ".join(parsed.src), b" ".join(parsed.tgt), factors)
        except RowError:
            bad.append(line)
            continue
        kept.append((line, b" ".join(parsed.src), b" ".join(parsed.tgt)))
        values.append([float(score) for score in parsed.scores])
    assert list(zip(found.lines, found.src, found.tgt, strict=True)) == kept
    assert [line for line, _, error in found.bad if told(error)] == bad
    assert found.values(n_scores).tolist() == values
    for phrases, factor, side in ((found.src, factors[0], "source"), (found.tgt, factors[1], "target")):
        plain = [
            phrase if factor is None else b" ".join(word.split(b"|")[factor] for word in phrase.split(b" "))
            for phrase in phrases
        ]
        assert list(select_factor(phrases, factor, side)) == plain


def check_factors(phrase: bytes) -> None:
    """A factor is missing exactly where splitting at bars finds none."""
    for factor in (0, 1, 2):
        lacking = any(not word.split(b"|")[factor : factor + 1] or not word.split(b"|")[factor] for word in phrase.split(b" "))
        assert bool(refusal(moses_table.check_factor, phrase, factor, "source")) == lacking


def check_readers(data: bytes, form: str | None, counts: bool, factors: Factors) -> None:
    """Every row becomes a pair or is named; a whole file becomes pairs or one error."""
    rows, bad = 0, list[int]()
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))
    try:
        for block in read_pair_blocks("-", form, None, lambda line, row, error: bad.append(line), counts, factors):
            assert len(block.src) == len(block.tgt)
            assert (block.counts is not None) == counts
            assert block.counts is None or len(block.counts) == len(block.src)
            rows += len(block.src)
    except InputError as error:
        told(error)
        return
    assert bad == sorted(set(bad))
    if not data.startswith(COMPRESSED):
        assert rows + len(bad) == len(data.split(b"\n")) - data.endswith(b"\n")


def check(data: bytes) -> None:
    rows = data[1:]
    if not rows:
        return
    choice, n_scores = divmod(data[0], 4)
    choice, factors = divmod(choice, 4)
    form = choice % 4
    n_scores += 1
    for row in Block(0, 1, rows).rows():
        check_row(row, n_scores)
        check_factors(b" ".join(row.split()) or b"x")
    check_block(rows, n_scores, FACTORS[factors])
    for counts in (False, True):
        check_readers(rows, FORMS[form], counts, FACTORS[factors])


if __name__ == "__main__":
    fuzz(check, [bytes([choice]) + seed for seed in SEEDS for choice in (0, 5, 16, 33)], 2048, TOKENS)
