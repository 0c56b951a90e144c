"""rescore: values against loops over single n-grams and pairs, everything else as it was."""

import gzip
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from small_models import language_model, scaled, scores_of, small_lm, small_nmt

from phrase_rescore import api
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import OptionError
from phrase_rescore.lm.checkpoint import save as save_lm
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.rescoring import run as rescoring
from phrase_rescore.rescoring.models import PairFeature
from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.scorer import Scorer

WORDS = (b"a", b"b", b".", b"the", b"house", b"zebra")
MODEL = language_model()


def hypothesis_log_prob(words: list[bytes]) -> float:
    """The sum over n-grams, one at a time, straight from the module."""
    order, total = MODEL.model.config.order, 0.0
    ids = [*MODEL.vocab.encode(words).tolist(), EOS]
    for i, word in enumerate(ids):
        context = ([EOS] * (order - 1) + ids[:i])[-(order - 1) :]
        total -= MODEL.model(torch.tensor([context]), torch.tensor([word])).item()
    return total


def a_list(segments: int = 12, entries: int = 7, seed: int = 1) -> bytes:
    """A list with segmentation: every source word is a phrase of one target word or of two."""
    rng, lines = np.random.default_rng(seed), []
    for segment in range(segments):
        for _ in range(entries):
            phrases = [rng.choice(WORDS, rng.integers(1, 3)).tolist() for _ in range(3)]
            spans, place = [], 0
            for i, phrase in enumerate(phrases):
                spans.append(b"%d=%d-%d" % (i, place, place + len(phrase) - 1))
                place += len(phrase)
            text = b" ".join(word for phrase in phrases for word in phrase)
            total = round(float(rng.normal()), 4)
            lines.append(b"%d ||| %b  ||| LM0= -3 TM0= -1 -2 ||| %g ||| %b\n" % (segment, text, total, b" ".join(spans)))
    return b"".join(lines)


@pytest.fixture
def lm(tmp_path: Path) -> Path:
    return small_lm(tmp_path / "lm")


def values(data: bytes, label: bytes) -> list[list[float]]:
    found = [re.search(rb" " + label + rb"= ((?:[-\d.e]+ )+)\|\|\|", line) for line in data.splitlines()]
    return [[float(x) for x in match[1].split()] for match in found if match]


def test_a_language_model_scores_hypotheses(run: Run, lm: Path) -> None:
    data = a_list() + b"12 |||  ||| X= 1 ||| 1\n12 ||| a\xff \x00 ||| X= 1 ||| 1\n"  # empty and odd ones, too
    result = run("rescore", "-", "-m", lm, stdin=data)
    assert result.status == 0, result.err
    assert re.sub(rb"CSLM0= [^ ]+ ", b"", result.out) == data
    texts = [line.split(b" ||| ")[1].split() for line in data.splitlines()]
    assert [v[0] for v in values(result.out, b"CSLM0")] == pytest.approx([hypothesis_log_prob(t) for t in texts], rel=1e-5)
    assert "86 entries of 13 segments" in result.err


