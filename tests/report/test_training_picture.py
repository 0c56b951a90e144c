"""report without a table: the log of any training as a picture, and in the page of its model."""

import json
import math
import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import Run
from small_trainings import write_language

pytest.importorskip("altair")
pytest.importorskip("vl_convert")
pytest.importorskip("openTSNE")

PER_PAIR = [(500, 65.0, 31.5, 30.25, 20.0), (1000, 190.0, 27.5, 28.5, 18.0), (1500, 300.5, 26.0, 29.0, 19.0)]
PER_WORD = [(0, 0.0, None, 5.5, math.exp(5.5)), (500, 9000.0, 5.25, 5.0, math.exp(5.0))]


def write_log(directory: Path, measured: list) -> None:
    directory.mkdir(exist_ok=True)
    with (directory / "train.log.jsonl").open("w") as stream:
        for step, seconds, loss, held_out, perplexity in measured:
            record = {"step": step, "seconds": seconds, "held_out": {"loss": held_out, "perplexity": perplexity}}
            stream.write(json.dumps(record | ({} if loss is None else {"train_loss": loss})) + "\n")


def drawn(run: Run, directory: Path) -> list[str]:
    """Return the texts of the picture, and check that there is one as PNG."""
    svg, png = (directory.parent / f"loss.{kind}" for kind in ("svg", "PNG"))
    for picture in (svg, png):
        result = run("report", "-m", directory, "-o", picture, "--overwrite")
        assert (result.status, result.last_line) == (0, f"phrase-rescore: wrote {picture}"), result.err
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())


@pytest.mark.parametrize(("measured", "item", "unit", "lowest"), [
    (PER_PAIR, "pair", "minutes", "28.50 at step 1,000"), (PER_WORD, "word", "hours", "5.00 at step 500"),
])  # fmt: skip
def test_the_log_of_a_training_under_way(run: Run, tmp_path: Path, measured: list, item: str, unit: str, lowest: str) -> None:
    write_log(tmp_path / "model.training", measured)
    with (tmp_path / "model.training/train.log.jsonl").open("a") as stream:
        stream.write('{"step": 2000, "sec')  # it is being written
    shown = {f"loss, nats a {item}", unit, "steps", "training", "held-out", f"Lowest held-out loss: {lowest}"}
    assert shown <= set(drawn(run, tmp_path / "model.training"))
    refused = run("report", "-m", tmp_path / "model", "-o", tmp_path / "other.svg")
    assert (refused.status, refused.last_line.split("; ")[-1]) == (2, f"report -m {tmp_path}/model.training draws its losses")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "inputs", "item"), [
    ("train", ["pairs.tsv"], "pair"), ("train-lm", ["tgt"], "word"), ("train-nmt", ["src", "tgt"], "pair"),
])  # fmt: skip
def test_every_kind_of_model(run: Run, tmp_path: Path, command: str, inputs: list[str], item: str) -> None:
    write_language(tmp_path / "pairs.tsv", pairs=900)
    sides = zip(*(line.split("\t") for line in (tmp_path / "pairs.tsv").read_text().splitlines()), strict=True)
    for name, side in zip(("src", "tgt"), sides, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
    options = ["--max-steps", 4, "--eval-every", 2, "--hidden", 8, "--embedding", 8, "--threads", 1, "-q"]
    result = run(command, *(tmp_path / name for name in inputs), "-m", tmp_path / "model", *options)
    assert result.status == 0, result.err
    training = json.loads((tmp_path / "model/config.json").read_bytes())["training"]
    best = f"{training['held_out']['loss']:.2f} at step {training['best_step']}"
    assert {f"loss, nats a {item}", f"Lowest held-out loss: {best}"} <= set(drawn(run, tmp_path / "model"))


def test_a_training_without_held_out_pairs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/train.log.jsonl").write_text('{"step": 60, "seconds": 9, "train_loss": 20.5}\n')
    assert {"No held-out loss", "seconds"} <= set(drawn(run, tmp_path / "model"))


def test_what_cannot_be_drawn(run: Run, tmp_path: Path) -> None:
    directory, out = tmp_path / "model", tmp_path / "loss.svg"
    log = directory / "train.log.jsonl"
    directory.mkdir()
    assert f"error: {log}: No such file" in run("report", "-m", directory, "-o", out).last_line
    write_log(directory, PER_PAIR)
    for option in (["-o", tmp_path / "loss.html"], ["-o", out, "--sample", 200], ["-o", out, "--phi-column", 3]):
        result = run("report", "-m", directory, *option)
        assert (result.status, str(option[-2]) in result.last_line) == (2, True)
    for line in ("[]", "{}", '{"step": 1, "seconds": 1, "train_loss": "x"}', '{"step": 1e999, "seconds": 1}', "\x00"):
        log.write_text('{"step": 1, "seconds": 1, "train_loss": 2}\n' + line + "\n")
        assert f"error: {log}:2: " in run("report", "-m", directory, "-o", out).last_line
    log.write_text("")
    assert f"error: {log}: " in run("report", "-m", directory, "-o", out).last_line
    assert not os.path.exists(out)


@pytest.mark.slow
def test_the_page_of_a_model_has_its_losses(run: Run, model_dir: str, tmp_path: Path) -> None:
    shutil.copytree(model_dir, tmp_path / "model")
    write_log(tmp_path / "model", PER_PAIR)
    (tmp_path / "table").write_text("das ||| the ||| 0.5 0.5 0.5 0.5\nhaus ||| house ||| 0.5 0.5 0.5 0.5\n")
    result = run("report", tmp_path / "table", "-m", tmp_path / "model", "-o", tmp_path / "r.html")
    assert result.status == 0, result.err
    page = (tmp_path / "r.html").read_text("utf-8")
    points = json.loads(re.search(r'data-chart="losses">(.*?)</script>', page, re.S)[1])["datasets"]["points"]
    assert [(point["step"], point["loss"]) for point in points if point["of"] == "held-out"] == [
        (step, held_out) for step, _, _, held_out, _ in PER_PAIR
    ]
