"""rescore: the list and what is given with it are compared before a model is loaded; what hardly can be right is doubted."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from conftest import SOURCE_WORDS, TARGET_WORDS, Run
from small_models import small_lm, small_nmt

from phrase_rescore.api import rescore
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.rescoring.models import TextFeature
from phrase_rescore.rnn.scorer import Scorer

ENTRY = b"%d ||| das haus ||| X= 1 ||| 1\n"
LIST = b"".join(ENTRY % i * 2 for i in range(12))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files for a list of 12 segments, and with what no model loads from."""
    monkeypatch.chdir(tmp_path)
    Path("list").write_bytes(LIST)
    Path("from-1").write_bytes(b"".join(ENTRY % i for i in range(1, 13)))
    Path("list.gz").write_bytes(gzip.compress(LIST))
    Path("cut.gz").write_bytes(gzip.compress(LIST)[:-20])
    for lines in (11, 12, 13):
        Path(f"source{lines}").write_bytes(b"the house\n" * lines)
        Path(f"p{2 * lines}").write_text("0.5\n" * 2 * lines)
    Path("cut").write_bytes(LIST[:-20])
    Path("unsorted").write_bytes(ENTRY % 1 * 2 + ENTRY % 0 + ENTRY % 1)
    Path("empty").write_bytes(b"")
    Path("trailing").write_bytes(b"the house\n" * 12 + b"\n" * 9)
    Path("utf16").write_bytes(("the house\n" * 12).encode("utf-16"))
    Path("within").write_bytes(b"the house\n" * 5 + b"the </s> house\n" + b"the house\n" * 6)
    Path("broken").mkdir()
    return tmp_path


@pytest.mark.parametrize(("args", "named"), {
    "more segments": ("list --source source11", ["list: ", "11", "source11"]),
    "fewer segments": ("list.gz --source source13", ["list.gz: ", "11", "source13 has 13 lines", "--force"]),
    "numbers from 1": ("from-1 --source source12", ["from-1: ", "begin at 0"]),
    "fewer scores": ("list --scores p22", ["p22: 22 lines", "24"]),
    "more scores": ("list.gz --scores p26", ["p26: 26 lines", "24"]),
    "cut off": ("cut.gz --source source12", ["cut.gz: ", "cut off"]),
    "cut off in the last line": ("cut --source source12", ["cut:24: ", "cut off"]),
    "not sorted": ("unsorted --source source12", ["unsorted:3: segment 0 after segment 1"]),
    "empty": ("empty --source source12", ["empty: is empty"]),
    "no list": ("p24 --source source12", ["p24:1: '0.5' is not the number"]),
    "another encoding": ("list --source utf16", ["utf16: ", "UTF-16"]),
    "marks within": ("list --source within", ["within:6: ", "</s>"]),
}.values())  # fmt: skip
def test_files_are_compared_before_models_are_loaded(run: Run, here: Path, args: str, named: list[str]) -> None:
    refused = run("rescore", *args.split(), "-m", "broken")
    assert (refused.status, refused.out) == (1, b"")
    assert all(name in refused.last_line for name in named), refused.err
    assert "broken" in run("rescore", "list", "--source", "trailing", "--scores", "p24", "-m", "broken").last_line


def test_short_lines_with_numbers_are_a_text(run: Run, here: Path) -> None:
    Path("text").write_bytes(b"the 0.5\n0-0\nthe\t3\n")
    done = run("rescore", "-", "--best", "--source", "text", stdin=ENTRY % 0 + ENTRY % 1 + ENTRY % 2)
    assert done.status == 0, done.err


def test_a_list_that_ends_early_may_be_wanted(run: Run, here: Path) -> None:
    forced = run("rescore", "list", "--best", "--source", "source13", "--force")
    assert (forced.status, forced.out) == (0, b"das haus\n" * 12 + b"\n")
    assert "warning: list: its last segment is 11, but source13 has 13 lines" in forced.err


