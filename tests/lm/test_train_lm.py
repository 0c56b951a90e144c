"""train-lm, from text to a model directory: the same bytes whatever happens on the way, and a model that has learnt."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from small_trainings import Stopped, files

from phrase_rescore import api
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.lm.checkpoint import load
from phrase_rescore.lm.config import PRESETS
from phrase_rescore.lm.network import ngrams_at
from phrase_rescore.lm.train import train_text
from phrase_rescore.training.config import Observer

pytestmark = pytest.mark.slow

SIZES = ["--order", "4", "--embedding", "8", "--hidden", "16", "--batch-size", "64", "--threads", "1"]
NEXT = {b"a": (b"b", b"c"), b"b": (b"a", b"c"), b"c": (b"a", b"b")}  # never the same word twice


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A language of three letters in which every word but the first is one of two, and a sentence is five words long."""
    rng, lines = np.random.default_rng(1), []
    for _ in range(1500):
        words = [rng.choice(list(NEXT))]
        while len(words) < 5:
            words.append(rng.choice(NEXT[bytes(words[-1])]))
        lines.append(b" ".join(map(bytes, words)) + b"\n")
    (tmp_path / "text").write_bytes(b"".join(lines) + b"\n  \nx a\n")
    return tmp_path / "text"


def command(text: Path, model: Path, *more: str) -> list[str]:
    arguments = ["train-lm", str(text), "-m", str(model), *SIZES, "--max-steps", "300", "--eval-every", "20"]
    return [*arguments, "--held-out-share", "0.1", *more]


@pytest.mark.parametrize(("sizes", "near"), [(("--output", "12"), 0.06), ((), 0.1)], ids=["untied", "tied"])
def test_it_learns_a_language(run: Run, text: Path, tmp_path: Path, sizes: tuple[str, ...], near: float) -> None:
    """The best possible perplexity: 1,500 sentences of 6 tokens, of which the first has log 3 nats and four have log 2."""
    more = ("--dropout", "0", "--learning-rate", "0.01", "--order", "6", "--shorten", "0", "--max-steps", "900")
    result = run(*command(text, tmp_path / "lm", *more), *sizes)
    assert result.status == 0, result.err
    best = math.exp((math.log(3) + 4 * math.log(2)) / 6)
    config = json.loads((tmp_path / "lm" / "config.json").read_bytes())
    training = config["training"]
    assert training["held_out"]["perplexity"] == pytest.approx(best, rel=near)
    assert training["sentences"]["training"] + training["sentences"]["held_out"] == 1501
    assert "2 lines without a word left out" in result.err
    assert re.search(r"held-out: [\d.]+ nats per word, perplexity", result.err)
    assert "--max-time" not in result.err, "it was trained enough"
    # log Z: small, and centred on the held-out text
    lm = load(str(tmp_path / "lm"))
    sentences = [line.split() for line in text.read_bytes().splitlines() if line.strip()]
    ids = np.array([word for sentence in sentences for word in (*lm.vocab.encode(sentence), EOS)], np.int32)
    contexts = torch.from_numpy(ngrams_at(ids, np.arange(len(ids)), 6).contexts)
    log_z = (lm.model.hidden(contexts) @ lm.model.G.T + lm.model.b_G).logsumexp(1).numpy()
    assert abs(log_z.mean()) < 0.1
    assert log_z.std() < 0.3
    assert training["log_z"]["deviation"] == pytest.approx(log_z.std(), abs=0.1)


def test_stopped_and_resumed_it_gives_the_same_bytes(run: Run, text: Path, tmp_path: Path) -> None:
    """With other options it is refused. Where there is nothing to resume, training starts."""
    stopped = tmp_path / "stopped"
    assert run(*command(text, tmp_path / "whole", "-q", "--resume")).status == 0

    def stop(step: int, *_: object) -> None:
        if step == 150:
            raise Stopped

    sizes = {"order": 4, "embedding": 8, "hidden": 16, "batch_size": 64, "threads": 1}
    with pytest.raises(Stopped):
        api.train_lm(text, stopped, observer=Observer(on_step=stop), held_out_share=0.1, max_steps=300, eval_every=20, **sizes)
    refused = run(*command(text, stopped, "-q", "--resume", "--dropout", "0.5"))
    assert refused.status == 2
    assert "dropout 0.2 → 0.5" in refused.last_line
    assert run(*command(text, stopped, "-q", "--resume")).status == 0
    assert files(stopped) == files(tmp_path / "whole")
    assert not Path(f"{stopped}.training").exists()


