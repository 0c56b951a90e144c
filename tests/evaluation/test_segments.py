"""The words of a set and the lines of its files."""

import gzip
from pathlib import Path

import pytest

from phrase_rescore.errors import OptionError
from phrase_rescore.evaluation.corpora import SetFiles, read_lines, segments_of
from phrase_rescore.moses.text import Look, look, mismatch

USAGE = "a set is NAME REF SYSTEM=OUT …, say, --set dev dev.fr baseline=dev.out"


def test_a_set() -> None:
    found = SetFiles.parse(["dev", "ref1,ref2", "baseline=a", "x=y=b,c", "-=-"])
    assert found == SetFiles("dev", ("ref1", "ref2"), {"baseline": ("a",), "x": ("y=b", "c"), "-": ("-",)})
    assert SetFiles.parse(["dev", "a=x,y", "b=z"]) == SetFiles("dev", (), {"a": ("x", "y"), "b": ("z",)})


@pytest.mark.parametrize(("words", "message"), [
    (["dev"], f"set 'dev' has no reference; {USAGE}"), (["dev", "ref"], f"set 'dev' has no outputs; {USAGE}"),
    (["dev", "", "a=out"], "'' in set 'dev' names an empty file name"),
    (["dev", "ref", "out"], "'out' in set 'dev' is not SYSTEM=OUT; several references are REF,REF"),
    (["dev", "ref", "a="], "'a=' in set 'dev' names an empty file name"),
    (["dev", "ref", "a=x,x"], "'a=x,x' in set 'dev' names x twice"),
    (["dev", "ref", "a=x", "a=y"], "'a' twice in set 'dev'; outputs of several tuning runs are a=OUT,OUT"),
])  # fmt: skip
def test_what_is_no_set(words: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        SetFiles.parse(words)
    assert str(caught.value) == message


def test_a_reference_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    reference = tmp_path / "a=b"
    reference.write_text("x\n")
    assert SetFiles.parse(["dev", str(reference), "a=out"]).references == (str(reference),)


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    """U+2028, U+0085 and form feeds stand in Moses' text; Windows' line ends and the decoder's last blank go."""
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress("a\u2028b\x85c \r\n\n  été\x0cd".encode()))
    assert segments_of("text", read_lines(str(path))) == ("a\u2028b\x85c", "", "  été\x0cd")


@pytest.mark.parametrize("output", [
    b"\ny z |1-2| |3-3| x |0-0| \nd |0-0|\n",  # one without words
    b"\r\ny z |1-2| x |0-0|\r\nd |0-0|\r\n",
    b"||| \ny z |1-2| x |0-0| ||| 1-0 2-1 0-2 \nd |0-0| ||| \n",  # -print-alignment-info
    b"\n|lm=(1:-15.5:unk)| y z |1-2,wa=0-0 1-1 ,total=-1, LM0= -2| x |0-0,wa=,total=-1, LM0= 0| \n|lm=()| d |0-0,wa=| \n",
])  # fmt: skip
def test_outputs_with_phrases(output: bytes) -> None:
    assert segments_of("out", output.splitlines(keepends=True)) == ("", "y z x", "d")


@pytest.mark.parametrize("text", ["", "a |0-0| b", "a |0-0|b", "a 0-0", "a &#124;0-0&#124;"])
def test_text_without_phrases(text: str) -> None:
    assert segments_of("out", [f"{text}\n".encode()] * 2) == (text, text)


def test_looks() -> None:
    assert look(("oui",)) == look(("attends...", "non !")) == Look(None, None)
    assert look(("c&apos; est .",)) == Look(True, True)
    assert look(("c'est.", "oui ?")) == Look(False, False)  # in French a blank stands there anyway
    assert look(("c'est .", "oui.")) == Look(False, None)
    assert look(("&quot;", "c'est", "qu'il", *["oui"] * 30, "non .")) == Look(False, None), "by chance"


def test_texts_that_do_not_go_together() -> None:
    assert mismatch(Look(None, True), Look(True, None)) is None
    assert mismatch(Look(False, True), Look(True, True)) == "it has Moses' escapes and the reference has none"
    assert mismatch(Look(True, True), Look(True, False)) == "the reference is tokenized and it is not"
