"""examples/quality.py measures what the training measured: on the same pairs, in the same direction, of the same factors."""

import json
import random
import re
import runpy
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow

SIZES = ["--hidden", 8, "--embedding", 8, "--maxout", 4, "--rank", 4, "--max-steps", 20, "--threads", 1, "--held-out", 60, "-q"]
OPTIONS = {
    "plain": [], "inverse": ["--inverse"], "factors": ["--source-factor", 1, "--target-factor", 0],
    "inverse factor": ["--inverse", "--source-factor", 0, "--target-factor", 1], "min count": ["--min-count", 2],
    "max length": ["--max-length", 2],
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words of two factors; some pairs seen once, some phrases of one to four words."""
    draw, rows = random.Random(5), dict[str, str]()
    for _ in range(6000):
        words = [draw.randrange(40) for _ in range(draw.randint(1, 4))]
        src = " ".join(f"s{w}|S{w % 9}" for w in words)
        tgt = " ".join(f"t{w}|T{w % 7}" for w in words[: draw.randint(1, 4)])
        phi, joint = draw.randrange(1, 9), draw.choice((1, 2, 30))
        rows[f"{src} ||| {tgt}"] = f"0.{phi} 0.5 0.{9 - phi} 0.5 ||| 0-0 ||| 9 9 {joint}"
    path = tmp_path_factory.mktemp("quality") / "table"
    path.write_text("".join(f"{pair} ||| {scores} ||| |||\n" for pair, scores in sorted(rows.items())))
    return path


def quality(monkeypatch: pytest.MonkeyPatch, *args: object) -> None:
    monkeypatch.setattr(sys, "argv", ["quality.py", *map(str, args)])
    runpy.run_path(str(ROOT / "examples" / "quality.py"), run_name="__main__")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_measures_what_the_training_measured(run, table, tmp_path, monkeypatch, capsys, options) -> None:
    result = run("train", table, "-m", tmp_path / "model", *SIZES, *options)
    assert result.status == 0, result.err
    training = json.loads((tmp_path / "model" / "config.json").read_bytes())["training"]
    quality(monkeypatch, tmp_path / "model", table, "--held-out", 60)
    said = capsys.readouterr().out
    numbers = re.findall(r"[\d,]+(?= training pairs| held out)", said.splitlines()[0])
    assert [int(number.replace(",", "")) for number in numbers] == list(training["distinct_pairs"].values())
    assert f"{training['held_out']['loss']:8.3f} nats/pair" in said.splitlines()[1]
    assert f"{training['held_out_other_sources']['loss']:8.3f} nats/pair" in said.splitlines()[4]
    with pytest.raises(SystemExit, match="pass the table of its training, and its --held-out"):
        quality(monkeypatch, tmp_path / "model", table, "--held-out", 2)
