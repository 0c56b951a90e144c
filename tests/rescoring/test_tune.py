"""tune: a list worked by hand, the line search against a grid, counts against sacrebleu's, what rescore makes of weights."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from phrase_rescore import api
from phrase_rescore.cli import terminal
from phrase_rescore.errors import OptionError
from phrase_rescore.evaluation.metrics import Metric
from phrase_rescore.messages import silent
from phrase_rescore.rescoring import tune
from phrase_rescore.rescoring.lists import Lists, chosen, weights_of_totals
from phrase_rescore.rescoring.tune import as_written, best_step, bleu, gain_over, tuned

REFERENCE = ("the house is small .", "a b c d", "e f g h")
WORDS = ("the", "house", "is", "small", ".", "a", "b")


def entry(segment: int, text: str, total: float, **features: float) -> str:
    return f"{segment} ||| {text} ||| {' '.join(f'{label}= {value:g}' for label, value in features.items())} ||| {total:g}\n"


BY_HAND = "".join([
    entry(0, "the house is small .", -1, LM=-1, TM=0, Same=2),  # right if TM counts for more than LM
    entry(0, "the house is is .", 0, LM=0, TM=-2, Same=2),
    entry(1, "a b x d", 1, LM=1, TM=-3, Same=1),
    entry(1, "a b c d", 0, LM=0, TM=-1, Same=1),  # right if w(LM) < 2 w(TM)
    entry(2, "e f g h", 3, LM=3, TM=1, Same=0),  # right if LM counts for anything
    entry(2, "e f g x", 0, LM=0, TM=1, Same=0),
])  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ref").write_text("".join(f"{line}\n" for line in REFERENCE))
    return tmp_path


def weights(ini: bytes) -> dict[str, list[float]]:
    comment, section, *lines = ini.decode().splitlines()
    assert comment.startswith("# phrase-rescore tune ")
    assert section == "[weight]"
    return {label: [float(value) for value in values.split()] for label, values in (line.split("= ") for line in lines)}


def test_a_list_worked_by_hand(run: Run, here: Path) -> None:
    """The totals are LM's values and choose right in the last segment alone. All are right where 0 < LM < 2 TM."""
    Path("list").write_text(BY_HAND)
    result = run("tune", "list", "--reference", "ref", "-o", "ini")
    assert result.status == 0, result.err
    found = weights(Path("ini").read_bytes())
    assert list(found) == ["LM", "TM", "Same"]
    (lm,), (tm,), (same,) = found.values()
    assert (lm > 0, lm < 2 * tm, same) == (True, True, 0)
    assert lm + tm == pytest.approx(1, abs=2e-6)
    said = result.err
    assert "6 entries of 3 segments" in said
    matches, words = np.array([11, 6, 3, 1]), np.array([13, 10, 7, 4])  # of "the house is is .", "a b x d", "e f g h"
    assert f"BLEU {100 * np.exp(np.log(matches / words).mean()):.2f} by the totals of the lists, 100.00 by the new" in said
    assert "BLEU over weights tuned without TM, judged on the halves" in said
    assert "within noise" in said
    best = run("rescore", "list", "--weights", "ini", "--best")
    assert best.out.decode().splitlines() == list(REFERENCE)
    assert "next: phrase-rescore rescore TEST.NBEST -m MODEL ... --source TEST.SOURCE --weights ini --best -o" in said