def test_blocks_and_compression_change_nothing(run: Run, lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = a_list()
    whole = run("rescore", "-", "-m", lm, stdin=data).out
    ranked, best = (run("rescore", "-", option, "-q", stdin=data) for option in ("--sort", "--best"))
    monkeypatch.setattr(rescoring, "BLOCK_ENTRIES", 10)  # a block ends with a segment, of seven entries
    assert run("rescore", "-", "--sort", "-q", stdin=data) == ranked
    assert run("rescore", "-", "--best", "-q", stdin=data) == best
    (tmp_path / "list.gz").write_bytes(gzip.compress(data))
    assert run("rescore", tmp_path / "list.gz", "-m", lm, "-o", tmp_path / "out.gz", "-q") == (0, b"", "")
    found = gzip.decompress((tmp_path / "out.gz").read_bytes())
    assert re.sub(rb"CSLM0= [^ ]+ ", b"", found) == data
    for a, b in zip(values(found, b"CSLM0"), values(whole, b"CSLM0"), strict=True):
        assert a == pytest.approx(b, abs=1e-4)


def test_a_model_of_phrase_pairs_sums_over_the_segmentation(run: Run, model_dir: str, tmp_path: Path) -> None:
    source = [[b"the", b"house", b"is"], [b"old", b"zebra", b"the"]] * 6
    (tmp_path / "source").write_bytes(b"".join(b" ".join(words) + b"\n" for words in source))
    data = a_list()
    result = run("rescore", "-", "-m", model_dir, "--source", tmp_path / "source", stdin=data)
    assert result.status == 0, result.err
    checkpoint = load(model_dir)
    scorer = Scorer(checkpoint)
    for line, (log_p, unknown) in zip(data.splitlines(), values(result.out, b"RNN0"), strict=True):
        segment, text, _, _, spans = line.split(b" ||| ")
        words, expected = text.split(), 0.0
        for span in spans.split():
            at, first, last = map(int, re.split(rb"[=-]", span))
            pair = source[int(segment)][at], b" ".join(words[first : last + 1])
            expected += float(scores_of(scorer, [pair])[0])
        assert log_p == pytest.approx(expected, rel=1e-4)
        assert unknown == sum(word not in checkpoint.tgt_vocab.words for word in words)


def test_a_pair_has_no_less_than_a_column_and_none_without_target_counts(run: Run, model_dir: str, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"the house is\n")
    data = b"".join(
        b"0 ||| %b ||| X= 1 ||| 1\n" % text
        for text in (b"a |0-0| b |1-2|", b"a |0-0| %b |1-2|" % (b"zebra . the " * 15), b"a |0-0| |1-2|")
    )
    result = run("rescore", "-", "-m", model_dir, "--source", tmp_path / "source", stdin=data)
    assert result.status == 0, result.err
    of_a, of_b = scores_of(Scorer(load(model_dir)), [(b"the", b"a"), (b"house is", b"b")])
    log_probs = [log_p for log_p, _ in values(result.out, b"RNN0")]
    assert log_probs == pytest.approx([of_a + of_b, of_a + MIN_LOG_P, of_a], rel=1e-4)


@pytest.mark.parametrize("inverse", [False, True])
def test_both_sides_have_their_usual_shares_of_unknown_words(model_dir: str, inverse: bool) -> None:
    feature = PairFeature(Scorer(replace(load(model_dir), unk_shares=(0.1, 0.2), inverse=inverse)), [])
    assert feature.counts.usual == 0.2, "of hypotheses, whichever side is predicted"
    assert "10.0% in its training" in feature.check_source(Counter([b"qq"]), "source")[0]


def test_several_models_each_with_its_label(run: Run, lm: Path, model_dir: str, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"a b c\n" * 12)
    more = ("-m", lm, "-m", model_dir, "-m", lm, "--source", tmp_path / "source")
    result = run("rescore", "-", *more, stdin=a_list())
    assert re.findall(rb"[A-Z]+\d=", result.out.splitlines()[0]) == [b"LM0=", b"TM0=", b"CSLM0=", b"RNN0=", b"CSLM1="]
    named = run("rescore", "-", *more, "--label", "X", stdin=a_list())
    assert re.findall(rb"[A-Z]+\d*=", named.out.splitlines()[0]) == [b"LM0=", b"TM0=", b"X=", b"RNN0=", b"CSLM1="]


def test_renewing_a_feature(run: Run, lm: Path) -> None:
    once = run("rescore", "-", "-m", lm, stdin=a_list()).out
    refused = run("rescore", "-", "-m", lm, stdin=once)
    assert (refused.status, refused.out) == (1, b"")
    assert "<stdin>:1: " in refused.err
    assert "--replace" in refused.err
    assert "INCOMPLETE" not in refused.err, "nothing was written"
    assert run("rescore", "-", "-m", lm, "--replace", stdin=once).out == once


def test_totals_ranks_and_the_best(run: Run, lm: Path, tmp_path: Path) -> None:
    (tmp_path / "w").write_text("[weight]\nLM0= 0.5\nTM0= 0.1 0.2\nCSLM0= 0.25\n")
    data = a_list()
    scored = run("rescore", "-", "-m", lm, "--weights", tmp_path / "w", stdin=data).out
    of = values(scored, b"CSLM0")
    expected = [-1.5 - 0.5 + 0.25 * v for (v,) in of]
    totals = [float(line.split(b" ||| ")[3]) for line in scored.splitlines()]
    assert totals == pytest.approx(expected, rel=1e-5)
    ranked = run("rescore", "-", "--sort", stdin=scored).out.splitlines()
    lines = scored.splitlines()
    for segment in range(12):
        rows = slice(7 * segment, 7 * segment + 7)
        assert ranked[rows] == sorted(lines[rows], key=lambda line: -float(line.split(b" ||| ")[3]))
    best = run("rescore", "-", "--best", stdin=scored).out.splitlines()
    assert best == [b" ".join(line.split(b" ||| ")[1].split()) for line in ranked[::7]]
    at_once = run("rescore", "-", "-m", lm, "--weights", tmp_path / "w", "--best", stdin=data)
    assert at_once.out.splitlines() == best


def test_totals_that_are_written_alike_are_ranked_as_they_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "w").write_text("[weight]\nLM0= 1\n")
    data = b"0 ||| a ||| LM0= -100.0004 ||| 0\n0 ||| b ||| LM0= -100.0001 ||| 0\n"
    assert run("rescore", "-", "--weights", tmp_path / "w", "--best", stdin=data).out == b"b\n"
    ranked = run("rescore", "-", "--weights", tmp_path / "w", "--sort", stdin=data).out
    assert ranked == b"0 ||| b ||| LM0= -100.0001 ||| -100\n0 ||| a ||| LM0= -100.0004 ||| -100\n"


