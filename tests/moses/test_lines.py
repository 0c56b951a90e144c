"""Lines that somebody writes: what is a phrase or a phrase pair, and what is said of any other line."""

import pytest

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.moses.text import PairReader, PhraseReader, Sentences, parsed_lines


def test_phrases_take_blanks_as_they_come() -> None:
    assert PhraseReader("source")(b"  the   house \r\n") == b"the house"
    assert PairReader()(b" the  house\t das Haus \r\n") == (b"the house", b"das Haus")
    assert PairReader()(b"the house||| das \t Haus ||| 0.5 ||| 0-0\n") == (b"the house", b"das Haus"), "||| before the tab"
    for line in (b"a b\n", b"a\tb\tc\n"):
        with pytest.raises(RowError, match="no phrase pair"):
            PairReader()(line)


@pytest.mark.parametrize(("line", "told"), [
    (b"", "the line is empty"), (b"a ||| b", "'a ||| b' is more than a target phrase"),
    (b"a\tb", "'a\\tb' is more than a target phrase"), (b"a|1 [X]", "non-terminal '[X]' in the target"),
    (b"a|1 b", "target word 'b' has no factor 1"),
])  # fmt: skip
def test_what_is_not_a_phrase(line: bytes, told: str) -> None:
    with pytest.raises(RowError) as caught:
        PhraseReader("target", factor=1)(line)
    assert caught.value.found == told
    if not told.startswith(("the line", "'")):
        with pytest.raises(RowError) as caught:
            PairReader((None, 1))(b"source ||| " + line)
        assert caught.value.found == told


@pytest.mark.parametrize(("line", "found"), [
    (b"the  house\r\n", [b"the", b"house"]), (b"<s> the\thouse </s>\n", [b"the", b"house"]),
    (b"<s> <s> house </s> </s>", [b"house"]),  # add-start-end.sh -r 2
    (b"\xef\xbb\xbf<s> a </s>\n", [b"a"]), (b"\xef\xbb\xbf\r\n", []),
    (b"house </s>", [b"house"]), (b"<s>  </s>\n", []), (b"<unk> a<s> <S>", [b"<unk>", b"a<s>", b"<S>"]),
])  # fmt: skip
def test_marks_around_a_sentence(line: bytes, found: list[bytes]) -> None:
    read = Sentences()
    assert read(line) == found
    assert bool(read.warnings()) == (line.split() != found)


@pytest.mark.parametrize(("lines", "warned"), [
    ([b"a word.\n"] * 21, True), ([b"a word.\n"] * 20, False), ([b"a word.\r\n", b"a word .\r\n"] * 30, False),
    ([b"a word .\n"] * 21, False), ([b"a word ..\n", b"a word...\n", b"a word\n", b"\n"] * 30, False),
    ([b"a word.\n", b"b word.\n", b"a word .\n"] * 30, True),
])  # fmt: skip
def test_text_that_is_not_tokenized_shows_at_its_ends(lines: list[bytes], warned: bool) -> None:
    for tokenize in (None, bytes.lower):
        read = Sentences(tokenize)
        assert [read(line) for line in lines]
        assert bool(read.warnings()) == (warned and not tokenize)


@pytest.mark.parametrize("line", [b"a <s> b", b"<s> a </s> <s> b </s>", b"a <s>", b"</s> a"])
def test_marks_between_words(line: bytes) -> None:
    with pytest.raises(RowError, match="between words; write one sentence a line"):
        Sentences()(line)


def test_a_bad_line_comes_after_what_is_made_of_those_before_it() -> None:
    found = parsed_lines([b"1\n", b"2\n", b"3\n", b"a ||| b\n", b"5\n"], PhraseReader("source"), "<stdin>", 2)
    assert [next(found), next(found)] == [[b"1", b"2"], [b"3"]]
    with pytest.raises(InputError, match="^<stdin>:4: 'a"):
        next(found)