def test_the_share_that_is_done(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a minute in a log, here after every climb: two of all segments, two of each half, on the way to the gain."""
    monkeypatch.setattr(terminal, "LOG_SECONDS", 0.0)
    Path("list").write_text(BY_HAND)
    said = run("tune", "list", "--reference", "ref", "-o", "ini", "--restarts", 1).err
    shares = [int(share) for share in re.findall(r"^phrase-rescore: tuning: (\d+)%, ", said, re.MULTILINE)]
    assert (sorted(set(shares)), shares[-1]) == ([0, 25, 50, 67, 83, 92, 100], 100)
    alone = run("tune", "list", "--reference", "ref", "-o", "ini", "--restarts", 1, "--weights", "none", "--overwrite").err
    assert re.findall(r"tuning: (\d+)%, .* left\n", alone)[-1] == "100"


def random_lists(segments: int = 9, entries: int = 8, features: int = 3, seed: int = 1) -> str:
    rng, lines = np.random.default_rng(seed), []
    for segment in range(segments):
        for _ in range(entries - segment % 3):
            values = {f"F{i}": round(float(rng.normal()), 3) for i in range(features)}
            text = " ".join(rng.choice(WORDS, int(rng.integers(4, 8))))
            lines.append(entry(segment, text, round(values["F0"] - 0.5 * values["F1"], 4), **values))
    return "".join(lines)


def arrays(lines: str, references: list[tuple[str, ...]]) -> Lists:
    rows, count = [line.split(" ||| ") for line in lines.splitlines()], Metric("bleu", references).segment_counts
    return Lists(
        np.array([int(row[0]) for row in rows]),
        np.array([[float(word) for word in row[2].split() if not word.endswith("=")] for row in rows]),
        np.array([count(int(row[0]), row[1]) for row in rows], float),
        np.array([float(row[3]) for row in rows]),
    )


RANDOM = [("the house is small . a", "a b the house is small") * 5, ("a house is small",) * 10]


@pytest.mark.parametrize("tokenize", ["none", "13a", "char"])
def test_counts_and_scores_are_those_of_sacrebleu(tokenize: str) -> None:
    texts = ["", "the", "a a a a a b", "the house is small . a", "The house, is small...", "\u3000a b  the house is  ", "b"]
    texts.append(texts[3] + 6 * " a")  # longer than any reference
    references = [["the house is small . a"] * len(texts), ["a b the house is small, a a"] * len(texts)]
    metric = BLEU(tokenize=tokenize, force=True)
    count = Metric("bleu", references, tokenize=tokenize).segment_counts
    expected = metric._extract_corpus_statistics(texts, references)
    assert [count(i, text) for i, text in enumerate(texts)] == expected
    sums = np.array([*expected, np.sum(expected, 0), np.sum(expected[1:3], 0)], float)
    assert bleu(sums).tolist() == pytest.approx([metric._compute_score_from_stats(list(row)).score for row in sums])
    whole = sums[sums[:, 2:6].all(1)]  # where nothing is smoothed
    assert [tune.expected_bleu(row).item() for row in torch.from_numpy(whole)] == pytest.approx(bleu(whole).tolist())


def test_a_line_search_finds_the_best_of_a_grid() -> None:
    lists = arrays(random_lists(), RANDOM)
    places, rng = lists.places(), np.random.default_rng(2)
    features, counts, rows = lists.features[places], lists.counts[places], np.arange(len(places))
    grid = np.tan(np.linspace(-1.5707, 1.5707, 4_001))
    for _ in range(10):
        a, b = (features @ rng.normal(size=3) for _ in range(2))
        best = bleu(counts[rows, (a + grid[:, None, None] * b).argmax(2)].sum(1)).max()
        step, score = best_step(a, b, counts)
        assert score >= best - 1e-9
        assert score == pytest.approx(float(bleu(counts[rows, (a + step * b).argmax(1)].sum(0))))
        twice = np.concatenate([a, a]), np.concatenate([b, b]), np.concatenate([counts, counts[::-1]])  # change at one γ
        step, score = best_step(*twice)
        chosen = twice[2][np.arange(2 * len(rows)), (twice[0] + step * twice[1]).argmax(1)]
        assert score == pytest.approx(float(bleu(chosen.sum(0))))


def test_weights_are_as_good_as_the_best_of_many() -> None:
    lists = arrays(random_lists(entries=14, features=7), RANDOM)
    places, rng, start = lists.places(), np.random.default_rng(3), np.ones(7)
    found = [tuned(lists, start, restarts, 1, silent) for restarts in range(4)]
    assert np.abs(found).sum(1) == pytest.approx(1)
    apart = 10.0 ** np.arange(7)
    scaled = lists._replace(features=lists.features * apart)
    found += [apart * tuned(scaled, found[-1] / apart, 0, seed, silent) for seed in (1, 2)]
    flat = map(torch.from_numpy, (lists.features, lists.counts, lists.segment, start))
    along, reached = tune.searched(lists.features[places], lists.counts[places], start, rng)
    totals = np.vstack([start, tune.climbed(*flat, 30), *found, along, rng.normal(size=(2000, 7))]) @ lists.features.T
    scores = bleu(lists.counts[places[np.arange(len(places)), totals[:, places].argmax(2)]].sum(1)).tolist()
    assert scores[0] < scores[1]  # uphill
    assert scores[2:8] == sorted(scores[2:8])  # a restart loses nothing, nor does a good start
    assert scores[2] < scores[5] <= scores[7] == max(scores)
    assert scores[8] == pytest.approx(reached)


def test_the_weights_of_the_totals() -> None:
    lists = arrays(random_lists(), RANDOM)
    made = weights_of_totals(lists)
    assert made is not None
    assert made / made[0] == pytest.approx([1, -0.5, 0])
    unknown = lists.features @ [1, -0.5, 0] - 1000.0 * (lists.segment % 2)  # ten unknown words, which no feature counts
    with_unknown = lists._replace(totals=np.array([float(f"{total:.6g}") for total in unknown]))
    made = weights_of_totals(with_unknown)
    assert made is not None
    assert made / made[0] == pytest.approx([1, -0.5, 0], abs=0.01)
    assert weights_of_totals(with_unknown._replace(features=lists.features[:, [0, 2]])) is None
    lists.features[40, 1] = -1e8  # "impossible"; its total has six digits
    far = lists._replace(totals=np.array([float(f"{total:.6g}") for total in lists.features @ [1, -0.5, 0]]))
    made = weights_of_totals(far)
    assert made is not None
    assert made / made[0] == pytest.approx([1, -0.5, 0], abs=1e-3)
    assert weights_of_totals(lists._replace(totals=np.random.default_rng(1).normal(size=len(lists.totals)))) is None


def test_a_gain_is_that_over_weights_tuned_without_the_new_features() -> None:
    lists = arrays(random_lists(), RANDOM)
    places, start = lists.places(), np.array([1.0, 2.0, -3.0])
    signs = np.where(lists.segment % 2, 1, -1)  # of the weights that the other half of the segments gives

    def score(totals: NDArray[np.float64]) -> float:
        return float(bleu(lists.counts[places[np.arange(len(places)), totals[places].argmax(1)]].sum(0)))

    def of_half(half: Lists, start: NDArray[np.float64]) -> NDArray[np.float64]:
        return start if np.array_equal(half.totals, lists.totals[lists.segment % 2 == 0]) else -start

    gain, p = gain_over(lists, np.array([0, 1]), start, of_half)
    assert gain == pytest.approx(score(signs * (lists.features @ start)) - score(signs * (lists.features[:, :2] @ start[:2])))
    assert 0 < p < 1
    for gain, p, verdict in ((1, 0.01, "beyond noise"), (-1, 0.01, "a loss"), (1, 0.06, "within noise")):
        assert tune.TuneSummary(gain=gain, p=p).lines()[-1].endswith(verdict)


def judged_lists(new: Callable[[int, bool, np.random.Generator], float], seed: int, segments: int = 60) -> tuple[str, str]:
    """Return a list with a feature F, of some use, that made the totals, and ``new``, of segment and rightness; references."""
    rng, lines, references = np.random.default_rng(seed), [], []
    for segment in range(segments):
        reference = list(rng.choice(WORDS, 8))
        references.append(" ".join(reference) + "\n")
        right = int(rng.integers(6))
        for k in range(6):
            words = [word if k == right or rng.random() < 0.5 else str(rng.choice(WORDS)) for word in reference]
            F = round(float(rng.normal() + (k == right)), 3)
            lines.append(entry(segment, " ".join(words), F, F=F, New=round(new(segment, k == right, rng), 3)))
    return "".join(lines), "".join(references)


def gain_and_p(said: str) -> tuple[float, float]:
    found = re.search(r"gain (\S+) BLEU over weights tuned without New, .*\(p = (\S+)\)", said)
    assert found, said
    return float(found[1]), float(found[2])


@pytest.mark.slow
def test_noise_is_not_called_a_gain(run: Run, here: Path) -> None:
    by_chance = 0
    for seed in range(10):
        lists, references = judged_lists(lambda segment, right, rng: float(rng.normal()), seed)
        Path("list").write_text(lists)
        Path("ref").write_text(references)
        result = run("tune", "list", "--reference", "ref", "--restarts", 2)
        assert result.status == 0, result.err
        gain, p = gain_and_p(result.err)
        by_chance += gain > 0 and p < 0.05
    assert by_chance <= 1


@pytest.mark.slow
def test_what_is_learnt_from_a_half_is_judged_on_the_other(run: Run, here: Path) -> None:
    """New says what is right in one half, and what is wrong in the other: judged where it was tuned it would gain 20 BLEU."""
    for says_right, gains in (([1, 1], True), ([1, -1], False)):
        lists, references = judged_lists(lambda i, right, rng, says=says_right: float(right * says[i % 2]), 3)  # type: ignore[misc]
        Path("list").write_text(lists)
        Path("ref").write_text(references)
        gain, p = gain_and_p(run("tune", "list", "--reference", "ref", "--restarts", 2).err)
        assert (gain > 10, gain < 0, p < 0.05) == (gains, not gains, True)


@pytest.mark.parametrize(("few", "decides"), [(2, False), (3, True)])
def test_what_differs_in_a_few_segments_gets_no_weight(run: Run, here: Path, few: int, decides: bool) -> None:
    """Else its weight, learnt from these alone, might outweigh all others. LM is right but in the first, few, of 200."""
    Path("long").write_text("".join(f"{REFERENCE[i % 3]}\n" for i in range(200)))
    lines = []
    for i in range(200):
        lines += [f"{i} ||| x y z ||| LM= {int(i < few)} TM= 0 {int(i < few)} ||| {int(i < few)}\n"]
        lines += [f"{i} ||| {REFERENCE[i % 3]} ||| LM= 1 TM= 0 0 ||| 1\n"]
    Path("list").write_text("".join(lines))
    result = run("tune", "list", "--reference", "long", "-o", "ini")
    assert result.status == 0, result.err
    found = weights(Path("ini").read_bytes())
    assert found["LM"][0] > 0
    assert (found["TM"][0], found["TM"][1] < 0) == (0, decides)
    assert f": {'TM 1' if decides else 'TM 1, TM 2'}: the same in all entries" in result.err


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_lists_are_merged(run: Run, here: Path) -> None:
    lines = random_lists().splitlines(keepends=True)
    lines.append(re.sub(r"F2= \S+", "F2= 7", lines[-1]))  # the same hypothesis by another derivation
    Path("ref").write_text("the house is small . a\na b the house is small\n" * 5)
    Path("other").write_text("a house is small\n" * 10)
    Path("list").write_text("".join(lines))
    Path("even").write_text("".join(lines[::2]))
    Path("odd").write_text("".join(lines[1::2] + lines[-1:]))
    for out in ("first", "again"):
        said = run("tune", "list", "--reference", "ref,other", "--restarts", 3, "-q", "-o", out, "--force").err
        assert "phrase-rescore: warning: no entry for 1 line of the reference; BLEU is of the others\n" in said
    assert Path("first").read_bytes() == Path("again").read_bytes()
    merged = run("tune", "even", "odd", "--reference", "ref,other", "--restarts", 3, "-o", "merged", "--force")
    assert f"{len(lines)} entries of 9 segments" in merged.err
    score = re.search(r"(\S+) by the new weights", merged.err)
    again = run("tune", "list", "--reference", "ref,other", "--weights", "merged", "--restarts", "0", "-o", "last", "--force")
    assert score
    assert float(re.search(r"(\S+) by the new weights", again.err)[1]) >= float(score[1])  # type: ignore[index]


@pytest.mark.parametrize(("lines", "said"), [
    ("", "list: is empty; pass an n-best list"),
    (BY_HAND + entry(3, "a", 0, LM=1, TM=1, Same=1), "list: its last segment is 3, but ref has 3 lines; give"),
    (BY_HAND + entry(2, "a", 0, LM=1, Same=1), "list:7: 0 values of TM where the first entry has 1; tune needs the same"),
    (BY_HAND + entry(2, "a", 0, LM=1, TM=1, Same=1, dT_x=1), "list:7: 1 value of dT_x where the first entry has 0"),
    ("0 ||| a |||  ||| 1\n", "list:1: no features; pass a list with labelled features, as in F0= -3.2"),
    ("0 ||| a ||| LM= 1 ||| 1\n0 ||| b ||| LM= 1 ||| 1\n", "list: all entries of a segment have the same features"),
    ("0 ||| a ||| LM= 1 ||| x\n", "list:1: 'x' is not a number"),
])  # fmt: skip
def test_lists_that_cannot_be_used(run: Run, here: Path, lines: str, said: str) -> None:
    Path("list").write_text(lines)
    result = run("tune", "list", "--reference", "ref", "-o", "ini", "--force")
    assert result.status == 1
    assert said in result.last_line
    assert not Path("ini").exists()


def test_references_and_weights_that_do_not_fit(run: Run, here: Path) -> None:
    Path("list").write_text(BY_HAND)
    Path("short").write_text("a\n")
    assert "short: 1 line where ref has 3; outputs and" in run("tune", "list", "--reference", "ref,short").err
    assert run("tune", "list", "--reference", "ref,").status == 2
    assert "both '-', standard input" in run("tune", "-", "--reference", "-").err
    for text in ("LM= 1 2", "LM= 1 2\nTM=", "X= 1"):
        Path("ini").write_text(f"[weight]\n{text}\n")
        assert "error: ini: the weights " in run("tune", "list", "--reference", "ref", "--weights", "ini").err
    with pytest.raises(OptionError):
        api.tune("list", "ref", "ini", weights="ini")


def tuned_with(run: Run, *more: object) -> tuple[str, dict[str, list[float]]]:
    result = run("tune", "list", "--reference", "ref", "--restarts", 2, "-o", "ini", "--overwrite", *more)
    assert result.status == 0, result.err
    return result.err, weights(Path("ini").read_bytes())


def best_bleu(run: Run, ini: str = "ini") -> float:
    """Return BLEU of what rescore chooses by the weights, counted by sacrebleu."""
    texts = run("rescore", "list", "--weights", ini, "--best").out.decode().splitlines()
    return BLEU(tokenize="none", force=True).corpus_score(texts, [Path("ref").read_text().splitlines()]).score


def bleu_of(said: str) -> tuple[float, float]:
    found = re.search(r"BLEU (\S+) by the totals of the lists, (\S+) by the new weights", said)
    assert found, said
    return float(found[1]), float(found[2])


@pytest.mark.slow
def test_without_a_new_feature_there_is_nothing_to_gain(run: Run, here: Path) -> None:
    """The totals may be of weights that were tuned on all of this text: to compare halves with them would not be fair."""
    lists, references = judged_lists(lambda i, right, rng: float(rng.normal()), 5)
    Path("ref").write_text(references)
    Path("list").write_text("".join(line.rsplit("|||", 1)[0] + f"||| {total(line):.6g}\n" for line in lists.splitlines()))
    refused = run("tune", "list", "--reference", "ref", "-o", "ini")
    assert (refused.status, "run" in refused.last_line, "--weights none" in refused.last_line) == (1, False, True)
    assert not Path("ini").exists()
    said, _ = tuned_with(run, "--weights", "none")
    assert "no gain can be told" in said
    Path("before").write_text("[weight]\nF= 1\n")  # what it lacks is new
    gain_and_p(tuned_with(run, "--weights", "before")[0])
    Path("before").write_text("[weight]\nF= 1\nNew= 0.2\n")
    assert "no gain can be told" in tuned_with(run, "--weights", "before")[0]
    Path("list").write_text(lists)
    Path("before").write_text("[weight]\nF= 1\nNew= 0\n")  # as tune writes what so few segments differ in: not lacking
    assert "BLEU over weights tuned without New" in tuned_with(run, "--weights", "before")[0]
    Path("before").write_text("[weight]\nF= 0\nNew= 1\n")
    assert "BLEU over weights tuned without New" in tuned_with(run, "--weights", "before")[0]
    Path("list").write_text("".join(line.rsplit("|||", 1)[0] + f"||| {i % 7}\n" for i, line in enumerate(lists.splitlines())))
    assert "no gain can be told" in tuned_with(run)[0]  # totals of another decoder


def total(line: str) -> float:
    F, new = (float(value) for value in re.findall(r"= (\S+)", line))
    return F + 0.3 * new


@pytest.mark.slow
def test_lists_whose_totals_have_several_scales(run: Run, here: Path) -> None:
    """New is noise. Beside totals that are mixed it would seem to gain."""
    lists, references = judged_lists(lambda i, right, rng: float(rng.normal()), 6)
    lines = lists.splitlines(keepends=True)
    Path("ref").write_text(references)
    Path("list").write_text(lists)
    alone = run("tune", "list", "--reference", "ref", "--restarts", 2)
    twentieth = [re.sub(r"\S+$", lambda total: f"{float(total[0]) / 20:.6g}", line) for line in lines]
    Path("list").write_text("".join(lines[::2]))
    Path("small").write_text("".join(twentieth[1::2]))
    both = run("tune", "small", "list", "--reference", "ref", "--restarts", 2)
    assert bleu_of(both.err)[0] == bleu_of(alone.err)[0]
    gain, p = gain_and_p(both.err)
    assert gain < 0 or p > 0.05


@pytest.mark.parametrize("impossible", [*(pytest.param(value, marks=pytest.mark.slow) for value in (-1e4, -1e8)), -1e10])
def test_a_value_that_stands_for_impossible(run: Run, here: Path, impossible: float) -> None:
    """One value far off all others must not make them the same, nor take the digits of the weights."""
    lists, references = judged_lists(lambda i, right, rng: float(right) + 0.3 * float(rng.normal()), 7, segments=120)
    Path("ref").write_text(references)
    lines = lists.splitlines(keepends=True)
    wrong = next(i for i, line in enumerate(lines) if float(re.findall(r"= (\S+)", line)[1]) < 0)
    lines[wrong] = re.sub(r"New= \S+", f"New= {impossible:.0f}", lines[wrong])
    Path("list").write_text(lists)
    usual, _ = tuned_with(run)
    Path("list").write_text("".join(lines))
    said, found = tuned_with(run)
    assert bleu_of(said)[1] == pytest.approx(bleu_of(usual)[1], abs=0.5)
    assert 0.1 < found["New"][0] < 1
    assert best_bleu(run) == pytest.approx(bleu_of(said)[1], abs=0.006)


def test_among_equal_totals_the_first_entry_is_chosen() -> None:
    """A matrix product gives equal rows totals that may differ in the last digit."""
    rng, sizes = np.random.default_rng(8), [13] * 59 + [10]
    segment = np.repeat(np.arange(len(sizes)), sizes)
    lists = Lists(segment, rng.normal(size=(len(sizes), 9))[segment], np.zeros((len(segment), 10)), np.zeros(len(segment)))
    for _ in range(20):
        assert (chosen(lists.features, rng.normal(size=9), lists.places()) == np.unique(segment, return_index=True)[1]).all()


def test_weights_are_written_with_the_digits_that_matter() -> None:
    features, places = np.array([[1.0, 0.0], [0.0, 1.0000001]]), np.array([[0, 1]])
    values, best = as_written(np.array([0.50000004, 0.49999996]), features, places)
    assert (values, best.tolist()) == ([b"0.50000004", b"0.49999996"], [0])
    assert as_written(np.array([2 / 3, 1 / 3]), features, places)[0] == [b"0.666667", b"0.333333"]


def test_a_half_with_nothing_to_tune_on(run: Run, here: Path) -> None:
    lists, references = judged_lists(lambda i, right, rng: float(right), 9, segments=8)
    lines = [re.sub(r"F= .*", "F= 1 New= 1 ||| 1", line) if i // 6 % 2 else line for i, line in enumerate(lists.splitlines())]
    Path("list").write_text("\n".join(lines))
    Path("ref").write_text(references)
    said, found = tuned_with(run)
    assert "no gain can be told: half" in said
    assert np.isfinite([*found["F"], *found["New"]]).all()
    Path("list").write_text(re.sub(r"F= \S+ (.*) \S+\n", r"F= 1 \1 1\n", lists))  # before New the first entries are chosen
    Path("before").write_text("[weight]\nF= 1\n")
    gain, _ = gain_and_p(tuned_with(run, "--weights", "before")[0])
    assert gain > 0


def test_a_list_of_another_number_of_segments_is_found_first(run: Run, here: Path) -> None:
    Path("list").write_text(BY_HAND)
    Path("ref").write_text("".join(f"{line}\n" for line in (*REFERENCE, "one more")))
    result = run("tune", "list", "--reference", "ref", "-o", "ini")
    assert (result.status, "list: " in result.last_line, Path("ini").exists()) == (1, True, False)
    assert "no entry for 1 line" in tuned_with(run, "--force")[0]
    Path("ref").write_text("".join(f"{line}\n" for line in (*REFERENCE, "")))  # Moses writes no entries of empty lines
    assert "warning" in tuned_with(run)[0]


WRONG = {
    "the source": lambda lines: [" ".join(f"{word}o" for word in line.split()) for line in lines],
    "moved by a line": lambda lines: [*lines[1:], lines[0]],
    "of another text": lambda lines: [" ".join(line.split()[::2]) for line in reversed(lines)],
    "what moses -t wrote": lambda lines: [f"{line} |0-7|" for line in lines],
    "SGML": lambda lines: [f'<seg id="{i}">{line}</seg>' for i, line in enumerate(lines)],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_reference_of_something_else_is_refused_before_the_work(run: Run, here: Path, name: str) -> None:
    rng = np.random.default_rng(10)
    vocabulary = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "on", "us")]
    lines = [" ".join(rng.choice(vocabulary, 8)) for _ in range(60)]
    entries = [
        entry(i, f"{line} {end}", -len(end), F=-len(end), New=len(end)) for i, line in enumerate(lines) for end in ("a", "to")
    ]
    Path("list").write_text("".join(entries))
    Path("right").write_text("".join(f"{line} to\n" for line in lines))
    Path("ref").write_text("".join(f"{line}\n" for line in WRONG[name](lines)))
    assert run("tune", "list", "--reference", "right", "--weights", "none", "--restarts", 0, "-o", "ini").status == 0
    refused = run("tune", "list", "--reference", "ref", "--weights", "none", "-o", "other")
    assert (refused.status, Path("other").exists()) == (1, False)
    assert refused.last_line.startswith(("phrase-rescore: error: ref", "phrase-rescore: error: list"))
    forced = run("tune", "list", "--reference", "ref", "--weights", "none", "--restarts", 0, "-o", "other", "--force")
    assert forced.status == 0 or name == "SGML"


def test_pieces_of_words_are_warned_of_and_not_judged(run: Run, here: Path) -> None:
    words = [f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "klmn"]
    lines = [[*words[i:], *words[:i]][:10] for i in range(40)]
    Path("ref").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    pieces = [" ".join(f"{word[0]}@@ {word[1:]}" for word in line) for line in lines]
    Path("list").write_text(
        "".join(entry(i, f"{text} {end}", 0, F=len(end)) for i, text in enumerate(pieces) for end in ("a", "to"))
    )
    done = run("tune", "list", "--reference", "ref", "--weights", "none", "--restarts", 0, "-o", "ini")
    assert (done.status, "warning: list: it has pieces of words" in done.err) == (0, True)