PLACES = {  # the end of an entry of a source of three words, and what is named
    "phrases": (b" ||| 0-1=0-0 2=1", ""), "a phrase beyond": (b" ||| 0-1=0-0 3=1", "|3-3|"),
    "a word without": (b" ||| 0-1=0-1", "source word 2"), "points": (b" ||| 0-1=0-0 2=1 ||| 0-0 2-1", ""),
    "a point beyond": (b" ||| 0-0 4-1", "word 4"), "the end of Marian": (b" ||| 0-0 3-2", ""), "nothing": (b"", ""),
    "other words": (b" ||| x=1 0=0", "")
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("end", "named"), PLACES.values(), ids=PLACES)
def test_phrases_and_alignments_fit_the_source(run: Run, here: Path, stream: bool, end: bytes, named: str) -> None:
    data = ENTRY % 0 + ENTRY.replace(b"\n", b"%b\n") % (1, end)
    Path("list").write_bytes(data)
    Path("source").write_bytes(b"the house\nthe old house\n")
    small_nmt(Path("nmt"), SOURCE_WORDS, TARGET_WORDS)
    for more in (["--best"], ["-m", "nmt"]):
        args = ("rescore", "-" if stream else "list", "--source", "source", *more)
        done = run(*args, stdin=data)
        assert (done.status, bool(done.out)) == ((1, False) if named else (0, True))
        assert not named or ("<stdin>:2: " if stream else "list:2: ") in done.last_line
        assert named in done.last_line
        assert run(*args, "--force", stdin=data).status == 0


def test_phrases_may_be_written_twice(run: Run, here: Path) -> None:
    """With -t and -include-segmentation-in-n-best Moses writes both."""
    Path("source").write_bytes(b"the old house\n")
    entry = b"0 ||| das |0-1| haus |2-2| ||| X= 1 ||| 1 ||| %b\n"
    for surface, status in ((b"|2-2|", 0), (b"|1-2|", 1)):
        Path("list").write_bytes(entry.replace(b"|2-2|", surface) % b"0-1=0-0 2=1")
        assert run("rescore", "list", "--best", "--source", "source").status == status


def texts(lines: int, seed: int = 1) -> tuple[list[bytes], bytes]:
    """A text of lines of 1 to 30 words, and a list of its translations, a fifth longer or shorter."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 31, lines)
    of_list = np.maximum(1, np.round(lengths * rng.uniform(0.8, 1.2, lines))).astype(int).tolist()
    entries = [b"%d ||| %b ||| X= 1 ||| 1\n" % (i, b" ".join([b"das"] * n)) for i, n in enumerate(of_list)]
    return [b" ".join([b"word%d" % i, *[b"the"] * (n - 1)]) + b"\n" for i, n in enumerate(lengths.tolist())], b"".join(entries)


@pytest.mark.parametrize("stream", [True, False])
def test_lengths_show_another_text(run: Run, here: Path, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.rescoring.run.BLOCK_ENTRIES", 9)  # of a stream as many blocks as it takes
    source, data = texts(60)
    Path("list").write_bytes(data)
    args = ("rescore", "-" if stream else "list", "--best", "--source", "text")
    Path("text").write_bytes(b"".join(source))
    right = run(*args, stdin=data)
    assert (right.status, "warning" in right.err) == (0, False)
    for other in (source[::-1], source[1:] + source[:1], texts(60, 2)[0]):
        Path("text").write_bytes(b"".join(other))
        refused = run(*args, stdin=data)
        assert (refused.status, refused.out) == (1, b"")
        assert "lengths" in refused.last_line
        assert "--force" in refused.last_line
        forced = run(*args, "--force", stdin=data)
        assert (forced.status, forced.out) == (0, right.out)
        assert "warning: " in forced.err


def test_lengths_tell_nothing_of_few_lines_or_of_lines_alike(run: Run, here: Path) -> None:
    few, twice = texts(48), (texts(30)[0] * 2, texts(60, 2)[1])
    entries = [b"%d ||| %b ||| X= 1 ||| 1\n" % (i, b"das " * (1 + i % 3)) for i in range(99)]
    alike = [b"word%d house%b\n" % (i, b" the" * (i == 90)) for i in range(99)], b"".join(entries)
    for source, data in (few, twice, alike):
        Path("text").write_bytes(b"".join(source[::-1]))
        Path("list").write_bytes(data)
        for path in ("-", "list"):
            done = run("rescore", path, "--best", "--source", "text", stdin=data)
            assert done.status == 0, done.err


def test_a_source_of_unknown_words_is_named_before_the_work(run: Run, here: Path, model_dir: str) -> None:
    small_nmt(Path("nmt"), SOURCE_WORDS, TARGET_WORDS)
    Path("other").write_bytes(b"la maison\n" * 12)
    spans = LIST.replace(b"||| 1\n", b"||| 1 ||| 0=0 1=1\n")
    bad = spans.replace(b"11 ||| das haus ||| X= 1 ||| 1", b"11 ||| das haus ||| X= 1 ||| nan")
    for model, label in (("nmt", "NMT0"), (model_dir, "RNN0")):
        for source, found in (("source12", False), ("other", True)):
            said = run("rescore", "-", "-m", model, "--source", source, stdin=spans).err
            assert (f"{label}: 100.0% of the source words are unknown to the model, 2.0% in its training" in said) == found
    cut = run("rescore", "-", "-m", "nmt", "--source", "other", stdin=bad + b"11 |||")
    assert cut.status == 1
    assert "100.0% of the source words" in cut.err, "before the work"


def test_a_text_of_the_target_is_no_source(run: Run, here: Path, model_dir: str) -> None:
    small_nmt(Path("nmt"), SOURCE_WORDS, TARGET_WORDS)
    Path("german").write_bytes(b"das haus\n" * 60)
    Path("few").write_bytes(b"das haus\n" * 12)
    data = b"".join(ENTRY.replace(b"||| 1\n", b"||| 1 ||| 0=0 1=1\n") % i for i in range(60))
    for model in ("nmt", model_dir):
        refused = run("rescore", "-", "-m", model, "--source", "german", stdin=data)
        assert (refused.status, refused.out) == (1, b"")
        assert "german: seems to be text of the target: " in refused.last_line
        assert "100% are unknown to the model as source words, 0% as target words" in refused.last_line
        told = run("rescore", "-", "-m", model, "--source", "few", stdin=data[: data.index(b"12 |||")])
        assert (told.status, "likely cause: source and target are swapped" in told.err) == (0, True), "too few words to refuse"


def test_the_bar_says_what_is_done(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what is read, which takes no time: a model scores for minutes what is read in a moment."""
    monkeypatch.setattr("phrase_rescore.rescoring.run.BLOCK_ENTRIES", 4)
    small_lm(Path("lm"))
    heard, values = list[str](), TextFeature.values
    monkeypatch.setattr(TextFeature, "values", lambda *of_block: heard.append("scored") or values(*of_block))
    rescore("list", "out", "lm", on_read=lambda n: heard.append("nothing" if n == 0 else "all" if n == len(LIST) else "some"))
    assert heard == ["scored", "all", *["scored", "nothing"] * 5]