def test_marks_of_sentences_are_left_out(run: Run, lm: Path) -> None:
    data = b"0 ||| <s> the house </s> ||| X= 1 ||| 1\n0 ||| the house ||| X= 1 ||| 1\n"
    result = run("rescore", "-", "-m", lm, stdin=data)
    assert re.sub(rb"CSLM0= [^ ]+ ", b"", result.out) == data
    assert len(set(map(tuple, values(result.out, b"CSLM0")))) == 1
    assert "warning: CSLM0: <s> and </s> around 1 sentence were left out" in result.err
    refused = run("rescore", "-", "-m", lm, stdin=data.replace(b"the house |", b"the <s> house |"))
    assert "<stdin>:2: '<s>' between words" in refused.err


def test_a_last_line_without_its_end_may_move_up(run: Run) -> None:
    data = b"0 ||| a b ||| LM0= -1 ||| -5\n0 ||| c ||| LM0= -1 ||| -5\n0 ||| the house ||| LM0= -1 ||| -2"
    assert run("rescore", "-", "--sort", stdin=data).out == (
        b"0 ||| the house ||| LM0= -1 ||| -2\n0 ||| a b ||| LM0= -1 ||| -5\n0 ||| c ||| LM0= -1 ||| -5\n"  # equals as they were
    )


def test_words_of_another_language_are_told_of(run: Run, lm: Path, model_dir: str, tmp_path: Path) -> None:
    known = run("rescore", "-", "-m", lm, stdin=b"0 ||| a b . ||| X= 1 ||| 1\n")
    assert "warning" not in known.err
    other = run("rescore", "-", "-m", lm, stdin=b"0 ||| a q q q ||| X= 1 ||| 1\n" * 2)
    found = "CSLM0: 75.0% of the words are unknown to the model, 10.0% in its training"
    told = f"{found}: other language, tokenization, or too little text"
    assert f"phrase-rescore: warning: {told}" in other.err
    (tmp_path / "source").write_bytes(b"the house\n")
    pairs = run("rescore", "-", "-m", model_dir, "--source", tmp_path / "source",
                stdin=b"0 ||| das qq ||| X= 1 ||| 1 ||| 0=0 1=1\n")  # fmt: skip
    assert "RNN0: 50.0% of the words are unknown to the model, 2.0% in its training" in pairs.err


