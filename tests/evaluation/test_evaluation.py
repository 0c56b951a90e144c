"""evaluate: its numbers are those of the sacrebleu command, its tables are what one would print."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from random_outputs import changed, sentences, write_lines

from phrase_rescore.cli import terminal
from phrase_rescore.evaluation.corpora import SetFiles
from phrase_rescore.evaluation.metrics import METRICS, EvaluationSettings, Metric
from phrase_rescore.evaluation.run import evaluate

SAMPLES = ["--samples", "200"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Two references, two single outputs a little apart, and three runs of a third system."""
    reference = sentences(1, 60)
    texts = {"ref": reference, "ref2": changed(reference, 0.2, 2), "base": changed(reference, 0.3, 3)}
    texts |= {"better": changed(reference, 0.27, 4)} | {f"run{n}": changed(reference, 0.2 + n / 100, 4 + n) for n in (1, 2, 3)}
    return {name: write_lines(tmp_path / name, lines) for name, lines in texts.items()}


def command(words: list[str]) -> str:
    """What a program that is a Python module says."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, check=True, env=environment)
    return done.stdout.decode()


def sacrebleu(references: list[str], output: str, *options: str) -> Any:
    """What the sacrebleu command says about an output, as JSON."""
    return json.loads(command(["sacrebleu", *references, "-i", output, "-q", "-f", "json", "-w", "15", *options]))


def scored(run: Run, *args: str) -> Any:
    result = run("evaluate", *args, "--format", "json", "-q")
    assert result.status == 0, result.err
    return json.loads(result.out)


def cells(report: Any, of_set: int = 0) -> dict[str, dict[str, Any]]:
    return {system["name"]: system["scores"] for system in report["sets"][of_set]["systems"]}


OPTIONS: dict[str, tuple[list[str], list[str]]] = {
    "tokenized": ([], ["--tokenize", "none"]),
    "13a": (["--tokenize", "13a"], ["--tokenize", "13a"]),
    "char": (["--tokenize", "char"], ["--tokenize", "char"]),
    "lowercase": (["--lowercase"], ["--tokenize", "none", "--lowercase", "--chrf-lowercase"]),
}


@pytest.mark.parametrize("references", [pytest.param(["ref"], marks=pytest.mark.slow), ["ref", "ref2"]])
@pytest.mark.parametrize(("ours", "theirs"), OPTIONS.values(), ids=OPTIONS)
def test_scores_and_signatures_are_the_command_s(run, files, references, ours, theirs) -> None:
    paths = [files[name] for name in references]
    report = scored(run, "--set", "dev", ",".join(paths), f"base={files['base']}", *ours)
    expected = sacrebleu(paths, files["base"], "-m", "bleu", "chrf", "ter", *theirs)
    assert [score["name"] for score in expected] == ["BLEU", "chrF2", "TER"] == list(METRICS.values())
    for score in expected:
        assert cells(report)["base"][score["name"]]["mean"] == pytest.approx(score["score"], abs=1e-12)
        assert report["sets"][0]["signatures"][score["name"]] == score["signature"]


@pytest.mark.slow
def test_p_of_the_bootstrap_is_the_command_s(run: Run, files: dict[str, str]) -> None:
    paths = [files[name] for name in ("base", "better", "run1")]
    systems = [f"{name}={path}" for name, path in zip(("base", "better", "other"), paths, strict=True)]
    found = cells(scored(run, "--set", "dev", files["ref"], *systems, "--samples", "300"))
    options = ["-m", "bleu", "chrf", "ter", "--tokenize", "none", "--paired-bs", "--paired-bs-n", "300", "-f", "text", "-nc"]
    shown = re.findall(r"\(p = ([0-9.]+)\)", command(["sacrebleu", files["ref"], "-i", *paths, *options]))
    ours = [found[system][metric]["p_bootstrap"] for system in ("better", "other") for metric in METRICS.values()]
    assert [f"{p:.4f}" for p in ours] == shown  # steps of 1/301: four decimals tell them apart
    assert 1 / 301 < ours[0] < 1
    assert found["base"]["BLEU"]["p_bootstrap"] is None


def test_a_system_against_itself(run: Run, files: dict[str, str]) -> None:
    """sacrebleu counts only differences larger than 0: p 1/201, which a reader takes for significant."""
    copy = Path(files["base"] + ".copy")
    copy.write_bytes(Path(files["base"]).read_bytes())
    found = cells(scored(run, "--set", "dev", files["ref"], f"a={files['base']}", f"b={copy}", *SAMPLES))
    for cell in found["b"].values():
        assert (cell["difference"], cell["p_bootstrap"], cell["p_randomization"]) == (0, 1, 1)


def test_detokenized_text_is_scored_as_people_write_it(run: Run, files: dict[str, str], tmp_path: Path) -> None:
    texts = {"ref": ("l&apos; eau « a @-@ b » : 5 %", "l'eau « a-b » : 5 %"), "base": ("l&apos; air ( x ) .", "l'air (x).")}
    plain = {}
    for name, (tokens, joined) in texts.items():
        Path(files[name]).write_text(f"{tokens}\n\n{tokens} .\n", "utf-8")
        plain[name] = tmp_path / f"{name}.plain"
        plain[name].write_text(f"{joined}\n\n{joined}.\n", "utf-8")
    report = scored(run, "--set", "dev", files["ref"], f"a={files['base']}", "--detokenize", "fr")
    for score in sacrebleu([str(plain["ref"])], str(plain["base"]), "-m", "bleu", "chrf", "ter"):
        assert cells(report)["a"][score["name"]]["mean"] == pytest.approx(score["score"], abs=1e-12)
        assert report["sets"][0]["signatures"][score["name"]] == score["signature"]
    assert "tok:13a" in report["sets"][0]["signatures"]["BLEU"]
    assert "sacremoses (fr)" in report["text"]


def test_a_line_at_which_sacremoses_fails_is_named(run: Run, files: dict[str, str]) -> None:
    with Path(files["base"]).open("a") as base, Path(files["ref"]).open("a") as reference:
        base.write("x&apos; - li a .\n")
        reference.write("a .\n")
    lines = Path(files["base"]).read_text("utf-8").count("\n")
    done = run("evaluate", "--set", "d", files["ref"], f"a={files['base']}", "--detokenize", "cs")
    assert (done.status, done.out, done.err.count("\n")) == (1, b"", 1)
    assert f"{files['base']}:{lines}: " in done.err
    assert "detokenizer.perl" in done.err


def test_tokenization_fits_the_text() -> None:
    of_language = {"fr": "13a", "zh": "zh", "ja": "char", None: "none"}
    assert {language: EvaluationSettings(detokenize=language).tokenization for language in of_language} == of_language
    assert EvaluationSettings(detokenize="zh", tokenize="char").tokenization == "char"


def test_each_output_is_measured_once(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, bootstrap and randomization ask for the same statistics; TER's take seconds."""
    count, calls, done = Metric.counts, [], []

    def counted(self: Metric, output: tuple[str, ...]) -> Any:
        calls.append(output)
        return count(self, output)

    monkeypatch.setattr(Metric, "counts", counted)
    systems = {"a": (files["base"],), "b": (files["better"],), "c": (files["run1"], files["base"])}
    evaluate([SetFiles("dev", (files["ref"],), systems)], metrics=("bleu",), samples=20, on_done=done.append)
    assert (len(calls), done) == (3, [n / 6 for n in range(1, 7)])  # four outputs, two comparisons


