import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
from collections import Counter

import numpy as np
import pytest
from conftest import SOURCE_WORDS, TARGET_WORDS

from phrase_rescore.moses.text import readable
from phrase_rescore.report.page import environment
from phrase_rescore.report.rows import SideWords, TableReader
from phrase_rescore.report.run import LEVELS, draw_maps, label_levels, project
from phrase_rescore.report.sections import JOINT_EDGES, Targets, coverage, diverse, scores, spearman, summary, targets
from phrase_rescore.rnn.checkpoint import load

pytestmark = pytest.mark.slow

for library in ("altair", "vl_convert"):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}", allow_module_level=True)

HOSTILE = b"<script>window.hacked=1</script>"
IMAGE = b"<img src=x onerror=window.hacked=1> <!-- \xe2\x80\xa8"


def table_rows(sources=160, seed=3):
    """Rows in order, with counts that agree: several targets a source, some sources long, two hostile phrases."""
    rng = np.random.default_rng(seed)
    words, others = [word for word in SOURCE_WORDS if word.isalpha() and len(word) > 1], TARGET_WORDS
    chosen = {b" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(sources)} | {HOSTILE, IMAGE}
    rows = []
    for src in sorted(chosen, key=lambda src: src + b" |||"):
        tgt = {b" ".join(rng.choice(others, rng.integers(1, 5))) for _ in range(rng.integers(1, 6))}
        tgt |= {HOSTILE} if src == HOSTILE else set()
        joint = [int(rng.choice([1, 1, 2, 10, 300])) for _ in tgt]
        total = sum(joint)
        for phrase, n in zip(sorted(tgt), joint, strict=True):
            scores = b"0.5 0.25 %.6g 0.125" % (n / total)
            rows.append(b"%b ||| %b ||| %b ||| 0-0 ||| %d %d %d ||| |||" % (src, phrase, scores, n + 1, total, n))
    return rows


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "plain"
    path.write_bytes(b"\n".join(table_rows()) + b"\n")
    return path


@pytest.fixture(scope="module")
def annotated(plain, model_dir, run, tmp_path_factory):
    path = tmp_path_factory.mktemp("annotated") / "annotated"
    assert run("annotate", plain, "-m", model_dir, "-o", path).status == 0
    return path


@pytest.fixture(scope="module")
def made(annotated, model_dir, run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    result = run("report", annotated, "-m", model_dir, "-o", folder / "report.html")
    assert (result.status, result.out) == (0, b""), result.err
    return folder, result


def test_a_page_that_asks_nobody_for_anything(made, annotated):
    folder, result = made
    page = (folder / "report.html").read_text("utf-8")
    assert f"phrase-rescore: {folder / 'report.html'}: {len(annotated.read_bytes().splitlines())} rows, " in result.err
    assert len(page) < 3_000_000
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.findall(r"(?:src|href)\s*=\s*['\"](?!#|data:)", outside)
    (bundle,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(bundle.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; " in page
    assert not any(word in page for word in ("@import", "connect-src"))  # nothing is let through beyond that
    assert outside.count("</h2>") == 7
    assert "Not shown: the model directory has no log" in outside
    assert "phrase-rescore report " in page


def test_charts_hold_their_data_and_escape_it(made):
    page = (made[0] / "report.html").read_text("utf-8")
    found = dict(re.findall(r'<script type="application/json" data-chart="([a-z-]+)">(.*?)</script>', page, re.S))
    assert {"scatter", "source-words", "target-words", "phrases"} <= set(found)
    specs = {name: json.loads(data) for name, data in found.items()}
    points = specs["scatter"]["datasets"]["points"]
    assert HOSTILE.decode() in {point["given"] for point in points}
    assert sum(point["weight"] for point in points) == pytest.approx(len(table_rows()), rel=1e-3)
    assert not any(c in data for data in found.values() for c in "<>&\u2028")
    assert HOSTILE.decode() not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


def test_the_same_page_twice(made, annotated, model_dir, run):
    again = made[0] / "again.html"
    assert run("report", annotated, "-m", model_dir, "-o", again, "-q").status == 0
    first = (made[0] / "report.html").read_text("utf-8")
    commands = re.compile(r"<dt>command</dt><dd>.*?</dd>")
    assert commands.sub("", again.read_text("utf-8")) == commands.sub("", first)


def test_a_table_that_is_not_annotated_is_scored_on_a_sample(plain, model_dir, run, tmp_path):
    result = run("report", plain, "-m", model_dir, "-o", tmp_path / "r.html", "--sample", 100)
    assert result.status == 0, result.err
    said = re.search(r"warning: The table has no score of a model: a sample was, (\d+) of its (\d+) rows", result.err)
    assert 80 < int(said[1]) <= 100
    assert int(said[2]) == len(table_rows())
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "The table has no score of a model: a sample was" in page
    points = json.loads(re.search(r'data-chart="scatter">(.*?)</script>', page, re.S)[1])["datasets"]["points"]
    assert sum(point["weight"] for point in points) == pytest.approx(len(table_rows()), rel=1e-3), "rows of the whole table"


def test_an_inverse_model_compares_no_targets(plain, run, tmp_path):
    table = tmp_path / "small"
    table.write_bytes(b"".join(row.partition(b" ||| 0-0")[0] + b"\n" for row in table_rows(30)))
    options = ["--max-steps", 2, "--hidden", 5, "--held-out", 2, "--source-factor", 0, "-q"]
    assert run("train", table, "--inverse", "-m", tmp_path / "inverse", *options).status == 0
    assert load(str(tmp_path / "inverse")).factors == (0, None)
    result = run("report", table, "-m", tmp_path / "inverse", "-o", tmp_path / "r.html")
    assert result.status == 0, result.err
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "Not shown of an inverse model." in page
    assert "This table has no counts" in page
    assert "p(source | target) of the model" in page


@pytest.mark.parametrize("kind", [["score"], ["score", "--scale", "log"]])
def test_the_model_s_own_column_is_not_taken_for_phi(plain, model_dir, run, tmp_path, kind):
    two, out = tmp_path / "two", tmp_path / "out"
    two.write_bytes(plain.read_bytes().replace(b"0.5 0.25 ", b"0.5 ").replace(b" 0.125 |", b" |"))  # φ(s|t) φ(t|s)
    assert run("annotate", two, "-m", model_dir, "-o", out, "--features", *kind, "-q").status == 0
    assert reader_of(out, model_dir).phi.number == 2
    refused = run("report", out, "-m", model_dir, "--phi-column", 3)
    assert (refused.status, f"--phi-column 3: {out} has no such column of its own" in refused.err) == (2, True)
    os.remove(f"{out}.columns.json")
    found = run("report", out, "-m", model_dir, "-o", tmp_path / "r.html").last_line
    assert found.startswith(f"phrase-rescore: error: {out}: column 3 has the scores of this model")
    assert run("report", out, "-m", model_dir, "--phi-column", 2, "-o", tmp_path / "r.html").status == 0
    out.write_bytes(out.read_bytes().splitlines(keepends=True)[0] * 3)
    alike = run("report", out, "-m", model_dir, "-o", tmp_path / "r.html", "--overwrite")
    assert alike.status == 0, "equal scores tell nothing"


def test_what_cannot_be_read(annotated, model_dir, run, tmp_path):
    (tmp_path / "bad").write_bytes(b"das ||| the ||| 1 1 1 1\n" * 1000 + b"das ||| the ||| 1 1\n")
    result = run("report", tmp_path / "bad", "-m", model_dir)
    assert f"error: {tmp_path / 'bad'}:1001: 2 scores" in result.last_line
    result = run("report", annotated, "-m", model_dir, "--phi-column", 9)
    assert (result.status, f"--phi-column 9: {annotated} has no such column of its own" in result.err) == (2, True)
    assert run("report", "-", "-m", model_dir).status == 2, "it is read more than once"


def reader_of(path, model_dir, room=10_000):
    return TableReader(str(path), load(model_dir), None, room)


def read(path, model_dir, room=10_000, block_rows=10_000):
    reader = reader_of(path, model_dir, room)
    return reader, reader.read(block_rows=block_rows)


def same_rows(one, other):
    return all(np.array_equal(a, b, equal_nan=a.dtype == float) for a, b in zip(vars(one).values(), vars(other).values()))  # noqa: B905


@pytest.mark.parametrize("room", [60, 10_000])
def test_blocks_do_not_matter(annotated, model_dir, room):
    (one, rows), (many, again) = (read(annotated, model_dir, room, n) for n in (10_000, 7))
    sources = {row.split(b" |||")[0] for row in table_rows()}
    assert (one.rows, one.sources) == (many.rows, many.sources) == (len(table_rows()), len(sources))
    assert same_rows(rows, again)
    assert one.sides == many.sides
    assert one.long_sources == many.long_sources


def test_a_sample_has_whole_sources(annotated, model_dir):
    _, some = read(annotated, model_dir, 60)
    assert 30 < len(some) <= 60
    chosen = set(some.src.tolist())
    expected = [tuple(row.split(b" ||| ")[:2]) for row in table_rows() if row.split(b" ||| ")[0] in chosen]
    assert sorted(zip(some.src, some.tgt, strict=True)) == sorted(expected)
    assert len(some.starts) == len(chosen)


def test_without_counts_a_source_was_seen_as_often_as_it_has_rows(model_dir, tmp_path):
    row = b"the house is . ||| %b ||| 0.5 0.5 0.5 0.5%b\n"
    for counts, seen in ((b"", 2), (b" ||| 0-0 ||| 1 7 1", 7)):
        (tmp_path / "table").write_bytes(row % (b"das", counts) + row % (b"ist", counts))
        reader, rows = read(tmp_path / "table", model_dir)
        assert reader.long_sources == {b"the house is .": seen}
        assert rows.occurrences.tolist() == [seen]


def test_a_class_of_joint_counts_has_its_lower_edge(annotated, model_dir):
    _, found = read(annotated, model_dir)
    facts, chart = scores(found, len(found), ("source", "target"))
    assert facts["right"] is None, "fewer than 50 rows have φ = 1"
    thrice, _ = scores(found[np.repeat(np.arange(len(found)), 3)], len(found), ("source", "target"))
    assert thrice["left"]["log_phi"] < thrice["right"]["log_phi"] == 0
    assert [median["log_phi"] for median in chart["datasets"]["medians"]] == [-0.25, -0.75, -5.75]
    for point in chart["datasets"]["points"]:
        assert point["class"] == max(i for i, edge in enumerate(JOINT_EDGES.tolist()) if edge <= max(point["joint"], 1))


def test_figures_are_those_of_the_rows(annotated, model_dir):
    reader, found = read(annotated, model_dir, block_rows=50)
    rows = sorted(row.split(b" ||| ") for row in annotated.read_bytes().splitlines())
    order = sorted(range(len(found)), key=lambda i: (found.src[i], found.tgt[i]))
    scores = np.array([row[2].split() for row in rows]).astype(float)
    phi, p = scores[:, 2], scores[:, 4]
    np.testing.assert_allclose(found.log_phi[order], np.log(phi))
    np.testing.assert_allclose(found.log_p[order], np.log(p))
    assert found.joint[order].tolist() == [int(row[4].split()[2]) for row in rows]
    src, same, chance, several = np.array([row[0] for row in rows]), 0, 0.0, 0
    for source in set(src.tolist()):
        own = src == source
        if own.sum() > 1:
            several += 1
            same += phi[own][p[own].argmax()] == phi[own].max()
            chance += (phi[own] == phi[own].max()).mean()
    of = Targets(found)
    assert len(of.sizes) == several
    assert of.agreement() == pytest.approx((same / several, chance / several))
    for sign in (1, -1):
        for i, _ in of.disagreements(sign):
            assert sign * (of.log_p[i] - of.log_phi[i]) > 0
            assert of.rows.src_count[i] >= 10
    target, model = reader.sides[1], load(model_dir)
    assert summary(found, of, reader.sides, model)["n_frequent"] == sum(int(row[4].split()[2]) >= 10 for row in rows)
    shown = targets(found[np.repeat(found.occurrences <= 6, found.sizes)], model)
    assert [{entry["count"] for entry in shown[kind]} for kind in ("frequent", "rare")] == [set(), {3.0, 5.0}]
    unknown = sum(word not in TARGET_WORDS for row in rows for word in row[1].split(b" "))
    assert target.unknown_words().total() == unknown > 0


def test_columns_of_another_model_and_those_that_only_look_like_a_model_s_are_not_used(
    annotated, model_dir, make_model, run, tmp_path
):
    result = run("report", annotated, "-m", make_model(logits={b"das": 2.0}), "-o", tmp_path / "other.html")
    assert (result.status, "warning: The table’s scores are of another model (rnn" in result.err) == (0, True)
    alone = tmp_path / "annotated"
    alone.write_bytes(annotated.read_bytes())
    result = run("report", alone, "-m", model_dir, "-o", tmp_path / "r.html")
    assert result.status == 0, result.err
    assert f"warning: columns 5 and 6 of {alone} look like those of annotate" in result.err
    assert "warning: The table has no score of a model" in result.err
    assert reader_of(alone, model_dir).phi.number == 3


def test_log_columns_are_read_as_such(plain, model_dir, run, tmp_path):
    logs = []
    for scale in ("exp", "log"):
        out = str(tmp_path / scale)
        run("annotate", plain, "-m", model_dir, "-o", out, "--scale", scale)
        assert reader_of(out, model_dir).log_p.is_log == (scale == "log")
        logs.append(read(out, model_dir)[1].log_p)
    np.testing.assert_allclose(*logs, rtol=1e-5)


def test_spearman():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, 400).astype(float)
    y = np.minimum(rng.integers(0, 7, 400) + x // 3, 6)
    expected = [[np.mean(np.flatnonzero(np.sort(values) == value)) for value in values] for values in (x, y)]
    assert spearman(x, y) == pytest.approx(np.corrcoef(*expected)[0, 1])
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))


def test_phrases_that_say_the_same_stand_once():
    assert list(diverse([b"a b c d", b"a b c e", b"x y z a"], lambda item: item)) == [b"a b c d", b"x y z a"]


def test_labels_do_not_touch():
    rng = np.random.default_rng(1)
    places, labels = rng.random((150, 2)) * 400, ["word" * int(n) for n in rng.integers(1, 4, 150)]
    levels = label_levels(places, labels)
    assert 0 in levels
    for level in range(LEVELS):
        shown = np.flatnonzero(levels <= level)
        scaled = places[shown] * 2**level
        width = np.array([6.0 * len(labels[i]) for i in shown])
        for i in range(len(shown)):
            beside = np.abs(scaled[:, 1] - scaled[i, 1]) < 12
            overlap = beside & (scaled[:, 0] < scaled[i, 0] + width[i]) & (scaled[i, 0] < scaled[:, 0] + width)
            assert overlap.sum() == 1


def test_maps_bring_like_vectors_together():
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(2, 12)) * 4
    for n in (5, 20):  # by main axes, and by t-SNE
        vectors = np.concatenate([centre + rng.normal(size=(n, 12)) * 0.2 for centre in centres])
        places = project(vectors)
        assert places.shape == (2 * n, 2)
        middles = places[:n].mean(axis=0), places[n:].mean(axis=0)
        assert np.linalg.norm(middles[0] - middles[1]) > 2 * np.linalg.norm(places[:n] - middles[0], axis=1).mean()
        assert (places == project(vectors)).all()


def test_a_map_has_words_at_their_vectors_and_the_most_frequent_phrases(model_dir, monkeypatch):
    monkeypatch.setattr("phrase_rescore.report.run.MAPPED_PHRASES", 3)
    model = load(model_dir)
    for vectors in (model.model.encoder.embedding, model.model.decoder.embedding):
        vectors[model.src_vocab.ids[b"house"]] = vectors[model.src_vocab.ids[b"the"]]  # and "haus", "das"
    *of_words, phrases = (one["records"] for one in draw_maps(model, {b"the": 1, b"house": 9, b"old": 4, b"is": 5}))
    for words in of_words:
        assert [len({(word["x"], word["y"]) for word in words[:n]}) for n in (2, 3, 4)] == [1, 2, 3]
    assert [phrase["label"] for phrase in phrases] == ["house", "is", "old"]


def test_one_side_of_other_words_is_told(model_dir):
    sides = [SideWords(name, load(model_dir).src_vocab, None, Counter([word])) for name, word in (("a", b"x"), ("b", b"the"))]
    assert [coverage(some, (0.1, 0.1))["fits"] for some in (sides, sides[::-1], sides[1:] * 2)] == [False, False, True]


def test_text_is_text():
    shown = environment().from_string("{{ phrase|readable }} {{ data|tojson }}")
    assert shown.render(phrase=b"&lt;b&gt; &apos;", data=1) == "&lt;b&gt; &#39; 1"
    assert readable(b"a\xff\xe2\x80\xae") == "a\\xff\\u202e"
    assert readable(b"&amp;lt;") == "&lt;"
    data = {"b": "</script><!--\u2028", "a": "&"}
    dumped = shown.render(phrase=b"", data=data).strip()
    assert dumped.isascii()
    assert not set("<>&") & set(dumped)
    assert list(json.loads(dumped).items()) == list(data.items())


CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
# Where the middle of the first point of a chart is that a test picks, in pixels of the window
POINT = """([name, key, value]) => {
  const view = document.getElementById(name).view;
  const walk = (item, x, y) => {
    if (item.marktype === "symbol")
      for (const one of item.items) if (one.datum && one.datum[key] === value) return [x + one.x, y + one.y];
    for (const inner of item.items || []) {
      const found = walk(inner, x + (item.marktype ? 0 : item.x || 0), y + (item.marktype ? 0 : item.y || 0));
      if (found) return found;
    }
  };
  const canvas = document.querySelector("#" + name + " canvas").getBoundingClientRect();
  const [x, y] = walk(view.scenegraph().root, view.origin()[0] + view.padding().left, view.origin()[1] + view.padding().top);
  return [canvas.x + x, canvas.y + y];
}"""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs Chromium: name one with CHROMIUM=")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def svg(page, name):
    return page.evaluate("name => document.getElementById(name).view.toSVG()", name)


def points(page):
    return int(re.search(r">([\d,]+) points<", svg(page, "scatter"))[1].replace(",", ""))


def test_in_a_browser(made, browser):
    problems = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))

    def ask(route):
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            problems.append(route.request.url)
            route.abort()

    page.route("**/*", ask)
    page.goto((made[0] / "report.html").as_uri())
    page.wait_for_function("[...document.querySelectorAll('.chart')].every(chart => chart.view)", timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280

    # Hovering shows the pair, and a hostile one as text
    hostile = HOSTILE.decode()
    page.locator("#scatter").scroll_into_view_if_needed()
    page.mouse.move(*page.evaluate(POINT, ["scatter", "given", hostile]))
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=10_000)
    assert "joint count" in tooltip.inner_text()
    assert hostile in tooltip.inner_text()
    assert tooltip.locator("script, img").count() == 0

    # A filter leaves fewer points
    everything = points(page)
    page.locator("#scatter select").first.select_option(index=3)
    page.wait_for_timeout(200)
    assert 0 < points(page) < everything

    assert page.evaluate("window.hacked") is None
    assert problems == []
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    page.close()