def test_scores_round_to_a_little_more_than_certain(run: Run, tmp_path: Path) -> None:
    for number, log in (("1.0000005", []), ("5e-7", ["--log"])):
        (tmp_path / "p").write_text(f"{number}\n")
        assert run("rescore", "-", "--scores", tmp_path / "p", *log, stdin=b"0 ||| a ||| X= 1 ||| 1\n").status == 0


def test_scores_that_no_good_training_leaves_are_warned_of(run: Run, tmp_path: Path, lm: Path) -> None:
    model = language_model()
    scaled(model.model, 30)
    (tmp_path / "diverged").mkdir()
    save_lm(model, str(tmp_path / "diverged"))
    small_nmt(tmp_path / "nmt", WORDS, WORDS, 1e6)
    (tmp_path / "source").write_bytes(b"a b c\n" * 12)
    said = [run("rescore", "-", "-m", lm, stdin=b"0 ||| a b ||| X= 1 ||| 1\n")]
    said += [run("rescore", "-", "-m", tmp_path / name, "--source", tmp_path / "source", stdin=a_list().replace(b"zebra", b"b"))
             for name in ("diverged", "nmt")]  # fmt: skip
    assert [done.status for done in said] == [0, 0, 0]
    assert ["--learning-rate" in done.err for done in said] == [False, True, True]


def test_a_probability_of_zero_is_not_the_least_that_a_column_holds(run: Run, model_dir: str, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"the\n")
    refused = []
    for sign in (1, -1):  # one of which makes the logit of this word -inf
        checkpoint = load(model_dir)
        word = checkpoint.tgt_vocab.ids[b"das"]
        with torch.no_grad():
            checkpoint.model.decoder.b_G[word] = -3.4e38
            checkpoint.model.decoder.G_l[word] = torch.tensor([sign * 1e38, 0, 0, 0])
        (tmp_path / f"m{sign}").mkdir()
        save(checkpoint, str(tmp_path / f"m{sign}"))
        done = run("rescore", "-", "-m", tmp_path / f"m{sign}", "--source", tmp_path / "source",
                   stdin=b"0 ||| das ||| X= 1 ||| 1 ||| 0=0\n")  # fmt: skip
        refused.append(done.status == 1 and "<stdin>:1: " in done.err and "--learning-rate" in done.err)
    assert sorted(refused) == [False, True]


NEXT = {  # the list, options, and what is proposed
    "dev.nbest -m lm -o out": "tune out --reference",
    "dev.nbest -m lm -o out --source test.en": "rescore out --weights WEIGHTS.INI --best",
    "newstest.nbest -m lm -o out": "rescore out --weights WEIGHTS.INI --best",
    "dev.nbest -m lm -o test.out": "rescore test.out --weights WEIGHTS.INI --best",
    "dev.nbest --sort -o out": "rescore out --best",
    "dev.nbest --weights ini -o out": "rescore out --best",
    "test.nbest --best -o out": "evaluate --set test REFERENCE base=BASELINE.out new=out",
}


