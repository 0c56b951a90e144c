"""The page says what the text says, needs no other file, and escapes what it is given."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest
from conftest import Run

pytestmark = pytest.mark.slow

for library in ("altair", "vl_convert"):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}", allow_module_level=True)

HOSTILE = "<script>window.hacked=1</script>"
ROW = "{} ||| {} ||| 0.5 0.25 {} 0.125 {} 1 ||| 0-0 ||| 9 8 {} ||| |||\n"
N_PLAIN = "m n o p |2-5|"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [("a", "x", 0.75, 0.5, 6), ("a", HOSTILE, 0.25, 0.25, 2), ("b", "y", 0.5, 0.25, 4), ("b", "w", 0.4, 0.5, 3)]
    (tmp_path / "table").write_text("".join(ROW.format(*row) for row in [*rows, ("m n o p", "m n o p", 1, 0.5, 8)]))
    columns = [
        {"column": 5, "feature": "log_prob", "model": "m", "unit": "probability: exp of the natural log p(target | source)"},
        {"column": 6, "feature": "unknown_words", "model": "m", "unit": "exp of the number of target words"},
    ]
    (tmp_path / "table.columns.json").write_text(json.dumps({"format_version": 1, "columns": columns}))
    (tmp_path / "src").write_text("a b m n o p\na b m n o p\n")
    (tmp_path / "ref").write_text("x w m n o p\nx y m n o p\n")
    (tmp_path / "base").write_text(f"x |0-0| y |1-1| {N_PLAIN}\n{HOSTILE} |0-0| y |1-1| {N_PLAIN}\n")
    (tmp_path / "rnn").write_text(f"x |0-0| w |1-1| {N_PLAIN}\nx |0-0| w |1-1| {N_PLAIN}\n")
    return tmp_path


ARGS = ("why", "--source", "src", "--reference", "ref", "--table", "table")


@pytest.fixture
def page(folder: Path, run: Run) -> str:
    done = run(*ARGS, "base=base", "r<n>n=rnn", "-o", "why.html", "--score-column", 5)
    assert done.status == 0, done.err
    assert re.fullmatch(r"phrase-rescore: why.html: \d\.\d MB\n", done.err)
    assert "2 of 2 outputs differ (100.0%).\n" in done.out.decode()
    assert not list(folder.glob(".*"))
    return (folder / "why.html").read_text("utf-8")


def cells(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.S)
    return [
        [html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)]
        for row in rows
    ]


def test_the_page_has_the_figures(page: str) -> None:
    found = cells(page)
    for row in (
        ["the same source phrases, other targets", "3", "3", "33.3%", "3", "66.7%", "+1"],
        ["a target of the same length", "3", "3", "33.3%", "3", "66.7%", "+1"],
        ["all", "6", "3", "3", "33.3%", "33.3%", "6", "3", "3", "66.7%", "66.7%"],
        ["only φ's best", "1", "1", "0", "0", "0", "1", "0"],
        ["only the score's best", "1", "1", "0", "0", "0", "1", "0"],
        ["base", "b → y", "0/1", "−0.69", "−1.39", "−0.69", "−2.08", "−1.39", "0", "4", "8"],
        ["r<n>n", "b → w", "1/1", "−0.69", "−1.39", "−0.92", "−2.08", "−0.69", "0", "3", "8"],
    ):
        assert row in found
    assert "<h1>r&lt;n&gt;n against base</h1>" in page
    assert "why --source src --reference ref --table table --score-column 5 -o why.html base=base" in page


def test_the_charts_have_the_figures(page: str) -> None:
    charts = dict(re.findall(r'<script type="application/json" data-chart="([a-z-]+)">(.*?)</script>', page, re.S))
    assert set(charts) == {"outputs", "won-words", "right-words"}
    data = {name: json.loads(spec)["datasets"] for name, spec in charts.items()}
    assert sorted(record["number"] for record in data["outputs"]["segments"]) == [1, 2]
    assert data["won-words"]["changes"][0] == {"change": "the same source phrases, other targets", "won": 1, "regions": 3}
    by_length = [record for record in data["right-words"]["phrases"] if record["table"] == "source words"]
    assert [(record["system"], record["bin"], record["words"]) for record in by_length] == [("base", "1", 3), ("r<n>n", "1", 3)]
    assert [record["right"] for record in by_length] == pytest.approx([1 / 3, 2 / 3])


def test_the_page_stands_by_itself(page: str) -> None:
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"(src|href)=\"(?!#|data:)", text)
    assert HOSTILE not in text
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_systems_that_do_not_differ(folder: Path, run: Run) -> None:
    done = run(*ARGS, "base=base", "same=base", "-o", "why.html", "-q")
    assert (done.status, done.err) == (0, "")
    page = (folder / "why.html").read_text("utf-8")
    assert "Both systems use the same phrases." in page
    assert "data-chart" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)


def test_standard_output_takes_the_page_alone(folder: Path, spawn: Run) -> None:
    done = spawn(*ARGS, "base=base", "rnn=rnn", "-o", "-", "-q", cwd=folder)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(b"<!DOCTYPE html>")
    assert done.out.rstrip().endswith(b"</html>")


@pytest.mark.parametrize(("library", "name"), [("altair", "altair"), ("vl_convert", "vl-convert")])
def test_a_missing_library_is_named_and_the_text_needs_none(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    done = run(*ARGS, "base=base", "rnn=rnn", "-o", "why.html")
    said = f"phrase-rescore: error: why needs {name}; install it with: pip install 'phrase-rescore[report]'\n"
    assert (done.status, done.out, done.err) == (2, b"", said)
    assert not (folder / "why.html").exists()
    assert run(*ARGS, "base=base", "rnn=rnn").status == 0
