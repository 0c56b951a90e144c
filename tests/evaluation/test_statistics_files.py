"""Files of statistics: all figures are those of the texts, can be checked by hand, and damage is told in a line."""

import contextlib
import gzip
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from random_outputs import WORDS, changed, sentences, write_lines

from phrase_rescore.errors import InputError
from phrase_rescore.evaluation.counts import Basis, OutputStatistics, parse_statistics, write_statistics
from phrase_rescore.evaluation.metrics import EvaluationSettings

SAMPLES = ["--samples", "50"]


def make_texts(folder: Path) -> None:
    """Write references, one system of one run and one of three."""
    reference = sentences(1, 25)
    reference[3] = []  # an empty segment
    write_lines(folder / "ref", reference)
    for seed, name in enumerate(("ref2", "ref3", "base", "one", "run1", "run2", "run3"), 10):
        lines = changed(reference, 0.3, seed)
        lines[7] = lines[7] if name.startswith("ref") else []
        write_lines(folder / name, lines)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_texts(tmp_path)
    return tmp_path


def write(run: Run, reference: str, output: str, *options: str, to: str = "") -> str:
    """Write the statistics of an output; return their file's name."""
    path = to or f"{output}.gz"
    done = run("evaluate", "-q", "--set", "test", reference, f"x={output}", "--statistics", path, *options)
    assert done.status == 0, done.err
    return path


def same(one: OutputStatistics, other: OutputStatistics) -> bool:
    pairs = zip(one.counts.items(), other.counts.items(), strict=True)
    return one.basis == other.basis and all(a == b and np.array_equal(x, y) for (a, x), (b, y) in pairs)


def lines_of(path: str) -> list[str]:
    return gzip.decompress(Path(path).read_bytes()).decode().split("\n")


def test_the_first_line(run: Run, here: Path) -> None:
    head = json.loads(lines_of(write(run, "ref,ref2", "base", "--lowercase", "--metrics", "ter,bleu"))[0])
    scored = (Path("ref").read_bytes() + Path("ref2").read_bytes()).replace(b" \n", b"\n")
    signatures = head.pop("signatures")
    assert list(signatures) == ["BLEU", "TER"]
    assert signatures["BLEU"].startswith("nrefs:2|case:lc|eff:no|tok:none|smooth:exp|version:")
    assert head.pop("sacrebleu") == signatures["BLEU"].rpartition(":")[2]
    assert head == {
        "format": "phrase-rescore segment statistics", "version": 2, "segments": 25, "references": 2,
        "references_sha256": hashlib.sha256(scored).hexdigest(),
        "tokenize": "none", "detokenize": None, "lowercase": True, "sacremoses": None,
    }  # fmt: skip


def test_a_file_has_no_name_time_or_text(run: Run, here: Path) -> None:
    data = Path(write(run, "ref", "base")).read_bytes()
    assert data[3:8] == bytes(5)  # flags: no name; time 0
    Path("same").write_bytes(Path("base").read_bytes())
    assert Path(write(run, "ref", "same")).read_bytes() == data
    assert not any(word in " ".join(lines_of("base.gz")[2:]) for word in WORDS)
    assert Path(write(run, "ref", "base", to="plain.name")).read_bytes() == data
    assert run("evaluate", "--set", "x", "y=base.gz", "--statistics", "copy.gz").status == 0
    assert Path("copy.gz").read_bytes() == data, "statistics of statistics"


FORMS = {"text": "{}", "statistics": "{}.gz", "plain": "{}.tsv"}