def test_what_is_prepared_is_used_again(run: Run, text: Path, tmp_path: Path) -> None:
    line = command(text, tmp_path / "lm", "--text", str(tmp_path / "encoded"), "--max-steps", "2")
    first = run(*line)
    assert first.status == 0
    assert "only 2 steps made: the scores mean little; train again with --overwrite and a larger --max-time" in first.err
    again = run(*line, "--overwrite")
    assert f"text: found prepared in {tmp_path}/encoded" in again.err
    (tmp_path / "words").write_text("a\t1\nb\t1\n")
    share, few = ("--held-out-share", "0.3"), ("--shortlist", "2")
    for other in (share, (*share, "--held-out", "7"), few, (*few, "--vocab", str(tmp_path / "words"))):
        assert "found prepared" not in run(*line, "--overwrite", *other).err
    with open(text, "a") as stream:
        stream.write("one more\n")
    assert "found prepared" not in run(*line, "--overwrite").err


def test_words_are_chosen(run: Run, text: Path, tmp_path: Path) -> None:
    def known(name: str, *more: str) -> set[bytes]:
        assert run(*command(text, tmp_path / name, "-q", "--max-steps", "2", *more)).status == 0
        return set(load(str(tmp_path / name)).vocab.words)

    assert known("all") == {b"a", b"b", b"c"}  # of four words the rarest teaches UNK
    assert known("often", "--min-count", "2") == {b"a", b"b", b"c"}
    assert len(known("few", "--shortlist", "2")) == 2
    (tmp_path / "words").write_text("a\t1\nq\t1\n")
    assert known("given", "--vocab", str(tmp_path / "words")) == {b"a", b"q"}
    (tmp_path / "words").write_text("<s>\t1\n</s>\t1\na\t1\n<unk>\t3\n<null>\t1\nq\t1\n")  # as other tools list them
    assert known("marks", "--vocab", str(tmp_path / "words")) == {b"a", b"q"}


@pytest.mark.parametrize(("data", "more", "status", "said"), [
    (b"", (), 1, "text: is empty; pass tokenized text in UTF-8, a sentence a line"),
    (b"\n \n", (), 2, "there are no sentences to train on"),
    (b"<unk> <null>\n" * 10, (), 2, "the text has no words but marks such as <unk>; pass tokenized text"),
    (b"a b\n" * 50, ("--vocab", "MARKS"), 1, "MARKS: is empty"),
    (b"a b\n" * 50, ("--preset", "paper"), 2, "hold out more (--held-out; of a text --held-out-share, too)"),
    (b"a b\n" * 50, ("--patience", "3", "--held-out-share", "0"), 2, "--patience 3 needs held-out data"),
    (b"a b\n" * 50, ("--min-count", "99"), 2, "no word occurs 99 times; lower --min-count"),
    (b"a b\n" * 50, ("--vocab", "EMPTY"), 1, "is empty; name the words of the shortlist"),
])  # fmt: skip
def test_what_cannot_be_learnt(run: Run, tmp_path: Path, data: bytes, more: tuple[str, ...], status: int, said: str) -> None:
    (tmp_path / "text").write_bytes(data)
    (tmp_path / "EMPTY").write_bytes(b"")
    (tmp_path / "MARKS").write_bytes(b"<unk>\t3\n")
    given = [str(tmp_path / arg) if arg in ("EMPTY", "MARKS") else arg for arg in more]
    result = run(*command(tmp_path / "text", tmp_path / "lm", *given))
    assert (result.status, result.out) == (status, b""), result.err
    assert said in result.last_line
    assert not (tmp_path / "lm").exists()


def test_odd_text_is_learnt(run: Run, tmp_path: Path) -> None:
    """Few sentences, NUL, bytes that are not UTF-8, CR LF, words spelt like the marks, and no newline at the end."""
    (tmp_path / "text").write_bytes(b"a\x00b \xff\xfe c\r\n<s> <unk> <UNK> c </s>\n\n\xe2\x80\xa8 c c")
    result = run(*command(tmp_path / "text", tmp_path / "lm", "--max-steps", "3"))
    assert result.status == 0, result.err
    vocab = load(str(tmp_path / "lm")).vocab.words
    assert not {b"</s>", b"<s>", b"<unk>", b"<UNK>", b"\r"} & set(vocab)
    assert "warning: too few sentences to hold any out" in result.err
    assert "too few" not in run(*command(tmp_path / "text", tmp_path / "none", "--max-steps", "3", "--held-out-share", "0")).err


