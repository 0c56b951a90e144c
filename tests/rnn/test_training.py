import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import scores_of
from small_trainings import Training, files, write_language

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.info.model import ModelInfo
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.rnn.network import CELLS
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.loop import Trainer
from phrase_rescore.training.pair_task import with_other_sources


def trained(folder: Path, name: str = "model", observer: Observer | None = None, **settings: object) -> Checkpoint:
    """Trains on ``pairs.tsv`` of the folder into ``name`` beside it."""
    return Training((str(folder / "pairs.tsv"),), str(folder / name)).but(**settings).run(observer)


@pytest.mark.slow
def test_the_invented_language_is_learnt(tmp_path):
    phrases = write_language(tmp_path / "pairs.tsv")
    trained(tmp_path, learning_rate=6e-3, batch_size=128, max_steps=500, held_out=100)
    checkpoint = load(str(tmp_path / "model"))
    rng = np.random.default_rng(1)
    sample = [phrases[i] for i in rng.permutation(len(phrases))[:50]]
    # every source prefers its own target among all one-word targets and its own words in another order
    scorer, words = Scorer(checkpoint), range(20)
    table = scores_of(scorer, [(b"s%d" % i, b"t%d" % j) for i in words for j in words]).reshape(20, 20)
    assert (table.argmax(1) == np.arange(20)).all()
    several = [p for p in sample if len(set(p)) > 1]
    sources = [" ".join(f"s{w}" for w in p).encode() for p in several]
    straight, turned = (
        scores_of(scorer, list(zip(sources, (" ".join(f"t{w}" for w in q).encode() for q in targets), strict=True)))
        for targets in (several, [(*p[1:], p[0]) for p in several])
    )
    assert (straight > turned).all()


@pytest.mark.slow
def test_the_same_input_and_seed_give_the_same_model_to_the_byte(tmp_path):
    write_language(tmp_path / "pairs.tsv", pairs=300)
    rows = (tmp_path / "pairs.tsv").read_text().splitlines()
    (tmp_path / "shuffled.tsv").write_text("\n".join(rows[::-1] + rows[:50]) + "\n")

    def made(name, seed, inputs="pairs.tsv", threads=2):
        directory = tmp_path / name
        Training((str(tmp_path / inputs),), str(directory)).but(max_steps=30, seed=seed, threads=threads).run()
        return files(directory)

    first, again, other = made("a", 1), made("b", 1), made("c", 2)
    assert first == again
    weights = "model-00001-of-00001.safetensors"
    assert first[weights] != other[weights]
    # order and repetition of rows count for nothing
    assert made("d", 1, "shuffled.tsv")[weights] == first[weights]


def test_the_log_has_a_line_for_every_evaluation_and_the_best_model_is_kept(tmp_path):
    write_language(tmp_path / "pairs.tsv")
    checkpoint = trained(tmp_path, learning_rate=0.02, max_steps=50, eval_every=20)
    records = [json.loads(line) for line in (tmp_path / "model" / "train.log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [20, 40, 50]
    best = min(records, key=lambda record: record["held_out"]["loss"])
    assert checkpoint.training["best_step"] == best["step"]
    assert checkpoint.training["held_out"] == best["held_out"]
    assert checkpoint.training["held_out_other_sources"]["loss"] > best["held_out"]["loss"]


def test_held_out_figures_are_those_of_the_scorer(tmp_path):
    write_language(tmp_path / "pairs.tsv")
    checkpoint = trained(tmp_path, max_steps=20, held_out=100)
    from in_memory_pairs import DistinctPairs, read_pairs

    distinct = DistinctPairs.collect(read_pairs(str(tmp_path / "pairs.tsv")))
    held = [pair for pair, out in zip(distinct.pairs, distinct.held_out(100), strict=True) if out]
    assert len(held) == checkpoint.training["distinct_pairs"]["held_out"] > 0
    log_p = scores_of(Scorer(load(str(tmp_path / "model"))), held)
    words = sum(len(tgt.split()) + 1 for _, tgt in held)
    assert checkpoint.training["held_out"]["loss"] == pytest.approx(-log_p.mean(), abs=1e-4)
    assert checkpoint.training["held_out"]["perplexity"] == pytest.approx(math.exp(-log_p.sum() / words), rel=1e-4)


class Parabola:
    """(x - 3)²: what the loop can train without knowing a network."""

    def __init__(self):
        self.module = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(0.0))])

    def batches(self, first):
        while True:
            yield [1.0, 1.0]

    def parts(self, batch, parts, step=0, done=1.0):
        return [sum(batch) / parts] * parts

    def loss(self, module, part):
        return part * (module[0] - 3.0) ** 2

    def evaluate(self):
        return {"loss": (self.module[0].item() - 3.0) ** 2}