@pytest.mark.parametrize(("args", "then"), NEXT.items())
def test_what_to_type_next(run: Run, lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str, then: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dev.nbest", "newstest.nbest", "test.nbest"):
        Path(name).write_bytes(b"0 ||| a ||| LM0= 1 ||| 1\n")
    Path("test.en").write_bytes(b"the\n")
    Path("ini").write_bytes(b"[weight]\nLM0= 1\n")
    assert run("rescore", *args.split()).last_line.startswith(f"phrase-rescore: next: phrase-rescore {then}")


SPARSE = b"0 ||| the house ||| LM0= -2 PL_s1= 1 PL_s2= 0 ||| -1\n0 ||| house ||| LM0= -1 PL_s1= 0 PL_s2= 1 ||| -4\n"


def test_sparse_weights_of_a_weight_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "sparse").write_text("# run5\nPL_s1 1\n\nPL_s2 -3\nLM0 9\n")
    ini = tmp_path / "conf" / "ini"
    ini.write_text("[weight-file]\nsparse\n[weight]\nLM0= 1\n")
    assert run("rescore", "-", "--weights", ini, "--best", "-q", stdin=SPARSE) == (0, b"the house\n", "")  # beside the ini
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sparse").write_text("PL_s1 -1\n")  # of the working directory first, as Moses does
    found = run("rescore", "-", "--weights", ini, "--best", "-q", stdin=SPARSE)
    assert found.out == b"house\n"
    assert "warning: no weight for 1 feature (PL_s2), counted as 0 as sparse features are in Moses" in found.err
    ini.write_text("[weight-add]\nPL_s1= -5\n[weight-file]\nsparse\n[weight]\nPL_s1= 5\nLM0= 1\n")  # which goes before both
    assert run("rescore", "-", "--weights", ini, "--best", stdin=SPARSE).out == b"the house\n"
    late = [b"%d ||| a ||| LM0= 1%b ||| 1\n" % (i, b" PL_x= 1" * (i % 2)) for i in range(4)]  # not dense: some lack it
    monkeypatch.setattr(rescoring, "BLOCK_ENTRIES", 2)
    assert run("rescore", "-", "--weights", ini, stdin=b"".join(late)).status == 0
    (tmp_path / "sparse").write_text("PL_s2 -3\nLM0 9\n")  # of which only the sparse one counts
    ini.write_text("[weight-file]\nsparse\n[weight]\nPL_s1= 5\n")
    assert "no weight of the feature LM0" in run("rescore", "-", "--weights", ini, stdin=SPARSE).err


def test_weights_without_their_feature(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ini").write_text("[weight]\nLM0= 1\nCSLM0= 0.3\nUnknownWordPenalty0= 1\nD0= 0\nPL_a= 1\n")
    for features, lacking in ((b"LM0= -2", "2 features (CSLM0, PL_a)"), (b"LM0= -2 PL_b= 1", "1 feature (CSLM0)")):
        args, data = ("rescore", "-", "--weights", tmp_path / "ini"), b"0 ||| a ||| %b ||| -1\n" % features
        for more in ([], ["--best"]):
            refused = run(*args, *more, stdin=data)
            assert (refused.status, refused.out) == (1, b"")
            assert f"<stdin>: the list lacks {lacking}, which" in refused.last_line
            assert "with -m" in refused.last_line
        forced = run(*args, "--force", stdin=data)
        assert forced.status == 0
        assert f"warning: <stdin>: the list lacks {lacking}, which" in forced.err
    lacks_none = run("rescore", "-", "--weights", tmp_path / "ini", stdin=b"0 ||| a ||| LM0= -2 CSLM0= 1 PL_b= 0 ||| -1\n")
    assert (lacks_none.status, "lacks" in lacks_none.err) == (0, False)


def test_the_fields_of_marian(run: Run, lm: Path, tmp_path: Path) -> None:
    data = b"0 ||| the house ||| 0-0 ||| WordScores= -0.5 -0.1 ||| F0= -0.85 ||| -0.85\n"
    (tmp_path / "w").write_text("[weight]\nF0= 2\nCSLM0= 0\n")
    result = run("rescore", "-", "-m", lm, "--weights", tmp_path / "w", stdin=data)
    assert re.sub(rb" CSLM0= [^ ]+", b"", result.out) == data.replace(b"||| -0.85", b"||| -1.7")
    assert re.search(rb"F0= -0.85 CSLM0= [^ ]+ \|\|\| -1.7$", result.out)


def test_a_source_of_which_the_list_lacks_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescoring, "BLOCK_ENTRIES", 3)  # lines are written three at a time
    source, entry = tmp_path / "source", b"%d ||| a ||| X= 1 ||| 1\n"
    source.write_bytes(b"x\n" * 5 + b"\n" * 20)
    cases = [
        ((0, 2, 3), ["--source", source], b"a\n\na\na\n" + b"\n" * 21, "no entry for 2 of 5 segments; the output has empty"),
        ((0, 1, 2, 3, 4, 6), ["--source", source], b"a\n" * 5 + b"\na\n" + b"\n" * 18, ""),
        ((1, 4), [], b"\na\n\n\na\n", "no entry for 3 of 5 segments; the output has empty"),
        ((1, 2), [], b"\na\na\n", "numbers begin at 0"),
    ]
    for segments, options, expected, warning in cases:
        done = run("rescore", "-", "--best", *options, "-q", stdin=b"".join(entry % i for i in segments))
        assert (done.status, done.out, bool(done.err)) == (0, expected, bool(warning))
        assert warning in done.err
    few = run("rescore", "-", "--best", "--source", source, stdin=entry % 2 + entry % 4)
    assert (few.status, few.out) == (1, b"")
    assert "<stdin>: entries for 2 of 5 lines of the source; " in few.err
    forced = run("rescore", "-", "--best", "--source", source, "--force", stdin=entry % 2 + entry % 4)
    assert (forced.status, forced.out) == (0, b"\n\na\n\na\n" + b"\n" * 20)
    assert "warning: <stdin>: entries for 2 of 5 lines" in forced.err
    Path(source).write_bytes(b"x\n" * 4)
    half = run("rescore", "-", "--best", "--source", source, stdin=entry % 0 + entry % 2)
    assert (half.status, half.out) == (0, b"a\n\na\n\n")


