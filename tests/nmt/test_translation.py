"""train-nmt, and the score that rescore adds: against an oracle with loops, the same bytes whatever happens, clear errors."""

import gzip
import json
import math
import signal
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from numpy.typing import NDArray
from small_trainings import files, write_language

from phrase_rescore.api import train_nmt
from phrase_rescore.data.ragged import EncodedPairs, Ragged, distinct_phrases
from phrase_rescore.data.vocabulary import EOS, Vocabulary
from phrase_rescore.errors import InputError, ModelError
from phrase_rescore.nmt.checkpoint import Translation, load, save
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes, initialise
from phrase_rescore.nmt.scorer import SentenceScorer, _padded_alike
from phrase_rescore.nmt.train import of_like_lengths
from phrase_rescore.nn.packed import pack_pairs
from phrase_rescore.training.config import Observer
from phrase_rescore.training.pairs import PairTask, in_pieces
from phrase_rescore.training.processes import Gradients

Array = NDArray[np.float64]
PAIRS = [([2, 3, 4], [3, 2]), ([2], [4, 4, 4, 1]), ([2, 3, 4], [3, 5]), ([5, 5], []), ([2, 3, 4], [3, 2])]
SMALL = {"hidden": 8, "embedding": 8, "batch_size": 16, "held_out": 100, "threads": 1, "max_steps": 30, "eval_every": 10}
OPTIONS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def small_model(hidden: int = 3, seed: int = 1) -> TranslationModel:
    model = TranslationModel(TranslationSizes(6, 7, hidden, embedding=4), dropout=0.5)
    initialise(model, seed, np.log(np.arange(1, 8) / 28))
    with torch.no_grad():
        for name, weight in model.named_weights():
            if name.endswith((".b", "b_O")):
                weight.copy_(torch.linspace(-1, 1, weight.numel()).view_as(weight))
    return model


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def oracle(model: TranslationModel, src: list[int], tgt: list[int]) -> float:
    """log p by the formulas, word by word."""
    W = {name: weight.detach().double().numpy() for name, weight in model.named_weights()}

    def gru(x: Array, h: Array, cell: str) -> Array:
        (z, r, n), (s, t, m) = np.split(W[f"{cell}.W"] @ x + W[f"{cell}.b"], 3), np.split(W[f"{cell}.U"] @ h, 3)
        z, r = sigmoid(z + s), sigmoid(r + t)
        return np.asarray((1 - z) * np.tanh(n + r * m) + z * h)

    def both_ways(layer: str, xs: list[Array]) -> list[Array]:
        outs = []
        for number, order in ((0, 1), (1, -1)):
            h, states = np.zeros(-(-model.config.hidden // 2)), list[Array]()
            for x in xs[::order]:
                h = gru(x, h, f"{layer}.{number}")
                states.append(h)
            outs.append(states[::order])
        return [np.concatenate(pair) for pair in zip(*outs, strict=True)]

    lower = both_ways("lower", [4 * W["src_embedding"][word] for word in (*src, EOS)])
    annotations = np.stack(lower) + np.stack(both_ways("upper", lower))
    H = model.config.hidden
    h, s, total, x = np.zeros(H), np.zeros(H), 0.0, np.zeros(model.config.embedding)
    for word in (*tgt, EOS):
        h = gru(x, h, "first")
        weights = np.exp(annotations @ (W["Q"] @ h) / math.sqrt(H))
        z = weights @ annotations / weights.sum()
        s = gru(np.concatenate((h, z)), s, "second")
        g = np.tanh(W["O"] @ np.concatenate((s, z, h)) + W["b_O"])
        logits = W["tgt_embedding"] @ g + W["b_G"]
        total += logits[word] - np.log(np.exp(logits).sum())
        x = 4 * W["tgt_embedding"][word]
    return float(total)


@pytest.mark.parametrize("hidden", [1, 3, 4])
def test_scores_are_those_of_the_formulas(hidden: int) -> None:
    model = small_model(hidden)
    assert sum(p.numel() for p in model.parameters()) == sum(weight.numel() for _, weight in model.named_weights())
    wanted = [oracle(model, *pair) for pair in PAIRS]
    pairs = EncodedPairs(Ragged.of([src for src, _ in PAIRS]), Ragged.of([tgt for _, tgt in PAIRS]))
    with torch.no_grad():
        assert -model(*pack_pairs(pairs)).item() == pytest.approx(sum(wanted), abs=1e-4)
    words = [Vocabulary(tuple(b"%d" % i for i in range(2, n)), (1,) * (n - 2)) for n in (6, 7)]
    scorer = SentenceScorer(Translation(model, *words, (0.1, 0.1), {}))
    assert scorer.log_probs(pairs) == pytest.approx(wanted, abs=1e-5)
    for i in range(len(PAIRS)):
        assert scorer.log_probs(pairs.take(np.array([i]))) == pytest.approx([wanted[i]], abs=1e-5)


def test_a_batch_is_bounded_by_its_words_and_the_padded_ones_of_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of one source stay together, however long it is."""
    monkeypatch.setattr("phrase_rescore.nmt.scorer.PADDED", 9)

    def parts(sources: list[list[int]]) -> list[list[int]]:
        src = Ragged.of(sources)
        return [
            part.tolist() for part in _padded_alike(EncodedPairs(src, Ragged.of([[2]] * len(src))), distinct_phrases(src)[1])
        ]

    assert [len(part) for part in parts([[2]] * 5 + [[3] * 5] * 2)] == [5, 2]
    assert [len(part) for part in parts([[2, 2], [3, 3], [4, 4], [5, 5]])] == [3, 1], "nine words fit"
    assert parts([[2], [2], [2, 3], [2] * 20, [2] * 20, [3] * 20]) == [[0, 1, 2], [3, 4], [5]]
    monkeypatch.setattr("phrase_rescore.nmt.scorer.WORDS", 10)
    assert parts([[2] * 3] * 7 + [[3] * 3, [4] * 3]) == [[0, 1], [2, 3], [4, 5, 6, 7], [8]], "the last ones are more"
    assert parts([[2] * 30, [2] * 30, [3] * 30]) == [[0], [1], [2]]


def test_scores_do_not_depend_on_the_order_of_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.nmt.scorer.WORDS", 10)
    sources = [[2], [2], [3, 3], [3, 3], [2] * 20, [2] * 20, [4], [5], [2, 3, 4, 5], [2]]
    sources += [[4, 4]] * 30  # of one source many prefixes, of others one
    model, targets = small_model(), [[3 + i % 3, 2 + i % 4, 3][: i % 4] for i in range(len(sources))]
    words = [Vocabulary(tuple(b"%d" % i for i in range(2, n)), (1,) * (n - 2)) for n in (6, 7)]
    scorer, pairs = (
        SentenceScorer(Translation(model, *words, (0.1, 0.1), {})),
        EncodedPairs(Ragged.of(sources), Ragged.of(targets)),
    )
    found = scorer.log_probs(pairs)
    wanted = [oracle(model, *pair) for pair in zip(sources, targets, strict=True)]
    assert found == pytest.approx(wanted, abs=1e-5)
    order = np.random.default_rng(1).permutation(len(pairs))
    assert scorer.log_probs(pairs.take(order)).tobytes() == found[order].tobytes()


def test_dropout_and_drawn_words_depend_on_their_seeds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.nn.softmax.SURE", 2)
    model, pairs = small_model(), EncodedPairs(Ragged.of([[2, 3]]), Ragged.of([[3, 4]]))
    for place in range(2):
        losses = [model(*pack_pairs(pairs), *[None] * place, seed).item() for seed in ((1, 2), (1, 2), (1, 3), (1, 4), None)]
        assert losses[0] == losses[1]
        assert len(set(losses)) == 4
    drawn = [model(*pack_pairs(pairs), (1, i)).item() for i in range(300)]
    assert np.mean(drawn) == pytest.approx(losses[-1], rel=0.03)  # over all words


def test_what_is_dropped_depends_on_seed_step_and_part() -> None:
    model, pairs = small_model(), EncodedPairs(Ragged.of([[2, 3]] * 4), Ragged.of([[3, 4]] * 4))
    task = PairTask(model, pairs, pairs, 4, seed=1, drops=True)
    first, second = task.parts(pairs, 2, step=7)
    assert (first.seeds, second.seeds) == ((None, (1, 7, 0)), (None, (1, 7, 1)))
    losses = [task.loss(model, part).item() for part in (first, second)]
    assert losses == [model(*pack_pairs(part.pairs), None, part.seeds[1]).item() for part in (first, second)]
    assert losses[0] != losses[1]  # of the same pairs


def long_and_short(seed: int = 1) -> EncodedPairs:
    """Forty pairs of up to five words, and one of sixty."""
    rng = np.random.default_rng(seed)
    sides = [[rng.integers(2, 6, n).tolist() for n in (*rng.integers(0, 6, 40), 60)] for _ in range(2)]
    return EncodedPairs(*map(Ragged.of, sides))


@pytest.mark.parametrize("room", [0, 1, 60_000, 100_000, 1 << 24])
def test_pieces_have_room_and_all_pairs(room: int) -> None:
    pairs = long_and_short()
    pieces = in_pieces(pairs, room)
    longest = [(len(piece), *(int(side.lengths.max()) + 1 for side in (piece.src, piece.tgt))) for piece in pieces]
    assert all(n == 1 or n * (src * tgt + 512 * (src + tgt)) <= room for n, src, tgt in longest) or not room
    assert sum(n for n, *_ in longest) == len(pairs)
    assert sum(len(piece.src.ids) for piece in pieces) == len(pairs.src.ids)
    assert (len(pieces), pieces[0] is pairs) == {0: (1, True), 1: (41, False), 1 << 24: (1, True)}.get(
        room, (len(pieces), False)
    )
    assert 1 < len(pieces) < 41 or room in (0, 1, 1 << 24)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradient_of_pieces_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """And so are the figures that are measured."""
    model, pairs, found = small_model().double(), long_and_short(), []
    model.dropout = 0.0
    for room in (1 << 24, 100_000):
        monkeypatch.setattr("phrase_rescore.training.pairs.ROOM", room)
        monkeypatch.setattr("phrase_rescore.training.pairs._ROOM_MEASURED", room)
        task = PairTask(model, pairs, pairs, 41, seed=1, padded=True)
        gradients = Gradients(model, task, threads)
        cut = task.parts(pairs, gradients.parts)
        loss = gradients(cut, 41)
        gradients.close()
        found.append((loss, [p.grad for p in model.parameters()], task.evaluate(), sum(len(task.pieces(part)) for part in cut)))
    (loss, whole, figures, one), (other, added, measured, several) = found
    assert (one, several > threads) == (threads, True)
    assert other == pytest.approx(loss, rel=1e-9)
    assert measured == pytest.approx(figures, rel=1e-9)
    torch.testing.assert_close(added, whole, rtol=1e-7, atol=1e-10)


def test_pieces_have_seeds_of_their_own() -> None:
    pairs = long_and_short()
    task = PairTask(small_model(), pairs, pairs, 41, seed=1, drops=True, padded=True, sampled=True)
    (part,) = task.parts(pairs, 1, step=7, done=0.0)
    seeds = [piece.seeds for piece in task.pieces(part._replace(room=100_000))]
    assert seeds[0] == part.seeds == ((1, 7, 0), (1, 7, 0))
    assert len(set(seeds)) == len(seeds) > 1
    assert all(len(piece.seeds) == 2 for piece in task.pieces(part))


def test_a_pass_has_every_pair_once_in_minibatches_of_like_lengths() -> None:
    """And a training that continues has the minibatches that one without a stop has."""
    rng = np.random.default_rng(1)
    sides = [Ragged.of([[2] * n for n in rng.integers(1, 30, 640)]) for _ in range(2)]
    numbered = Ragged.of([[i] * n for i, n in enumerate(sides[1].lengths)])
    pairs = EncodedPairs(sides[0], numbered)
    batches = list(islice(of_like_lengths(pairs, 10, 1, 0), 64))
    seen = [int(i) for batch in batches for i in batch.tgt.ids[batch.tgt.offsets[:-1]]]
    assert sorted(seen) == list(range(640))
    assert seen != sorted(seen)
    assert np.mean([np.ptp(batch.tgt.lengths) for batch in batches]) < 3
    means = [batch.tgt.lengths.mean() for batch in batches[:32]]
    assert means != sorted(means)
    for first in (1, 32, 45):
        assert np.array_equal(next(of_like_lengths(pairs, 10, 1, first)).tgt.ids, batches[first].tgt.ids)


def bitext(folder: Path) -> list[str]:
    """Source word i is target word i; some lines have an empty side."""
    write_language(folder / "pairs.tsv", pairs=600)
    rows = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()] + [["s1", ""], ["  ", "t1"]]
    for side, name in enumerate(("e", "f")):
        (folder / name).write_text("".join(row[side] + "\n" for row in rows))
    return [str(folder / "e"), str(folder / "f")]


def test_the_last_weights_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though every measurement is worse than the one before."""
    losses = count(1.0)
    monkeypatch.setattr("phrase_rescore.training.pairs.held_out_figures", lambda *_: {"loss": next(losses), "perplexity": 2.0})
    summary = train_nmt(bitext(tmp_path), tmp_path / "m", **SMALL)
    assert (summary["best_step"], summary["held_out"]["loss"]) == (30, 3.0)


def test_a_training_drops_the_share_that_is_asked_for(tmp_path: Path) -> None:
    inputs = bitext(tmp_path)
    for share in (0.0, 0.5):
        train_nmt(inputs, tmp_path / str(share), **SMALL | {"max_steps": 1, "dropout": share})
    one, other = (files(tmp_path / name)["model-00001-of-00001.safetensors"] for name in ("0.0", "0.5"))
    assert one != other


@pytest.mark.slow
def test_it_learns_a_language(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "nmt"
    sizes = ("--hidden", "32", "--embedding", "16", "--dropout", "0", "--learning-rate", "0.01", "--max-steps", "600")
    result = run("train-nmt", *bitext(tmp_path), "-m", model, *OPTIONS, *sizes, "--eval-every", "100")
    assert result.status == 0, result.err
    training = json.loads((model / "config.json").read_bytes())["training"]
    assert training["held_out"]["perplexity"] < 3  # of 20 words
    rows = (tmp_path / "pairs.tsv").read_text().splitlines()
    assert sum(training["distinct_pairs"].values()) == len(rows), "none with an empty side"
    scorer = SentenceScorer(load(str(model)))
    targets = scorer.encode([[b"t3", b"t7"], [b"t7", b"t3"]], 1)
    right, wrong = scorer.log_probs(EncodedPairs(scorer.encode([[b"s3", b"s7"]] * 2, 0), targets))
    assert right > wrong + 3
    assert "hidden 32, embedding 16" in run("info", model).out.decode()


@pytest.mark.slow
def test_stopped_and_resumed_it_gives_the_same_bytes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.training.pairs.WORTHWHILE", 1)  # words are drawn
    inputs, whole, model = bitext(tmp_path), tmp_path / "whole", tmp_path / "model"
    for path in inputs:
        Path(path + ".gz").write_bytes(gzip.compress(Path(path).read_bytes()))
    assert run("train-nmt", *inputs, "-m", whole, *OPTIONS, "-q").status == 0
    again = tmp_path / "again"
    assert run("train-nmt", *(f"{path}.gz" for path in inputs), "-m", again, *OPTIONS, "-q").status == 0

    def stop(step: int, *_: object) -> None:
        if step == 13:
            signal.raise_signal(signal.SIGINT)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        train_nmt(inputs, model, observer=Observer(on_step=stop), **SMALL)
    signal.signal(signal.SIGINT, usual)
    assert run("train-nmt", "-m", model, "--resume", "-q").status == 0
    weights = [files(path)["model-00001-of-00001.safetensors"] for path in (whole, model, again)]
    assert weights[0] == weights[1] == weights[2]


def test_a_bitext_has_two_files_of_equal_length(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.nmt.train._LINES", 100)
    source, target = bitext(tmp_path)
    model = str(tmp_path / "model")
    assert "name two files" in run("train-nmt", source, "-m", model).err
    assert "standard input" in run("train-nmt", "-", "-", "-m", model).err
    lines = Path(target).read_text().splitlines()
    for short, found in ((len(lines) - 1, f"has {len(lines) - 1} lines, and {source} has more"), (0, "is empty")):
        Path(target).write_text("".join(f"{line}\n" for line in lines[:short]))
        with pytest.raises(InputError, match=f"{target}: {found}"):
            train_nmt((source, target), model, **SMALL)
    Path(target).write_text("".join(f"{line}\n" for line in lines[:-1]))
    with pytest.raises(InputError, match=f"{target}: has {len(lines) - 1} lines, and {source} has more"):
        train_nmt((target, source), model, **SMALL)
    assert not Path(model).exists()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    words = [Vocabulary(tuple(f"{side}{i}".encode() for i in range(n)), (9,) * n) for side, n in (("s", 4), ("t", 5))]
    (tmp_path / "nmt").mkdir()
    save(Translation(small_model(), *words, (0.1, 0.2), {}), str(tmp_path / "nmt"))
    return tmp_path / "nmt"


def test_a_list_gets_the_score_of_each_sentence_pair(run: Run, model: Path, tmp_path: Path) -> None:
    """That of the pair by itself, unknown words included, and of Moses' empty lines and hypotheses."""
    (tmp_path / "source").write_text("s0 s1\n\ns2 s3 s9\n")
    entries = [(0, "t0 t1"), (0, "t0 t2 t2"), (0, "t0 t1"), (1, ""), (2, "t4 new"), (2, "")]
    (tmp_path / "list").write_text("".join(f"{i} ||| {text} ||| LM0= -1 ||| -1\n" for i, text in entries))
    result = run("rescore", tmp_path / "list", "-m", model, "--source", tmp_path / "source")
    assert result.status == 0, result.err
    translation = load(str(model))
    scorer, sources = SentenceScorer(translation), (b"s0 s1", b"", b"s2 s3 s9")
    for line, (i, text) in zip(result.out.decode().splitlines(), entries, strict=True):
        source, target = scorer.encode([sources[i].split()], 0), scorer.encode([text.encode().split()], 1)
        wanted = oracle(translation.model, source.ids.tolist(), target.ids.tolist())
        assert float(line.split("NMT0= ")[1].split()[0]) == pytest.approx(wanted, rel=1e-4)
    assert "--source" in run("rescore", tmp_path / "list", "-m", model).err
    for source, found, told in (
        ("s0", "0 ||| t0 q", "NMT0: 50.0% of the words are unknown to the model, 20.0% in its training"),
        ("s0", "1 ||| t0", "segment 1, but the source has 1"),
        ("t0 t1 t2 t3", "0 ||| s0 s1 s2 s3", "<stdin>: source and target seem swapped"),
    ):
        (tmp_path / "source").write_text(f"{source}\n")
        stdin = f"{found} ||| X= 1 ||| 1\n".encode()
        assert told in run("rescore", "-", "-m", model, "--source", tmp_path / "source", stdin=stdin).err


def test_other_commands_refuse_it_and_it_refuses_other_models(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "table").write_text("s0 ||| t0 ||| 0.5 ||| 0-0 ||| 1 1 1\n")
    result = run("annotate", tmp_path / "table", "-m", model)
    assert (result.status, result.out) == (1, b"")
    assert "sentence pairs, made by train-nmt; this takes a model of phrase pairs, made by train" in result.err
    config = json.loads((model / "config.json").read_bytes())
    (model / "config.json").write_text(json.dumps(config | {"unk_share": {"source": 2, "target": 0}}))
    with pytest.raises(ModelError, match="unk_share"):
        load(str(model))
    (model / "config.json").write_text(json.dumps(config | {"sizes": config["sizes"] | {"hidden": 10**400}}))
    with pytest.raises(ModelError, match="'sizes' need more numbers than any file can hold"):
        load(str(model))