def test_a_model_without_shortened_contexts_is_exported_with_a_warning(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*command(text, tmp_path / "lm", "-q", "--max-steps", "2")).status == 0
    assert "warning" not in run("export-lm", "-m", tmp_path / "lm", "-o", tmp_path / "x").err
    assert run(*command(text, tmp_path / "whole", "-q", "--max-steps", "2", "--shorten", "0")).status == 0
    told = run("export-lm", "-m", tmp_path / "whole", "-o", tmp_path / "y").err
    assert "warning: trained with --shorten 0: " in told
    assert "warning" not in run("rescore", "-", "-m", tmp_path / "whole", stdin=b"0 ||| a b ||| X= 1 ||| 1\n").err


def test_bf16_changes_the_products_of_training_alone(text: Path, tmp_path: Path) -> None:
    config = PRESETS["default"].override(
        order=3, embedding=8, hidden=16, output=8, batch_size=50, max_steps=30, threads=1, device="cpu", held_out_share=0.1
    )
    precisions = ("float32", "bf16")
    lms = [train_text([str(text)], str(tmp_path / name), config.override(precision=name), None) for name in precisions]
    exact, low = (lm.training["held_out"]["loss"] for lm in lms)
    assert low == pytest.approx(exact, abs=0.05)
    assert low != exact
    assert all(weight.dtype == torch.float32 for _, weight in lms[1].model.named_weights())
    assert lms[1].model.loss_dtype is None  # what is measured afterwards is in float32
    assert (lms[0].training["precision"], lms[1].training["precision"]) == ("float32", "bf16")


def test_a_finished_model_trains_on(run: Run, text: Path, tmp_path: Path) -> None:
    """From its weights, which are measured before the first step; words that it does not know start at random."""
    assert run(*command(text, tmp_path / "lm", "-q")).status == 0
    first = json.loads((tmp_path / "lm" / "config.json").read_bytes())["training"]
    again = run(*command(text, tmp_path / "again", "--init-from", str(tmp_path / "lm"), "--max-steps", "20"))
    assert "phrase-rescore: 3 of 3 words start from the other model" in again.err.splitlines()
    config = json.loads((tmp_path / "again" / "config.json").read_bytes())["training"]
    assert config["init_from"] == "lm"
    log = [json.loads(line) for line in (tmp_path / "again" / "train.log.jsonl").read_text().splitlines()]
    assert log[0]["step"] == 0
    assert log[0]["held_out"]["loss"] == pytest.approx(first["held_out"]["loss"], abs=1e-6)

    (tmp_path / "words").write_text("q\t1\nc\t1\na\t1\n")
    start = "--vocab", str(tmp_path / "words"), "--init-from", str(tmp_path / "lm")
    said = run(*command(text, tmp_path / "other", *start, "--max-steps", "1", "--learning-rate", "1e-9")).err
    assert "2 of 3 words start from the other model" in said
    old, new = (load(str(tmp_path / name)) for name in ("lm", "other"))
    for word in (b"a", b"c"):
        rows = [lm.model.embedding[lm.vocab.ids[word]] for lm in (old, new)]
        torch.testing.assert_close(*rows, atol=1e-6, rtol=0)
    torch.testing.assert_close(old.model.embedding[-1], new.model.embedding[-1], atol=1e-6, rtol=0)
    a, c = (lm.model.b_G[[lm.vocab.ids[b"a"], lm.vocab.ids[b"c"]]].diff() for lm in (old, new))  # log Z shifts all of them
    torch.testing.assert_close(a, c, atol=1e-6, rtol=0)
    refused = run(*command(text, tmp_path / "x", "--init-from", str(tmp_path / "lm"), "--hidden", "8", "--output", "5"))
    found = "the model to start from is another network; train with --hidden 16 no --output"
    assert (refused.status, refused.last_line) == (2, f"phrase-rescore: error: {found}")