def test_scores_of_any_program(run: Run, lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescoring, "BLOCK_ENTRIES", 10)
    data, p = a_list(), np.random.default_rng(1).uniform(1e-9, 1, 84)
    logs, probabilities = tmp_path / "logs", tmp_path / "p.gz"
    logs.write_text("".join(f"{x:.9g}\n" for x in np.log(p)))
    probabilities.write_bytes(gzip.compress("".join(f"{x:.9g}\n" for x in p).encode()[:-1]))  # a last line without its end
    by_log = run("rescore", "-", "-m", lm, "--scores", logs, "--log", "--label", "CSLM0", "--label", "X", stdin=data)
    assert by_log.status == 0, by_log.err
    assert [x for (x,) in values(by_log.out, b"X")] == pytest.approx(np.log(p), rel=1e-5)
    by_p = run("rescore", "-", "--scores", probabilities, stdin=data)
    assert [x for (x,) in values(by_p.out, b"SCORE0")] == pytest.approx(np.log(p), rel=1e-5)
    assert re.sub(rb"SCORE0= [^ ]+ ", b"", by_p.out) == data
    with pytest.raises(OptionError):
        api.rescore(probabilities, logs, scores=logs)
    logs.write_text("-1\n" * 60 + "x\n" * 24)
    assert "logs:61: 'x'" in run("rescore", "-", "--scores", logs, "--log", stdin=data).err


LIST = a_list()
PLAIN = re.sub(rb" \|\|\| [^|]*\n", b"\n", LIST)  # without its segmentation


def entry(features: bytes = b"X= 1", total: bytes = b"1", text: bytes = b"a") -> bytes:
    return b"0 ||| %b ||| %b ||| %b\n" % (text, features, total)


def cut_off(line: int) -> bytes:
    lines = LIST.splitlines(keepends=True)
    return b"".join(lines[: line - 1]) + lines[line - 1][:9]