def test_marks_around_lines_of_the_source_are_left_out(run: Run, here: Path) -> None:
    small_nmt(Path("nmt"), SOURCE_WORDS, TARGET_WORDS)
    Path("marked").write_bytes(b"<s> the house </s>\r\n" * 12)
    done = [run("rescore", "list", "-m", "nmt", "--source", name) for name in ("source12", "marked")]
    assert done[0].out == done[1].out
    assert ["<s> and </s> around 12 sentences" in of_source.err for of_source in done] == [False, True]
    Path("marked").write_bytes("\ufeffthe house\n".encode() + b"the house\n" * 11)
    after_mark = run("rescore", "list", "-m", "nmt", "--source", "marked")
    assert after_mark.out == done[0].out
    assert "warning: marked: a byte order mark before 1 line was left out" in after_mark.err
    marked = LIST.replace(b"das haus", b"<s> das haus </s>")
    of_list = run("rescore", "-", "-m", "nmt", "--source", "source12", stdin=marked)
    assert of_list.out.replace(b"<s> ", b"").replace(b" </s>", b"") == done[0].out
    assert "NMT0: <s> and </s> around" in of_list.err


def test_a_batch_is_a_block_of_the_list(run: Run, here: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the list is."""
    monkeypatch.setattr("phrase_rescore.rescoring.run.BLOCK_ENTRIES", 4)
    small_nmt(Path("nmt"), SOURCE_WORDS, TARGET_WORDS)
    small_lm(Path("lm"))
    sizes: dict[type, list[int]] = {NgramScorer: [], SentenceScorer: [], Scorer: []}

    def watch(scorer: type, name: str) -> None:
        call = getattr(scorer, name)
        monkeypatch.setattr(scorer, name, lambda self, *texts: sizes[scorer].append(len(texts[-1])) or call(self, *texts))

    watch(NgramScorer, "sentences")
    watch(SentenceScorer, "log_probs")
    watch(Scorer, "log_probs")
    data = b"".join(b"%d ||| das %b ||| X= 1 ||| 1 ||| 0=0 1=1\n" % (i // 2, b"haus" if i % 2 else b"alt") for i in range(24))
    models = ("-m", "lm", "-m", "nmt", "-m", model_dir)
    assert run("rescore", "-", *models, "--source", "source12", stdin=data).status == 0
    assert sizes == {NgramScorer: [4] * 6, SentenceScorer: [4] * 6, Scorer: [3] * 6}, "phrase pairs once each"
