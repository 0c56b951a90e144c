import json
import re
import sys
from dataclasses import replace

import pytest

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.report.curves import KINDS, CurveChart, curves, draw
from phrase_rescore.training.log import read_run, read_runs

pytestmark = pytest.mark.slow

RECORDS = [
    {"step": 100, "seconds": 36.0, "train_loss": 22.5, "held_out": {"loss": 20.0, "perplexity": 90.0}},
    {"step": 200, "seconds": 72.0, "train_loss": 18.0, "held_out": {"loss": 12.25, "perplexity": 9.5}},
    {"step": 250, "seconds": 90.0, "train_loss": 15.0, "held_out": {"loss": 13.0, "perplexity": 11.0}},
]
UNMEASURED = [{key: value for key, value in record.items() if key != "held_out"} for record in RECORDS]


@pytest.fixture
def make_run(tmp_path):
    def make(name="model", records=RECORDS, batch_size=64):
        directory = tmp_path / name
        directory.mkdir(parents=True)
        (directory / "train.log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if batch_size is not None:
            (directory / "config.json").write_text(json.dumps({"training": {"batch_size": batch_size}}))
        return str(directory)

    return make


def test_a_run_is_read_by_its_directory_or_its_log(make_run):
    path = make_run()
    run = read_run(path)
    assert (run.name, run.batch_size, len(run.points)) == ("model", 64, 3)
    assert run.points[0].train_loss == 22.5
    assert run.best.step == 200
    assert read_run(f"{path}/train.log.jsonl") == read_run(f"{path}/") == run


def test_names_may_be_given(make_run, tmp_path, monkeypatch):
    path = make_run("a=b")
    assert read_run(path).name == "a=b"
    assert read_run(f"large={path}").name == "large"
    assert read_run(f"x\ty={path}").name == r"x\ty"
    monkeypatch.chdir(path)
    assert read_run(".").name == "a=b"
    (tmp_path / "first try.jsonl").write_bytes((tmp_path / "a=b" / "train.log.jsonl").read_bytes())
    assert read_run(str(tmp_path / "first try.jsonl")).name == "first try"


def test_runs_of_equal_name_are_called_by_their_paths(make_run):
    paths = [make_run("x/model"), make_run("y/model"), make_run("other")]
    assert [run.name for run in read_runs(paths)] == [*paths[:2], "other"]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (b"", "train.log.jsonl: an empty log; nothing is measured yet"),
        (b"step 100\n", r"train.log.jsonl:1: 'step 100' is not JSON; name a model directory"),
        (b"\xff\n", r"train.log.jsonl:1: '\\xff' is not JSON"),
        (b'{"step": 1, "seconds": 1}\n{"step": 2, "sec', "train.log.jsonl:2: .* is not JSON"),
        (b"[1]\n", "train.log.jsonl:1: not a JSON object"),
        (b'{"seconds": 1}\n', "no step or no seconds"),
        (b'{"step": "1", "seconds": 1}\n', 'step "1" is not a number'),
        (b'{"step": 1, "seconds": 1, "held_out": {"loss": true}}\n', "loss true is not a number"),
        (b'{"step": "%b", "seconds": 1}\n' % (b"x" * 9999), f'step "{"x" * 59}… is not a number'),
        (b'{"step": 1, "seconds": 1, "held_out": 3}\n', "held_out is not a JSON object"),
        (b"[" * 100_000 + b"\n", "is not JSON"),
        (b'{"step": 1' + b"0" * 400 + b', "seconds": 1}\n', "train.log.jsonl:1: .* is not JSON"),
    ],
)
def test_malformed_logs(make_run, tmp_path, log, message):
    path = make_run()
    (tmp_path / "model" / "train.log.jsonl").write_bytes(log)
    with pytest.raises(InputError, match=message) as caught:
        read_run(path)
    assert "\n" not in str(caught.value)


def test_figures_that_are_not_finite_are_gaps(make_run):
    run = read_run(make_run(records=[*RECORDS, {"step": 300, "seconds": 1.0, "held_out": {"loss": float("nan")}}]))
    assert run.points[-1].loss is None
    assert run.best.step == 200


@pytest.mark.parametrize(
    ("x", "y", "log_x"), [("steps", "loss", False), ("hours", "perplexity", True), ("pairs", "loss", True)]
)
def test_the_same_runs_give_the_same_png(make_run, tmp_path, x, y, log_x):
    out, run, chart = tmp_path / "curves.png", read_run(make_run()), CurveChart(x, y, log_x)
    draw([run], str(out), chart)
    data = out.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[i : i + 4]) for i in (16, 20))
    assert width > 900
    assert height > 600
    draw([run], str(out), chart)
    assert out.read_bytes() == data
    encoding = curves([run], chart)["layer"][0]["encoding"]
    kinds = [encoding[axis]["scale"]["type"] for axis in "xy"]
    assert kinds == ["log" if log_x else "linear", "log" if y == "perplexity" else "linear"]


def svg_texts(path):
    return re.findall(r"<text[^>]*[^/]>(.*?)</text>", path.read_text("utf-8"))


def test_held_out_is_solid_training_dashed_and_the_best_step_a_star(make_run):
    spec = curves([read_run(make_run()), read_run(make_run("second", UNMEASURED))])
    data, drawn = spec["datasets"], {}
    for line in data["lines"]:
        drawn.setdefault((line["run"], line["kind"]), []).append((line["x"], line["y"]))
    first, second, (held_out, training) = "12.25  model", "second", KINDS
    of_training = [(100, 22.5), (200, 18.0), (250, 15.0)]
    of_held_out = [(100, 20.0), (200, 12.25), (250, 13.0)]
    assert drawn == {(first, training): of_training, (second, training): of_training, (first, held_out): of_held_out}
    assert data["stars"] == [{"run": first, "x": 200, "y": 12.25}]
    dashes = spec["layer"][0]["encoding"]["strokeDash"]["scale"]
    assert dict(zip(dashes["domain"], dashes["range"], strict=True)) == KINDS