FILES = {
    "source": b"a b c\n" * 12, "eleven": b"a b c\n" * 11, "short": b"a b\n" * 12, "german": b"das haus ist alt\n",
    "factors": b"a|X b|Y c|Z\n" * 11 + b"a b c\n", "w": b"[weight]\nX= 1e200\n", "lm-only": b"[weight]\nLM0= 1\n",
    "no-file": b"[weight]\nLM0= 1\n[weight-file]\nnone\n", "bad-file": b"[weight]\nLM0= 1\n[weight-file]\nbad\n",
    "bad": b"PL_s1 1\nPL_s2= 1\n", "two-files": b"[weight-file]\nbad\nbad\n", "lm_0": b"[weight]\nlm_0= 1\n",
    "overwrite": b"[weight]\nLM0= 1\n[weight-overwrite]\nLM0= 2\n", "83": b"0.5\n" * 83, "85": b"0.5\n" * 85,
    "negative": b"0.5\n-0.5\n" * 42, "84": b"0.5\n" * 84,
    "costs": b"0.5\n1.000002\n" * 42, "log-costs": b"0\n31.4\n" * 42, "small-costs": b"0\n2e-6\n" * 42,
    "bom-weight": b"\xef\xbb\xbf[weight]\nLM0= 1\n",
    "lognan": b"-0.5\nnan\n" * 42, "inf-weight": b"[weight]\nX= inf\n",
    "1_0-weight": b"[weight]\nX= 1_0\n", "1_2-weight": b"[weight]\nX= 1 2\n",
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, str, int, list[str]]] = {  # the list, the arguments, the status, what the message names
    "nothing to do": (LIST, "", 2, ["-m", "--weights", "--sort", "--best"]),
    "list and best": (LIST, "--best --sort", 2, ["--best", "--sort"]),
    "no scores": (LIST, "-m lm --log", 2, ["--log", "--scores"]),
    "a label too many": (LIST, "--best --label X", 2, ["1 label", "--label"]),
    "a label that tuners do not take": (LIST, "-m lm --label a_b", 2, ["--label 'a_b'"]),
    "a label twice": (LIST, "-m lm -m lm --label CSLM1", 2, ["CSLM1", "--label"]),
    "no source": (LIST, "-m model", 2, ["-m model", "--source"]),
    "a score without a weight": (LIST, "-m lm --best", 2, ["--best", "--weights", "-m"]),
    "a file without a weight": (LIST, "--scores 84 --best", 2, ["--best", "--weights", "--scores"]),
    "two streams": (LIST, "-m lm --source -", 2, ["'-'", "--source"]),
    "more weights than values": (entry(), "--weights 1_2-weight", 1, ["<stdin>:1: 1 value of X and 2 weights"]),
    "another compression": (LIST, "-m lm -o x.bz2", 2, ["x.bz2", ".gz"]),
    "an empty list": (b"", "-m lm", 1, ["<stdin>: is empty"]),
    "cut off in the first line": (cut_off(1), "-m lm -o out", 1, ["<stdin>:1: 2 fields"]),
    "cut off in the last line": (cut_off(84), "-m lm -o out", 1, ["<stdin>:84: 2 fields"]),
    "no weight of what every entry has": (
        b"0 ||| a ||| lm_0= -2 tm_0= 1 ||| -1\n1 ||| b ||| lm_0= -2 tm_0= 1 PL_x= 1 ||| -1\n", "--weights lm_0", 1,
        ["<stdin>:1: no weight of the feature tm_0"],
    ),
    "no weight of several values": (b"0 ||| a ||| lm_0= 1 tm_0= 1 2 ||| 1\n", "--weights lm_0", 1, ["<stdin>:1: ", "tm_0"]),
    "a source of fewer lines": (LIST, "-m model --source eleven", 1, ["<stdin>:78: segment 11", "11", "--source"]),
    "a source of fewer lines, to choose": (LIST, "--best --source eleven", 1, ["<stdin>:78: segment 11", "11", "--source"]),
    "a source of shorter lines": (LIST, "-m model --source short", 1, ["<stdin>:1: phrase |2-2| of a source of 2 words"]),
    "no segmentation": (PLAIN, "-m model --source source", 1, ["<stdin>:1: no phrase segmentation"]),
    "the other direction": (
        b"0 ||| the house is old ||| X= 1 ||| 1 ||| 0=0-0 1=1-1 2=2-2 3=3-3\n", "-m model --source german -o out", 1,
        ["<stdin>: source and target seem swapped: 100% of the source and 100% of the target"],
    ),
    "a word without the factor": (LIST, "-m factored --source factors", 1, ["<stdin>:78: source word 'a' has no factor 1"]),
    **{f"total {total.decode()}": (entry(total=total), "--best", 1, ["<stdin>:1: "])
       for total in (b"nan", b"inf", b"1_0", b"", b"1e999")},
    "an infinite total": (entry(b"X= 1e200"), "--weights w", 1, ["<stdin>:1: the total"]),
    "an infinite weight": (entry(), "--weights inf-weight", 1, ["inf-weight:2: "]),
    "a weight of Python": (entry(), "--weights 1_0-weight", 1, ["1_0-weight:2: "]),
    "no weight of a feature": (SPARSE, "--weights lm-only --best", 1, ["<stdin>:1: no weight of the feature PL_s1"]),
    "no file of weights": (SPARSE, "--weights no-file --best", 1, ["no-file:4: no file none"]),
    "a bad file of weights": (SPARSE, "--weights bad-file --best", 1, ["bad:2: 'PL_s2= 1'"]),
    "two files of weights": (SPARSE, "--weights two-files --best", 1, ["two-files:3: "]),
    "weights in another section": (SPARSE, "--weights overwrite --best", 1, ["overwrite:4: ", "[weight-overwrite]"]),
    "too few scores": (LIST, "--scores 83", 1, ["83: ends at line 83; <stdin>"]),
    "too many scores": (LIST, "--scores 85", 1, ["85: ", "<stdin>", "84"]),
    "scores below 0": (LIST, "--scores negative", 1, ["negative:2: -0.5", "--log"]),
    "costs": (LIST, "--scores costs", 1, ["costs:2: 1.000002 is above 1", "minus", "--log"]),
    "probabilities as logarithms": (LIST, "--scores 84 --log", 1, ["84:1: 0.5 is above 0", "leave --log out"]),
    "costs as logarithms": (LIST, "--scores log-costs --log", 1, ["log-costs:2: 31.4 is above 0", "minus", "--log"]),
    "small costs": (LIST, "--scores small-costs --log", 1, ["small-costs:2: 2e-6 is above 0", "minus"]),
    "weights after a byte order mark": (entry(), "--weights bom-weight", 1, ["bom-weight:1: ", "byte order mark"]),
    "the scores of a model that diverged": (
        b"0 |||  ||| X= 1 ||| 1\n" + entry(text=b"the house"), "-m diverged", 1, ["<stdin>:1: ", "CSLM0", "--learning-rate"]),
    "those of a translation model": (entry(), "-m diverged-nmt --source source", 1, ["<stdin>:1: ", "NMT0", "--learning-rate"]),
    "those of a model of phrase pairs": (
        LIST, "-m diverged-pairs --source source", 1, ["<stdin>:1: ", "RNN0", "--learning-rate"]),
    "scores that are none": (LIST, "--scores lognan --log", 1, ["lognan:2: 'nan'"]),
    "a label of the list": (LIST, "--scores 84 --label LM0", 1, ["<stdin>:1: ", "LM0", "--replace"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model_dir: str) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    small_lm(folder / "lm")
    (folder / "model").symlink_to(Path(model_dir).absolute())
    (folder / "factored").mkdir()
    save(replace(load(model_dir), factors=(1, None)), str(folder / "factored"))
    small_nmt(folder / "diverged-nmt", WORDS, WORDS, 1e38)
    lm, pairs = language_model(), load(model_dir)
    for name, diverged, write in (("diverged", lm, save_lm), ("diverged-pairs", pairs, save)):
        scaled(diverged.model, 1e38)
        (folder / name).mkdir()
        write(diverged, str(folder / name))  # type: ignore[operator]
    return folder


@pytest.mark.parametrize(("data", "args", "status", "named"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_rescored(run, folder, monkeypatch, data: bytes, args: str, status: int, named: list[str]) -> None:
    monkeypatch.chdir(folder)
    result = run("rescore", "-", *args.split(), stdin=data)
    assert result.status == status
    told = next(line for line in result.err.splitlines() if "error: " in line.lower())
    assert all(name in told for name in named), told
    assert not Path("out").exists()
