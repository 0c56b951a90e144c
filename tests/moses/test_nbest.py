"""N-best lists: what is read of an entry, and that all but what is asked for stays, byte for byte."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.moses.hypotheses import as_value, check_label, parse_line, read_entries
from phrase_rescore.rescoring.run import total_by

LINE = b"7 ||| la maison  ||| Distortion0= 0 LM0= -60.2745 TranslationModel0= -0.298612 -11.4589 ||| -6.57365 ||| 0-1=0-1\r\n"


def test_an_entry_is_read() -> None:
    entry = parse_line(LINE)
    assert (entry.segment, entry.hypothesis(), entry.total(), entry.line()) == (7, [b"la", b"maison"], -6.57365, LINE)
    assert entry.features() == {b"Distortion0": [0.0], b"LM0": [-60.2745], b"TranslationModel0": [-0.298612, -11.4589]}
    assert entry.derivation() == ((0, 1, b"la maison"),)


@pytest.mark.parametrize(("before", "after"), [
    (b" LM0= -1 TM0= -2 -3 ", b" LM0= -1 TM0= -2 -3 X= -31.4 1 "), (b" LM0= -1", b" LM0= -1 X= -31.4 1 "),
    (b"LM0= -1 \t ", b"LM0= -1 X= -31.4 1 \t "), (b" ", b" X= -31.4 1 "), (b" XX= -1 Y_X= 3 ", b" XX= -1 Y_X= 3 X= -31.4 1 "),
])  # fmt: skip
def test_a_feature_is_added_at_the_end(before: bytes, after: bytes) -> None:
    found = parse_line(b"0 ||| a |||" + before + b"||| -1\n").with_feature(b"X", [-31.4, 1], False)
    assert found.line() == b"0 ||| a |||" + after + b"||| -1\n"


@pytest.mark.parametrize(("before", "after"), [
    (b" X= 1 LM0= -1 ", b" X= 5 LM0= -1 "), (b" LM0= -1 X= 1 2  3 ", b" LM0= -1 X= 5 "),
    (b" LM0= -1 X=  TM0= -2 ", b" LM0= -1 X= 5  TM0= -2 "), (b" XX= 1 X= 2 YX= 3 ", b" XX= 1 X= 5 YX= 3 "),
])  # fmt: skip
def test_a_feature_is_renewed_where_it_stands(before: bytes, after: bytes) -> None:
    entry = parse_line(b"0 ||| a |||" + before + b"||| -1\n")
    assert entry.with_feature(b"X", [5], True).line() == b"0 ||| a |||" + after + b"||| -1\n"
    with pytest.raises(RowError, match="has a feature X already; overwrite it with --replace"):
        entry.with_feature(b"X", [5], False)


def test_a_total_is_replaced() -> None:
    assert parse_line(LINE).with_total(-7.25).line() == LINE.replace(b"-6.57365", b"-7.25")
    assert parse_line(b"0|||a|||X= 1|||-1").with_total(2).line() == b"0|||a|||X= 1|||2"


@pytest.mark.parametrize(("line", "found"), [
    (b"\n", "'' is not the number of a segment"), (b"a ||| b ||| X= 1 ||| 1\n", "'a' is not the number of a segment"),
    (b"-1 ||| b ||| X= 1 ||| 1\n", "'-1' is not the number"), (b"0 ||| b ||| X= 1\n", "3 fields; an entry has at least four"),
    (b"0 ||| b ||| X= 1 ||", "3 fields"), (b"0 ||| b ||| X= 1 ||| ", "'' is not a number; an entry is 'id ||| words"),
    (b"0 ||| b ||| X= 1_0 ||| 1", "'1_0' is not a number"), (b"0 ||| b ||| 0-0 ||| -1", "'0-0' is not a number"),
    (b"0 ||| b ||| LM0= -1 tm_pt=-2 ||| -1", "'tm_pt=-2' is not a number"),  # Joshua and cdec
    (b"0 ||| b ||| d: 0 lm: -1 ||| -1", "'d:' is not a number"),  # Phrasal
    (b"0 ||| b ||| WordScores= -1 -2 ||| F0= -3 ||| -3 ||| x", "'F0= -3' is not a number"),
    (b"0 ||| b ||| some text ||| F0= -3 ||| -3", "'some' is not a number"), (b"0 ||| b ||| 0.2475", "3 fields"),
    (b"0 ||| b ||| 0.2475 ||| 0.1 0.2", "'0.1 0.2' is not a number"),
    (b"\xef\xbb\xbf0 ||| b ||| X= 1 ||| 1", "'\\ufeff0' is not the number of a segment"),
    (b"6 ||| b ||| X= 1 ||| 1", "segment 6 after segment 7; sort the list"),
])  # fmt: skip
def test_what_is_no_entry(line: bytes, found: str) -> None:
    with pytest.raises(InputError, match=f"list.*5.*{re.escape(found)}"):
        list(read_entries([LINE] * 4 + [line], "list"))


@pytest.mark.parametrize(("line", "hint"), [
    (b"0 ||| a ||| b ||| F0= -1 ||| -1", "&#124;"), (b"0 ||| a ||| b ||| 0-0 ||| F0= -1 ||| -1", "&#124;"),
    (b"0 ||| a ||| lm_0=-28.045 ||| -2", "blank"), (b"0 ||| a ||| lm: -28.0 ||| -2", "blank"),
    (b"0 ||| a ||| b", "cut off"), (b"H\t-0.15\ta b", "fairseq"), (b"S-0\ta b", "fairseq"), (b"a\tb", "cut off"),
])  # fmt: skip
def test_what_to_do_about_what_is_no_entry(line: bytes, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_entries([line], "list"))
    assert (caught.value.path, caught.value.line) == ("list", 1)
    assert hint in caught.value.hint


@pytest.mark.parametrize("before", [
    b" 0-0 1-1 ", b"  ", b" WordScores= -0.5 -1e-05 ", b" 0-0 1-1 ||| WordScores= -0.5 -1 ",
    b" 0.7,0.2 0.1,7e-05 ||| WordScores= 0 ",
])  # fmt: skip
def test_features_after_the_alignment_and_word_scores_of_marian(before: bytes) -> None:
    entry = parse_line(b"0 ||| the house |||" + before + b"||| F0= -0.85 ||| -0.4\n")
    assert (entry.features(), entry.total(), entry.hypothesis()) == ({b"F0": [-0.85]}, -0.4, [b"the", b"house"])
    changed = entry.with_feature(b"X", [-2], False).with_total(-9)
    assert changed.line() == b"0 ||| the house |||" + before + b"||| F0= -0.85 X= -2 ||| -9\n"
    assert (changed.total(), changed.features()[b"X"]) == (-9, [-2])


def test_values_that_only_pass_through() -> None:
    line = b"5|||a|||d= 0 nan tm= -inf 1e+30|||-1e+30\r\n"
    assert parse_line(line).with_feature(b"X", [1], False).line() == line.replace(b"30|||", b"30 X= 1 |||")
    assert parse_line(b"0 ||| a ||| -1 -2 ||| -3").total() == -3


@pytest.mark.parametrize(("features", "found"), [
    (b"-1 LM0= -1", "the value '-1' has no label; run moses without -labeled-n-best-list false"),
    (b"LM0= x", "'x' is not a number"), (b"LM0= nan", "'nan' is not a number"),
    (b"LM0= 1 LM0= 1", "the label 'LM0=' is used twice"),
])  # fmt: skip
def test_features_that_cannot_be_weighted(features: bytes, found: str) -> None:
    with pytest.raises(RowError, match=re.escape(found)):
        parse_line(b"0 ||| a ||| " + features + b" ||| 1").features()


def test_a_total_is_the_weighted_sum() -> None:
    features = {b"LM0": [-2.0], b"TM0": [1.0, 3.0], b"TM0_sparse": [9.0]}
    missing = Counter[bytes]()
    assert total_by(features, {b"LM0": [0.5], b"TM0": [2, -1], b"other": [7]}, missing) == -2.0
    assert missing == {b"TM0_sparse": 1}
    with pytest.raises(RowError, match="no weight of the feature TM0_sparse; name it in the file of --weights; 'TM0_sp"):
        total_by(features, {b"LM0": [0.5], b"TM0": [2, -1]})
    with pytest.raises(RowError, match="no weight of the feature tm_pt"):
        total_by({b"tm_pt": [1, 2]}, {}, missing)
    assert total_by(features, {b"LM0": [0.5], b"TM0": [2, -1], b"TM0_sparse": [0.1]}) == pytest.approx(-1.1)
    with pytest.raises(RowError, match="no weight of the feature TM0"):
        total_by(features, {b"LM0": [0.5]})
    with pytest.raises(RowError, match="2 values of TM0 and 1 weight"):
        total_by(features, {b"LM0": [0.5], b"TM0": [2]})


@given(st.floats(-999_999, 999_999))
def test_values_are_those_that_the_tuner_takes(value: float) -> None:
    """scripts/training/mert-moses.pl, sanity check of n-best lists."""
    written = as_value(value)
    assert re.fullmatch(rb"-?[-0-9.\-e]+", written)
    assert float(written) == pytest.approx(value, rel=1e-5, abs=1e-300)


def test_labels() -> None:
    check_label(b"CSLM0")
    for label in (b"", b"0LM", b"LM_0", b"a b", b"X=", "é".encode()):
        with pytest.raises(OptionError, match="--label"):
            check_label(label)