@pytest.mark.parametrize("references", [pytest.param("ref", marks=pytest.mark.slow), "ref,ref2,ref3"])
@pytest.mark.parametrize("options", [
    pytest.param([], id="as it is"),
    pytest.param(["--lowercase"], id="lowercase", marks=pytest.mark.slow),
    pytest.param(["--tokenize", "13a"], id="13a", marks=pytest.mark.slow),
    pytest.param(["--detokenize", "fr"], id="detokenized"),
])  # fmt: skip
def test_figures_are_those_of_the_texts(run: Run, here: Path, references: str, options: list[str]) -> None:
    """To the digit, in every mixture, and without a reference where nothing needs it."""
    runs = ["base", "one", "run1", "run2", "run3"]
    for name in runs:
        Path(f"{name}.tsv").write_bytes(gzip.decompress(Path(write(run, references, name, *options)).read_bytes()))

    def evaluated(forms: Sequence[str], *reference: str) -> tuple[bytes, Any]:
        base, one, *three = (FORMS[form].format(name) for form, name in zip(forms, runs, strict=True))
        systems = [f"base={base}", f"one={one}", f"three={','.join(three)}"]
        table = run("evaluate", "-q", "--set", "test", *reference, *systems, *options, *SAMPLES)
        assert table.status == 0, table.err
        figures = run("evaluate", "-q", "--set", "test", *reference, *systems, *options, *SAMPLES, "--format", "json")
        (of_set,) = json.loads(figures.out)["sets"]
        return table.out, (of_set["signatures"], of_set["noise"], [system["scores"] for system in of_set["systems"]])

    expected = evaluated(["text"] * 5, references)
    assert evaluated(["statistics"] * 5) == expected
    assert evaluated(["plain", "statistics", "plain", "statistics", "statistics"]) == expected
    assert evaluated(["statistics", "text", "text", "statistics", "plain"], references) == expected
    assert evaluated(["text", "plain", "statistics", "plain", "plain"], references) == expected


def test_known_figures(run: Run, here: Path) -> None:
    """Ten segments of ten words, typed: every one better, so that 2 of 1,024 shuffles are as far apart, and TER by hand."""
    signature = "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0"
    head = {
        "format": "phrase-rescore segment statistics", "version": 2, "segments": 10, "references": 1,
        "references_sha256": "0" * 64, "tokenize": "none", "detokenize": None, "lowercase": False,
        "signatures": {"TER": signature}, "sacrebleu": "2.6.0", "sacremoses": None,
    }  # fmt: skip

    def typed(name: str, edits: list[int]) -> str:
        rows = "".join(f"{n}\t10\n" for n in edits)
        Path(name).write_text(f"{json.dumps(head)}\nter.edits\tter.ref_length\n{rows}")
        return name

    better, worse = typed("better", [1] * 10), typed("worse", [2] * 10)
    done = run("evaluate", "--set", "test", f"a={worse}", f"b={better}", "--metrics", "ter", "--format", "json")
    report = json.loads(done.out)
    assert (report["baseline"], report["resamples"], report["shuffles"]) == ("a", 1000, 10_000)
    (a, b) = report["sets"][0]["systems"]
    assert (a["scores"]["TER"]["mean"], b["scores"]["TER"]["mean"]) == (20, 10)
    assert b["scores"]["TER"]["p_randomization"] == pytest.approx(2 / 1024, abs=0.0014)
    assert b["scores"]["TER"]["p_bootstrap"] == pytest.approx(1 / 1001)  # every resample has the same difference

    runs = [typed(f"run{n}", [n] + [2] * 9) for n in (0, 2, 4)]  # TER 18, 20, 22
    others = [typed(f"other{n}", [n] + [1] * 9) for n in (0, 2, 4)]  # TER 9, 11, 13
    args = ["--set", "test", f"a={','.join(runs)}", f"b={','.join(others)}", f"c={better}", "--metrics", "ter"]
    args += ["--set", "other", f"a={worse}", f"b={','.join(others)}"]
    of_set, other = json.loads(run("evaluate", *args, *SAMPLES, "--format", "json").out)["sets"]
    a, b, c, _, d = (system["scores"]["TER"] for system in of_set["systems"] + other["systems"])
    assert [score["standard_deviation"] for score in (a, b, c)] == [2, 2, None]
    assert [score["mean"] for score in (a, b, c)] == pytest.approx([20, 11, 10])
    assert [score["difference"] for score in (b, c, d)] == pytest.approx([-9, -10, -9])
    assert [score["p_bootstrap"] for score in (b, c, d)] == [None] * 3  # which is for one output against one
    assert a["runs"] == pytest.approx([18, 20, 22])
    noise = of_set["noise"]["TER"]
    assert (noise["standard_deviation"], noise["degrees_of_freedom"]) == (2, 4)
    table = run("evaluate", *args, *SAMPLES).out.decode()
    assert "standard deviation of tuning runs, pooled over systems: TER 2.00 (4 degrees of freedom)\n" in table