def test_a_log_tells_the_share_that_is_done(run: Run, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LOG_SECONDS", 0.0)  # after every output and comparison, not once a minute
    said = run("evaluate", "--set", "d", files["ref"], f"a={files['base']}", f"b={files['better']}", "--samples", 20).err
    assert all(f"phrase-rescore: evaluating: {share}%, " in said for share in (33, 67, 100))


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny files whose scores are known beforehand."""
    monkeypatch.chdir(tmp_path)
    right, wrong = "a b c d e", "a b c d f"
    for name, lines in {
        "ref": [right] * 4, "all": [right] * 4, "half": [right, right, wrong, wrong], "none": ["x"] * 4, "long": [right] * 5,
    }.items():  # fmt: skip
        Path(name).write_text("".join(line + "\n" for line in lines))


SETS = ["--set", "dev", "ref", "base=half", "a|b=all", "--set", "test", "ref,all", "a|b=all,half", "other=none"]

TEXT = """\
system      dev BLEU    dev TER      test BLEU     test TER
base           83.76      10.00
a|b           100.00       0.00  91.88 ± 11.48  5.00 ± 7.07
other                                     0.00       100.00

against base                       dev BLEU    dev TER
a|b             difference           +16.24     -10.00
                p bootstrap           0.050      0.050
                p randomization       0.517      0.517

"""
NOTES = {
    "dev": "4 segments, 1 reference", "test": "4 segments, 2 references",
    "BLEU, dev": "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:V",
    "BLEU, test": "nrefs:2|case:mixed|eff:no|tok:none|smooth:exp|version:V",
    "TER, dev": "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:V",
    "TER, test": "nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:V",
    "text": "as it is", "±": "a|b 2 on test", "noise, test": "BLEU 11.48, TER 7.07 (1 degree of freedom)",
    "p bootstrap": "200 resamples, seed 12345", "p randomization": "200 shuffles, seed 12345",
}  # fmt: skip

MARKDOWN = """\
| system   |   test BLEU |   one BLEU |
|:---------|------------:|-----------:|
| other    |        0.00 |       0.00 |
| a        |       83.76 |            |

| against other   |                 |   test BLEU |
|:----------------|:----------------|------------:|
| a               | difference      |      +83.76 |
|                 | p bootstrap     |       0.001 |
|                 | p randomization |       0.117 |

- test: 4 segments, 1 reference
- one: 4 segments, 1 reference
- BLEU: `nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:V`
- text: as it is
"""


def without_version(out: bytes) -> str:
    return re.sub(r"version:[0-9.]+", "version:V", out.decode())


@pytest.mark.usefixtures("layout")
def test_the_tables_and_their_notes(run: Run) -> None:
    result = run("evaluate", *SETS, "--metrics", "ter,bleu", *SAMPLES)
    assert (result.status, result.err) == (0, "")
    text = without_version(result.out)
    assert text.startswith(TEXT)
    notes = dict(line.removeprefix("- ").split(": ", 1) for line in text.removeprefix(TEXT).splitlines())
    assert list(notes) == list(NOTES)
    assert all(note in notes[name] for name, note in NOTES.items()), notes


@pytest.mark.usefixtures("layout")
def test_the_tables_in_markdown(run: Run) -> None:
    sets = ["--set", "test", "ref", "other=none", "a=half", "--set", "one", "ref", "other=none"]
    options = ["--metrics", "bleu", "--lowercase", "--tokenize", "13a", "--format", "markdown"]
    result = run("evaluate", *options, *sets, "--samples", "999")
    assert (result.status, result.err) == (0, "")
    assert without_version(result.out).startswith(MARKDOWN)


@pytest.mark.usefixtures("layout")
def test_standard_input_compressed_files_and_the_seed_s_place(run: Run) -> None:
    expected = run("evaluate", "--set", "dev", "ref", "a=half", "b=all", *SAMPLES)
    Path("ref.gz").write_bytes(gzip.compress(Path("ref").read_bytes()))
    for args in (["--set=dev", "ref.gz", "a=-", "b=all", *SAMPLES], [*SAMPLES, "--set", "dev", "ref.gz", "a=-", "b=all"]):
        assert run("evaluate", *args, stdin=Path("half").read_bytes()) == expected


USAGE = {
    "words behind another option": (["--set", "d", "ref", "-q", "a=all"], "error: Invalid value for '--set': set 'd' has no"),
    "words before": (["ref", "--set", "dev", "ref", "a=all"], "error: Got unexpected extra argument (ref)"),
    "an empty set": (["--set"], "error: Option '--set' requires an argument"),
    "two sets": (["--set", "d", "ref", "a=all", "--set", "d", "ref", "a=all"], "error: two sets are called 'd'; give each"),
    "standard input twice": (["--set", "d", "-", "a=-"], "'-', standard input; name a file for one"),
    "language": (["--set", "d", "ref", "a=all", "--detokenize", "xx"], "--detokenize 'xx': "),
}


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize(("args", "text"), USAGE.values(), ids=USAGE)
def test_wrong_usage(run: Run, args: list[str], text: str) -> None:
    result = run("evaluate", *args)
    assert (result.status, result.out) == (2, b"")
    assert text in result.last_line


@pytest.mark.usefixtures("layout")
def test_files_of_other_lengths(run: Run) -> None:
    for args, found in (
        (["ref", "a=all,long"], "long: 5 lines where ref has 4"),
        (["ref,long", "a=all"], "long: 5 lines where ref has 4"),
        (["long", "a=-"], "<stdin>: 1 line where long has 5"),
    ):
        result = run("evaluate", "--set", "d", *args, stdin=b"x")
        assert (result.status, result.out) == (1, b"")
        assert found in result.last_line


ESCAPED, PLAIN, TOKENS = b"l&apos; eau .\n", b"l'eau.\n", b"oui .\n"
WARNINGS: dict[str, tuple[bytes, bytes, list[str], list[str]]] = {  # reference, output, options; how warnings begin
    "escapes": (ESCAPED, ESCAPED, [], ["ref: the text has Moses' escapes"]),
    "escapes without chrF": (ESCAPED, ESCAPED, ["--metrics", "bleu,ter"], []),
    "detokenized": (ESCAPED, PLAIN, ["--detokenize", "fr"], []),
    "plain output": (ESCAPED, PLAIN, [], ["out: the reference has Moses' escapes", "ref: the text has Moses' escapes"]),
    "none of tokens": (TOKENS, TOKENS, [], []),
    "none of plain": (PLAIN, PLAIN, [], ["ref: not tokenized"]),
    "none of plain, without BLEU": (PLAIN, PLAIN, ["--metrics", "chrf"], []),
    "13a of plain": (PLAIN, PLAIN, ["--tokenize", "13a"], []),
    "several files": (ESCAPED, ESCAPED, ["--set", "again", "copy", "a=copy"], ["ref, copy: the text has Moses' escapes"]),
}


@pytest.mark.parametrize(("reference", "output", "options", "warnings"), WARNINGS.values(), ids=WARNINGS)
def test_warnings(run, tmp_path, monkeypatch, reference, output, options, warnings) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ref").write_bytes(reference)
    Path("copy").write_bytes(reference)
    Path("out").write_bytes(output)
    result = run("evaluate", "-q", "--set", "dev", "ref", "a=out", *options)
    assert result.status == 0
    for line, warning in zip(result.err.splitlines(), warnings, strict=True):
        assert line.startswith(f"phrase-rescore: warning: {warning}")


def test_empty_lines(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a b c d\n" * 4 + "\n" * 4)
    (tmp_path / "gaps").write_text("a b c d\n\n" * 2 + "\n" * 4)  # a reference may have empty lines
    (tmp_path / "out").write_text("a b c d\n\n\na b c d\n" + "\n" * 4)
    result = run("evaluate", "-q", "--set", "test", f"{tmp_path / 'ref'},{tmp_path / 'gaps'}", f"x={tmp_path / 'out'}")
    assert (result.status, result.err.count("\n")) == (0, 1)
    assert f"warning: {tmp_path / 'out'}: 2 of 4 lines are empty" in result.err
    (tmp_path / "out").write_text("a b c d\n" + "\n" * 7)
    result = run("evaluate", "-q", "--set", "test", tmp_path / "ref", f"x={tmp_path / 'out'}")
    assert (result.status, f"{tmp_path / 'out'}: 3 of 4 lines are empty" in result.err) == (1, True)