RECIPE = Recipe(learning_rate=0.1, warm_up=0.0, max_steps=200, eval_every=50)


def test_a_cell_brings_its_rate_to_the_default_preset_alone_and_one_that_is_given_counts():
    default, paper = PRESETS["default"], PRESETS["paper"]
    rates = {cell: default.override(cell=cell).recipe.learning_rate for cell in CELLS}
    assert rates["rnn"] < rates["gru"] == default.recipe.learning_rate == default.override(layers=2).recipe.learning_rate
    assert default.override(cell="rnn", learning_rate=0.01).recipe.learning_rate == 0.01
    assert paper.override(cell="rnn").recipe == paper.recipe


def test_the_paper_s_first_step_by_hand():
    """Adadelta: Δx = -√(0 + ε) / √(0.05 g² + ε) g, the gradient of the *sum* clipped at norm 1 first."""
    task = Parabola()
    Trainer(task, replace(PRESETS["paper"].recipe, max_steps=1)).fit()
    g = -1.0  # 2 · 2 · (0 - 3) = -12, clipped
    assert task.module[0].item() == pytest.approx(-math.sqrt(1e-6) / math.sqrt(0.05 * g * g + 1e-6) * g, rel=1e-4)


@pytest.mark.parametrize(("clip", "gradient"), [(0.01, -0.01), (0.5, -0.5), (1e6, -6.0)])  # a shorter one stays as it is
def test_the_clipped_norm_is_the_one_asked_for(clip, gradient):
    task = Parabola()
    Trainer(task, replace(RECIPE, clip=clip)).step([1.0, 1.0], 0.5)
    assert task.module[0].grad.item() == pytest.approx(gradient, rel=1e-3)


def test_rates():
    recipe = replace(RECIPE, warm_up=0.1)
    assert recipe.rate(0.0) == pytest.approx(0.001)
    assert recipe.rate(0.5) == pytest.approx(0.05)
    assert recipe.rate(1.0) == 0.0
    assert replace(RECIPE, decay=False).rate(0.9) == pytest.approx(0.1)


def test_what_stops_training():
    with pytest.raises(OptionError, match="--max-steps or --max-time"):
        Trainer(Parabola(), replace(RECIPE, max_steps=None))
    with pytest.raises(RescoreError, match=r"the loss is (nan|inf) and its gradient (nan|inf) at step 1"):
        task = Parabola()
        task.module[0].data.fill_(math.inf)
        Trainer(task, RECIPE).fit()
    assert Trainer(Parabola(), replace(RECIPE, max_steps=None, max_time=0.05)).fit().steps > 0


def test_patience_waits_for_measurements_alone() -> None:
    task = Parabola()
    task.evaluate = lambda: None  # type: ignore[assignment, method-assign, return-value]
    assert Trainer(task, replace(RECIPE, patience=1, max_steps=9, eval_every=1)).fit().steps == 9


def test_the_control_exchanges_sources_of_equal_length():
    sources = [[2], [3], [4, 5], [6, 7], [4, 5], [8, 9, 9]]
    pairs = EncodedPairs(Ragged.of(sources), Ragged.of([[i] for i in range(2, 8)]))
    exchanged, rows = with_other_sources(pairs)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert exchanged.tgt.ids.tolist() == [2, 3, 4, 5, 6]  # the only source of three words is left out
    new = [tuple(exchanged.src.ids[a:b]) for a, b in zip(exchanged.src.offsets, exchanged.src.offsets[1:], strict=False)]
    assert new == [(3,), (2,), (6, 7), (4, 5), (6, 7)]