def refused(run: Run, status: int, *args: str) -> str:
    """What is wrong, as told in the one line of an error."""
    result = run("evaluate", "-q", *args)
    assert (result.status, result.out, result.err.count("\n")) == (status, b"", 1), result.err
    return result.err.removeprefix("phrase-rescore: error: ")


REFUSED = {  # arguments, status, and what the message names; base.gz and the others have statistics
    "two systems": ("--set a ref x=base y=one --statistics new", 2, ["--statistics"]),
    "two runs": ("--set a ref x=base,one --statistics new", 2, ["--statistics"]),
    "standard output": ("--set a ref x=base --statistics -", 2, ["--statistics -"]),
    "an input": ("--set a ref x=base --statistics base --overwrite", 2, ["--set base", "--statistics base"]),
    "another reference": ("--set a ref2 x=base.gz", 1, ["base.gz: ", "ref2"]),
    "references of two": ("--set a x=base.gz y=one.gz", 1, ["one.gz: ", "base.gz"]),
    "a reference more": ("--set a x=base.gz,run1.gz", 1, ["run1.gz: ", "base.gz"]),
    "another length": ("--set a short x=base.gz", 1, ["base.gz: 25 lines", "short has 1"]),
    "text without a reference": ("--set a x=base", 2, ["'a' has no reference", "base"]),
    "statistics as a reference": ("--set a base.gz x=one", 2, ["base.gz", "'a'"]),
    "no counts of a metric": ("--set a x=two", 1, ["two: ", "TER is not used there", "--metrics"]),
    "detokenized": ("--set a x=fr", 1, ["fr: ", "--detokenize is fr there and not used here"]),
    "not detokenized": ("--set a x=two --detokenize fr --metrics bleu", 1, ["two: ", "--detokenize is not used there and fr"]),
    "lower case": ("--set a x=lc", 1, ["lc: ", "BLEU is nrefs:1|case:lc|", "case:mixed", "--lowercase"]),
    "another tokenization": ("--set a x=lc --tokenize 13a --lowercase", 1, ["lc: ", "tok:13a", "--tokenize"]),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A folder with texts and their statistics."""
    folder = tmp_path_factory.mktemp("statistics")
    make_texts(folder)
    (folder / "short").write_text("a\n")
    with contextlib.chdir(folder):
        write(run, "ref", "base")
        write(run, "ref2", "one")
        write(run, "ref,ref2", "run1")
        write(run, "ref", "base", "--metrics", "bleu,chrf", to="two")
        write(run, "ref", "base", "--detokenize", "fr", to="fr")
        write(run, "ref", "base", "--lowercase", to="lc")
    return folder


@pytest.mark.parametrize(("args", "status", "named"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_together(run, written, monkeypatch, args: str, status: int, named: list[str]) -> None:
    monkeypatch.chdir(written)
    told = refused(run, status, *args.split())
    assert all(name in told for name in named), told
    assert not Path("new").exists()


@pytest.mark.parametrize("args", ["x=two --metrics chrf", "x=lc --metrics ter"])  # TER never tells case
def test_what_is_not_asked_for_may_differ(run: Run, written: Path, monkeypatch: pytest.MonkeyPatch, args: str) -> None:
    monkeypatch.chdir(written)
    assert run("evaluate", "--set", "test", *args.split()).status == 0


@pytest.mark.parametrize("program", ["sacrebleu", "sacremoses"])
def test_other_versions_are_allowed_and_said(run: Run, here: Path, program: str) -> None:
    detokenize = ["--detokenize", "fr"] if program == "sacremoses" else []
    write(run, "ref", "base", *detokenize)
    first, *rest = lines_of("base.gz")
    installed = json.loads(first)[program]
    Path("older").write_text("\n".join([json.dumps(json.loads(first) | {program: "0.1"}), *rest]))
    done = run("evaluate", "-q", "--set", "test", "x=base.gz", "y=older", *SAMPLES, *detokenize)
    assert (done.status, done.err.count("\n")) == (0, 1)
    assert done.err.startswith("phrase-rescore: warning: older: ")
    assert f"{program} 0.1" in done.err
    assert installed in done.err
    alone = run("evaluate", "-q", "--set", "test", "x=base.gz", *SAMPLES, *detokenize)
    assert (alone.status, alone.err) == (0, "")


DAMAGE: dict[str, Callable[[list[str]], list[str]]] = {
    "cut off": lambda rows: rows[:10],
    "a line too many": lambda rows: [*rows, rows[-1]],
    "a negative number": lambda rows: replaced(rows, 5, 3, "-1"),
    "a column too few": lambda rows: [*rows[:4], rows[4].rpartition("\t")[0] + "\n", *rows[5:]],
    "columns in another order": lambda rows: [rows[0], "\t".join(sorted(rows[1].split("\t"))), *rows[2:]],
    "no JSON": lambda rows: [rows[0][:90] + "\n", *rows[1:]],
    "deep JSON": lambda rows: [rows[0][:50] + "[" * 100_000 + "\n", *rows[1:]],
    "more in the first line": lambda rows: headed(rows, more=1),
    "no references": lambda rows: headed(rows, references=0),
    "no signatures": lambda rows: headed(rows, signatures={}),
    "signatures of numbers": lambda rows: headed(rows, signatures={"BLEU": 1}),
    "an older version": lambda rows: headed(rows, version=1),
}


def replaced(rows: list[str], line: int, column: int, number: str) -> list[str]:
    numbers = rows[line - 1].split("\t")
    numbers[column] = number + "\n" * (column == len(numbers) - 1)
    return [*rows[: line - 1], "\t".join(numbers), *rows[line:]]


def headed(rows: list[str], **entries: object) -> list[str]:
    return [json.dumps({**json.loads(rows[0]), **entries}) + "\n", *rows[1:]]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_line(run: Run, written: Path, tmp_path: Path, damage: Callable[[list[str]], list[str]]) -> None:
    rows = [f"{line}\n" for line in lines_of(str(written / "base.gz"))[:-1]]
    bad = tmp_path / "bad"
    bad.write_text("".join(damage(rows)), "utf-8")
    told = refused(run, 1, "--set", "test", f"x={bad}")
    assert told.startswith(f"{bad}: ")
    assert "evaluate --statistics" in told


@pytest.fixture(scope="module")
def good() -> bytes:
    references = [("a b c d", "le chat dort", "")]
    settings = EvaluationSettings()
    metrics = settings.make_metrics(references).items()
    counts = {name: metric.counts(("a b d", "le chat", "x")) for name, metric in metrics}
    return as_bytes(OutputStatistics(Basis.of(references, settings), counts))


def as_bytes(counted: OutputStatistics) -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        write_statistics(file.name, counted)
        return gzip.decompress(Path(file.name).read_bytes())


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_whatever_is_damaged(good: bytes, data: st.DataObject) -> None:
    """A file is read as it could have been written, or refused with its name."""
    at = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(at, min(len(good), at + data.draw(st.sampled_from([0, 1, 2, 40, 10_000])))))
    put = data.draw(
        st.one_of(st.binary(max_size=3), st.sampled_from([b"\t", b"\n", b"0", b"-", b"9" * 10, b'"', b"}", good[:40]]))
    )
    rows = (good[:at] + put + good[end:]).splitlines(keepends=True)
    try:
        found = parse_statistics("x", rows)
    except InputError as error:
        if error.path == "x" and error.hint:
            return
        raise
    assert same(parse_statistics("x", as_bytes(found).splitlines(keepends=True)), found)
    metrics = EvaluationSettings().make_metrics()
    for name, of_metric in found.counts.items():
        assert of_metric.shape[0] == len(found)
        assert (of_metric >= 0).all()
        assert 0 <= metrics[name].score_of(of_metric) < math.inf