def test_svg_holds_its_labels_as_text(make_run, tmp_path):
    out = tmp_path / "curves.SVG"
    names = ("model", "$a$ <b>", "_c", "日本語", "x" * 200)
    draw([read_run(f"{name}={make_run(str(i))}") for i, name in enumerate(names)], str(out))
    texts = svg_texts(out)
    shown = ("model", "$a$ &lt;b&gt;", "_c", "日本語")
    assert [texts.count(f"12.25  {name}") for name in shown] == [1, 1, 1, 1]
    assert any(text.startswith("12.25  xxxx") and text.endswith("…") for text in texts)
    assert {"step (minibatches)", "negative log-likelihood (nats per pair)", "held-out", "★ best held-out loss"} <= set(texts)
    assert "training, mean since the last record" in texts


def test_each_axis_says_what_it_measures(make_run, tmp_path):
    out, run = tmp_path / "curves.svg", read_run(make_run())
    of_text = replace(run, item="word")
    for runs, chart, expected in (
        ([run], CurveChart("pairs", "perplexity"), {"phrase pairs seen (millions)", "held-out perplexity (per word)"}),
        ([run], CurveChart("hours"), {"time of training (hours)", "negative log-likelihood (nats per pair)"}),
        ([of_text], CurveChart("pairs"), {"words seen (millions)", "negative log-likelihood (nats per word)"}),
        ([run, of_text], CurveChart("pairs"), {"phrase pairs, words seen (millions)"}),
    ):
        draw(runs, str(out), chart)
        assert expected <= set(svg_texts(out))


def test_a_language_model_learns_words(make_run, tmp_path):
    path, config = make_run(), tmp_path / "model" / "config.json"
    for kind, item in (("feedforward-lm", "word"), ("rnn-encoder-decoder", "pair"), ("other", "pair"), (7, "pair")):
        config.write_text(json.dumps({"kind": kind, "training": {"batch_size": 5}}))
        assert (read_run(path).item, read_run(path).batch_size) == (item, 5)


def test_without_held_out_figures_training_is_drawn(make_run, tmp_path):
    out = tmp_path / "curves.svg"
    run = read_run(make_run(records=UNMEASURED))
    draw([run], str(out))
    texts = svg_texts(out)
    assert "model" in texts
    assert "held-out" not in texts
    assert run.line() == "model\t250\t\t\t\t0.025"


def test_what_cannot_be_drawn(make_run, tmp_path):
    at_0 = RECORDS[0] | {"step": 0}
    for name, records, chart, message in (
        ("a", UNMEASURED, CurveChart(y="perplexity"), "a: the log has no perplexity to draw there; draw it with --y loss"),
        ("b", [at_0], CurveChart(log_x=True), "draw it without --log-x"),
        ("c", [{"step": 1, "seconds": 0.5}], CurveChart(), "c: the log has no loss to draw there; train with --eval-every"),
    ):
        with pytest.raises(OptionError, match=message):
            draw([read_run(make_run(name, records))], str(tmp_path / "curves.png"), chart)
    told = r"d: the batch size is unknown without a config\.json beside its log; draw it with --x steps"
    with pytest.raises(OptionError, match=told):
        draw([read_run(make_run("d", batch_size=None))], str(tmp_path / "curves.png"), CurveChart("pairs"))
    assert not (tmp_path / "curves.png").exists()
    draw([read_run(make_run("longer", records=[at_0, *RECORDS]))], str(tmp_path / "curves.png"), CurveChart(log_x=True))


@pytest.mark.parametrize("name", ["curves.pdf", "curves", "-", "png"])
def test_other_kinds_of_picture_are_refused(make_run, run, name):
    result = run("curves", make_run(), "-o", name)
    assert result.status == 2
    assert result.last_line.endswith("a picture's name ends in .png or .svg; name it, say, curves.png")


def test_the_command_draws_and_prints_the_table(make_run, run, tmp_path):
    out = tmp_path / "curves.png"
    result = run("curves", make_run(), f"again={make_run('b', UNMEASURED)}", "-o", out, "--table")
    assert result.status == 0
    assert result.out == b"model\t250\t200\t12.2500\t9.5000\t0.025\nagain\t250\t\t\t\t0.025\n"
    assert result.last_line == f"phrase-rescore: wrote {out}"
    assert out.read_bytes().startswith(b"\x89PNG")


def test_quiet_and_nothing_to_write(make_run, run, tmp_path):
    result = run("curves", make_run("other"))
    assert (result.status, result.last_line.split("; ")[1]) == (
        2, "name a picture with -o curves.png, or add --table",
    )  # fmt: skip
    assert run("curves", make_run(), "-q", "-o", tmp_path / "c.svg", "--log-x", "--x", "hours") == (0, b"", "")


@pytest.mark.parametrize(("library", "name"), [("altair", "altair"), ("vl_convert", "vl-convert")])
def test_without_the_libraries_pictures_are_refused_and_tables_work(make_run, run, tmp_path, monkeypatch, library, name):
    monkeypatch.setitem(sys.modules, library, None)
    path = make_run()
    result = run("curves", path, "-o", tmp_path / "c.png")
    assert result.status == 2
    assert result.last_line.endswith(f"curves needs {name}; in the checkout, run: pip install '.[report]'")
    assert run("curves", path, "--table").out.startswith(b"model\t250\t")