@pytest.mark.parametrize(("belong", "steps", "warned"), [
    (True, 100, False), (True, 1, True), pytest.param(False, 100, True, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_model_that_does_not_read_its_source_is_warned_of(tmp_path: Path, belong: bool, steps: int, warned: bool) -> None:
    """Hardly trained, or of a file whose targets slipped from their sources."""
    rng = np.random.default_rng(1)
    sources = [" ".join(f"s{i}" for i in rng.integers(0, 12, 2)) for _ in range(4000)]
    targets = [source.replace("s", "t") for source in sources]
    if not belong:
        rng.shuffle(targets)
    rows = (f"{source} x{i}\t{target}\n" for i, (source, target) in enumerate(zip(sources, targets, strict=True)))
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    said: list[str] = []
    trained(tmp_path, observer=Observer(warn=said.append), max_steps=steps, held_out=30, shortlist=12, learning_rate=0.02)
    assert any(line.startswith("the model hardly reads its source: ") for line in said) is warned


def test_messages_about_unk(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"s{i} x\tt{i}\n" for i in range(40)))
    said: list[str] = []
    trained(tmp_path, observer=Observer(said.append), max_steps=1)
    assert "source: 40 of 41 words are in the shortlist; the 1 rarest are left out to train UNK" in said
    for side in ("source", "target"):
        (tmp_path / f"{side}.vocab").write_text("x\t1\n" + "".join(f"{side[0]}{i}\t1\n" for i in range(40)))
    said.clear()
    vocabs = {name: str(tmp_path / name.replace("_", ".")) for name in ("source_vocab", "target_vocab")}
    checkpoint = trained(tmp_path, "full", Observer(warn=said.append), max_steps=1, **vocabs)
    assert checkpoint.unk_shares == (0.0, 0.0)
    assert sum("UNK is untrained" in line for line in said) == 2


def test_words_counted_over_a_corpus(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b\tc d\nb\td\n")
    (tmp_path / "corpus.src").write_text("a a z z z\n")
    (tmp_path / "corpus.tgt").write_text("d d d c q\n")
    corpus = (str(tmp_path / "corpus.src"), str(tmp_path / "corpus.tgt"))
    trained(tmp_path, "m", shortlist=2, max_steps=1, vocab_corpus=corpus, allow_poor_coverage=True)
    assert (tmp_path / "m" / "target.vocab").read_bytes() == b"d\t3\nc\t1\n"


def write_vocabularies(folder: Path, source: str, target: str) -> dict[str, str]:
    """Words with blanks between to files, and the settings that name them."""
    for side, words in (("source", source), ("target", target)):
        (folder / f"{side}.vocab").write_text("".join(f"{word}\t1\n" for word in words.split()))
    return {f"{side}_vocab": str(folder / f"{side}.vocab") for side in ("source", "target")}


NUMBERED = " ".join(f"c{i}" for i in range(10))
COMMONEST = ", ".join(f"'c{i}' 1" for i in range(9))


@pytest.mark.parametrize(("words", "allowed", "said"), [
    (f"a b {NUMBERED}", False, ""), (f"a b {NUMBERED[:-9]}", False, ""),
    ("a b", False, f"66.7% of the running source words of the pairs; commonest: {COMMONEST}, 'c9' 1"),
    ("a", True, f"33.3% of the running source words of the pairs; commonest: 'b' 10, {COMMONEST}"),
    ("a", False, f"33.3% of the running source words of the pairs; commonest: 'b' 10, {COMMONEST}"),
])  # fmt: skip
def test_given_vocabularies_are_judged_by_the_pairs(tmp_path: Path, words: str, allowed: bool, said: str) -> None:
    """And, when the prepared pairs are found again, of which only numbers are left, without the words that lack."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a b c{i}\tx\n" for i in range(10)))
    given = write_vocabularies(tmp_path, words, "x z")
    found = f"--source-vocab {tmp_path}/source.vocab has {said}"
    heard: list[str] = []
    again = {"observer": Observer(heard.append, heard.append), "max_steps": 1, "pairs_dir": str(tmp_path / "pairs"), **given}
    if words == "a" and not allowed:
        with pytest.raises(OptionError, match=re.escape(f"{found}; give the vocabulary of these pairs, or pass --allow-poor")):
            trained(tmp_path, **again)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.tsv", "source.vocab", "target.vocab"]
        trained(tmp_path, **again | {"allow_poor_coverage": True})
        with pytest.raises(OptionError, match="has 33.3% of the running source words of the pairs; give the"):
            trained(tmp_path, "again", **again)
        return
    trained(tmp_path, allow_poor_coverage=allowed, **again)
    trained(tmp_path, "again", allow_poor_coverage=allowed, **again)
    assert sum(line.startswith("the shortlists have ") and "100.0% of the running target words" in line for line in heard) == 2
    expected = [found, found.partition("; ")[0]] if said else []
    assert [line for line in heard if "--source-vocab" in line] == expected


@pytest.mark.parametrize(("source", "target", "cause"), [
    ("x y", "a b", "source and target are swapped (most are words of the vocabulary of the other side)"),
    ("A B", "x y", "they differ from known words in letter case only"),
    ("a|N b|V", "x y", "the vocabulary's text had factors and the input has none"),
])  # fmt: skip
def test_why_a_given_vocabulary_does_not_fit(tmp_path: Path, source: str, target: str, cause: str) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\tx y\n")
    with pytest.raises(OptionError, match=re.escape(f"likely cause: {cause}")):
        trained(tmp_path, max_steps=1, **write_vocabularies(tmp_path, source, target))
    for name, text in (("corpus.source", source), ("corpus.target", target)):
        (tmp_path / name).write_text(f"{text}\n")
    with pytest.raises(OptionError, match="--vocab-corpus: the source shortlist has 0.0% of the running source words of the"):
        trained(tmp_path, max_steps=1, vocab_corpus=(str(tmp_path / "corpus.source"), str(tmp_path / "corpus.target")))


def test_factors_that_a_vocabulary_lacks(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a|N b|V\tx|N y|V\n")
    given = write_vocabularies(tmp_path, "a b", "x y")
    with pytest.raises(OptionError, match="likely cause: the input has factors and the vocabulary's text had none"):
        trained(tmp_path, max_steps=1, **given)
    trained(tmp_path, max_steps=1, factors=(0, 0), **given)


@pytest.mark.slow
def test_a_training_that_was_too_short_says_so(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"s{i}\tt{i}\n" for i in range(3200)))
    said: list[str] = []

    def told(name: str, **settings: object) -> tuple[float, list[str]]:
        said.clear()
        found = trained(tmp_path, name, Observer(warn=said.append), held_out=0, pairs_dir=str(tmp_path / "pairs"), **settings)
        return found.training["passes"], [line for line in said if "--max-time" in line]

    remedy = "train again with --overwrite and a larger --max-time"
    assert told("a", max_time=1e-9) == (0.0, [f"only 0 steps made: the scores mean little; {remedy}"])
    assert told("b", max_steps=19) == (0.19, [f"only 19 steps made: the scores mean little; {remedy}"])
    assert told("c", max_steps=20) == (0.2, [f"only 20.0 % of the pairs were seen; {remedy}"])
    assert told("d", max_steps=100) == (1.0, [])
    assert told("e", max_steps=1, init_from=str(tmp_path / "d")) == (0.01, [])
    assert "warning      only 19 steps made: the scores mean little" in ModelInfo.read(str(tmp_path / "b")).lines()
    assert not [line for line in ModelInfo.read(str(tmp_path / "d")).lines() if "warning" in line]


def test_precision_is_recorded(tmp_path):
    write_language(tmp_path / "pairs.tsv", pairs=300)
    training = Training((str(tmp_path / "pairs.tsv"),), str(tmp_path / "m")).but(max_steps=12, eval_every=4)
    told: list[str] = []
    found = training.but(precision="bf16").run(Observer(warn=told.append))
    assert found.training["precision"] == "bf16"
    assert found.model.loss_dtype is None
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert any("no bf16 arithmetic" in line for line in told) != has_bf16
    for wrong in ("tf32", "int8", "float16"):
        with pytest.raises(OptionError, match="tf32 is for GPUs" if wrong == "tf32" else "precision: .* is not one of"):
            training.but(model_dir=str(tmp_path / "other"), precision=wrong).run()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_training_on_a_gpu(tmp_path, precision):
    write_language(tmp_path / "pairs.tsv")
    on_gpu = trained(tmp_path, max_steps=200, device="cuda", precision=precision)
    on_cpu = trained(tmp_path, "cpu", max_steps=200)
    found, expected = (checkpoint.training["held_out"]["loss"] for checkpoint in (on_gpu, on_cpu))
    assert found == pytest.approx(expected, rel=0.05)
