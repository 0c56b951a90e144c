"""The phrases of the decoder's outputs: every way in which moses writes them, and what is wrong with others."""

from collections.abc import Callable

import pytest

from phrase_rescore.errors import RowError
from phrase_rescore.moses.hypotheses import SPAN, Derivation, UsedPhrase, check_cover, parse_line, parse_surface

SOURCE = [b"a", b"b", b"c"]
PHRASES = (UsedPhrase(1, 2, b"y z"), UsedPhrase(0, 0, b"x"))
SCORES = b"Distortion0= 0 LM0= -1.5 ||| -0.5"


def in_list(text: bytes) -> Derivation:
    entry = parse_line(text)
    derivation = entry.derivation()
    assert entry.hypothesis() == [b"y", b"z", b"x"]
    return derivation


@pytest.mark.parametrize(("output", "read"), [  # what moses of 2025 writes
    (b"y z |1-2| x |0-0| ", parse_surface),
    (b"|lm=(1:-15.5:unk,2:-3.25)| y z |1-2,wa=0-0 1-1 ,total=-1, Distortion0= 0 LM0= -1.5 -2| x |0-0,wa=,total=-1, LM0= 0| ",
     parse_surface),
    (b"0 ||| y z |1-2| x |0-0|  ||| " + SCORES, in_list),
    (b"0 ||| y z x  ||| " + SCORES + b" ||| 1-2=0-1 0=2", in_list),
    (b"0 ||| y z x  ||| " + SCORES + b" ||| 1-2=0-1 0=2 ||| 0-0 ", in_list),
])  # fmt: skip
def test_all_that_moses_writes_is_read_alike(output: bytes, read: Callable[[bytes], Derivation]) -> None:
    assert read(output) == PHRASES
    check_cover(PHRASES, SOURCE)


@pytest.mark.parametrize("text", [b"", b" ", b"|lm=()| "])
def test_an_empty_line_has_no_phrases(text: bytes) -> None:
    assert parse_surface(text) == ()
    check_cover((), [])


@pytest.mark.parametrize(("output", "read", "found"), [
    (b"y z x", parse_surface, "no phrase segmentation"),
    (b"y z |1-2| x", parse_surface, "no |first-last| after 'x'"),
    (b"0 ||| y z x ||| LM0= 1 ||| 0", in_list, "no phrase segmentation in an n-best list"),
    (b"0 ||| y z x ||| LM0= 1 ||| 0 ||| ", in_list, "no phrase segmentation in an n-best list"),
    (b"0 ||| y x ||| LM0= 1 ||| 0 ||| 1-2=0 0=0", in_list, "the phrase '0=0' does not follow the one before it"),
    (b"0 ||| y x u ||| LM0= 1 ||| 0 ||| 1-2=0 0=2", in_list, "the phrase '0=2' does not follow the one before it"),
    (b"0 ||| y x u ||| LM0= 1 ||| 0 ||| 1-2=0 0=1", in_list, "phrases of 2 words in a target of 3"),
])  # fmt: skip
def test_what_has_no_segmentation(output: bytes, read: Callable[[bytes], Derivation], found: str) -> None:
    with pytest.raises(RowError) as raised:
        read(output)
    assert raised.value.found == found


@pytest.mark.parametrize(("output", "found"), [
    (b"y |1-3| x |0-0|", "phrase |1-3| of a source of 3 words"),
    (b"y |2-1| x |0-0|", "phrase |2-1| of a source of 3 words"),
    (b"y |1-2| x |0-1|", "source word 1 ('b') is in 2 phrases"),
    (b"y |1-1| x |0-0|", "source word 2 ('c') is in no phrase"),
])  # fmt: skip
def test_what_does_not_cover_the_source(output: bytes, found: str) -> None:
    with pytest.raises(RowError) as raised:
        check_cover(parse_surface(output), SOURCE)
    assert raised.value.found == found


def test_spans_that_are_not_closed_take_no_longer() -> None:
    """Each of them once looked for its end through all that follows: minutes for a row of half a megabyte."""
    assert not SPAN.search(b" |0-0,wa=x" * 50_000)
