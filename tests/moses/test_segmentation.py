from pathlib import Path

import pytest

from phrase_rescore.errors import InputError
from phrase_rescore.moses.hypotheses import SPAN, UsedPhrase, read_derivations

SOURCES = [[b"a", b"b", b"c"], [], [b"d"]]
PHRASES = [(UsedPhrase(1, 2, b"y z"), UsedPhrase(0, 0, b"x")), (), (UsedPhrase(0, 0, b"d"),)]
LM = b"|lm=(1:-15.5:unk,2:-3.25)| "
SCORES = b"Distortion0= 0 LM0= -1.5 ||| -0.5"
OUTPUTS = {  # what moses of 2025 writes
    "-t": b"y z |1-2| x |0-0| \n\nd |0-0| \n",
    "-t -print-alignment-info": b"y z |1-2| x |0-0| ||| 1-0 2-1 0-2 \n||| \nd |0-0| ||| \n",
    "-tt": LM + b"y z |1-2,wa=0-0 1-1 ,total=-1, Distortion0= 0 LM0= -1.5 -2| x |0-0,wa=,total=-1, LM0= 0| \n\n|lm=()| d "
                b"|0-0,wa=0-0 ,total=-100, LM0= 0| \n",
    "-t in an n-best list": b"0 ||| y z |1-2| x |0-0|  ||| %b\n0 ||| z |1-2| x |0-0|  ||| %b\n2 ||| d |0-0|  ||| %b\n"
                            % (SCORES, SCORES, SCORES),
    "segmentation in an n-best list": b"0 ||| y z x  ||| %b ||| 1-2=0-1 0=2\n0 ||| y y  ||| %b ||| 1-2=0 0=1\n"
                                      b"2 ||| d  ||| %b ||| 0=0 ||| 0-0 \n" % (SCORES, SCORES, SCORES),
    "carriage returns": b"y z |1-2| x |0-0|\r\n\r\nd |0-0|\r\n",
}  # fmt: skip


@pytest.mark.parametrize("how", OUTPUTS)
def test_all_that_moses_writes_is_read_alike(how: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(OUTPUTS[how])
    assert read_derivations(str(tmp_path / "out"), SOURCES, "src") == PHRASES


@pytest.mark.parametrize(("output", "said"), [
    (b"y z x\n\nd\n", ":1: no phrase segmentation; run moses with -t"),
    (b"y z |1-2| x\n\nd |0-0|\n", ":1: no |first-last| after 'x'; run moses with -t"),
    (b"y |1-2| x |0-0|\n\n", ": 2 segments where src has 3; every system needs a line for every line of the source"),
    (b"", ": 0 segments where src has 3; every system needs a line for every line of the source"),
    (b"y |1-2| x |0-0|\n\nd |0-0|\n\n", ": 4 segments where src has 3; every system needs a line for every line of the source"),
    (b"y |1-3| x |0-0|\n\nd |0-0|\n", ":1: phrase |1-3| of a source of 3 words; is this the output for this source?"),
    (b"y |2-1| x |0-0|\n\nd |0-0|\n", ":1: phrase |2-1| of a source of 3 words; is this the output for this source?"),
    (b"y |1-2| x |0-1|\n\nd |0-0|\n", ":1: source word 1 ('b') is in 2 phrases; is this the output for this source?"),
    (b"y |1-1| x |0-0|\n\nd |0-0|\n", ":1: source word 2 ('c') is in no phrase; is this the output for this source? "
                                      "(-drop-unknown leaves words out: run moses without it)"),
    (b"y |1-2| x |0-0|\n\n\xe9 |0-0|\n", r":3: '\xe9' is not UTF-8; convert the file with iconv -t UTF-8"),
    (b"0 ||| y z x ||| LM0= 1 ||| 0\n", ":1: no phrase segmentation in an n-best list; "
                                        "run moses with -t, or with -include-segmentation-in-n-best"),
    (b"0 ||| y |1-2| x |0-0| ||| LM0= 1 ||| 0\n0 ||| y\n",
     ":2: '0 ||| y' is not an entry of an n-best list; is the file cut off?"),
    (b"0 ||| y |1-2| x |0-0| ||| LM0= 1 ||| 0\n",
     ": no entry for segment 2 of the n-best list; every line of the source needs one"),
    (b"0 ||| y x ||| LM0= 1 ||| 0 ||| 1-2=0 0=0\n2 ||| d |0-0| ||| LM0= 1 ||| 0\n",
     ":1: the phrase '0=0' does not follow the one before it; is this the output for this source?"),
    (b"0 ||| y x u ||| LM0= 1 ||| 0 ||| 1-2=0 0=1\n2 ||| d |0-0| ||| LM0= 1 ||| 0\n",
     ":1: phrases of 2 words in a target of 3; is this an n-best list of moses?"),
])  # fmt: skip
def test_what_is_no_segmented_output_of_the_source(output: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(output)
    with pytest.raises(InputError) as raised:
        read_derivations(str(tmp_path / "out"), SOURCES, "src")
    assert str(raised.value) == f"{tmp_path / 'out'}{said}"


def test_spans_that_are_not_closed_take_no_longer() -> None:
    """Each of them once looked for its end through all that follows: minutes for a row of half a megabyte."""
    assert not SPAN.search(b" |0-0,wa=x" * 50_000)
