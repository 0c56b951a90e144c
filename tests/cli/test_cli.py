"""The command line itself: help without torch, errors of one line, exit status, nothing but rows on standard output."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import Run
from small_models import small_lm

from phrase_rescore import __version__
from phrase_rescore.cli.main import COMMANDS
from phrase_rescore.cli.terminal import byte_bar, share_bar
from phrase_rescore.rnn.scorer import Scorer

ROW = b"the house ||| das haus ||| 0.5 0.25 1 6.1e-05 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
commands = pytest.mark.parametrize("command", list(COMMANDS))

HEAVY = """
import sys
from phrase_rescore.cli.main import main
for line in sys.stdin:
    try:
        main(line.split())
    except SystemExit as end:
        heavy = "torch safetensors numpy sacremoses sacrebleu altair vl_convert openTSNE".split()
        print(line.strip() + ":", end.code, *sys.modules.keys() & heavy, file=sys.stderr)
"""


def test_neither_help_nor_a_wrong_option_imports_torch() -> None:
    statuses = {"--help": 0, "-h": 0, "--version": 0, "annotate t --digits 0": 2, **{f"{name} --help": 0 for name in COMMANDS}}
    lines = "".join(f"{line}\n" for line in statuses)
    done = subprocess.run([sys.executable, "-c", HEAVY], input=lines, capture_output=True, check=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.partition(":")[0] in statuses]
    assert said == [f"{line}: {status}" for line, status in statuses.items()]


def test_a_list_that_no_model_scores_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"0 ||| das haus ||| X= 1 ||| 1\n")
    line = f"rescore {tmp_path / 'list'} --best -o {tmp_path / 'out'}"
    done = subprocess.run([sys.executable, "-c", HEAVY], input=f"{line}\n", capture_output=True, check=True, text=True)
    assert done.stderr.splitlines()[-1] == f"{line}: 0 numpy"
    assert (tmp_path / "out").read_bytes() == b"das haus\n"


def test_no_argument_is_a_request_for_help() -> None:
    done = subprocess.run([sys.executable, "-c", HEAVY], input="\n", capture_output=True, check=True, text=True)
    assert done.stderr.splitlines()[-1] in (": 0", ": 2"), "0, and on standard output, by click before 8.2"
    assert {"Commands:", "  tune       Find weights on n-best lists of a tuning set."} <= {
        *(done.stdout + done.stderr).splitlines()
    }


@pytest.mark.parametrize(("typed", "said"), [
    ("trian", "No such command 'trian'. Did you mean 'train'?"), ("xyz", "No such command 'xyz'"),
])  # fmt: skip
def test_a_command_that_is_not_there(run: Run, typed: str, said: str) -> None:
    result = run(typed, "table")
    assert (result.status, result.err) == (2, f"phrase-rescore: error: {said}; see phrase-rescore --help\n")


@commands
def test_every_command_has_help_that_fits_two_screens(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = run(command, "--help")
    text = result.out.decode()
    lines = text.splitlines()
    assert (result.status, result.err) == (0, "")
    assert text.startswith(f"Usage: phrase-rescore {command} [OPTIONS]")
    assert f"\n  phrase-rescore {command} " in text, "an example"
    assert len(lines) <= 100
    assert max(len(line) for line in lines if "phrase-rescore" not in line) < 100, "examples are not wrapped"
    piped = [line.strip() for line in lines if " | " in line and "phrase-rescore" in line]
    assert all(line.startswith("set -o pipefail; ") for line in piped)


def test_a_command_ends_with_what_it_wrote_and_what_to_type_next(run: Run, model_dir: str, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "a table.gz"
    table.write_bytes(ROW)
    *_, wrote, then = run("annotate", table, "-m", model_dir, "-o", out).err.splitlines()
    assert wrote == f"phrase-rescore: wrote {out}"
    assert then == f"phrase-rescore: next: phrase-rescore moses-ini moses.ini --table '{out}' -o moses.rnn.ini"
    assert "wrote" not in run("annotate", table, "-m", model_dir).err, "rows on standard output"
    assert run("annotate", table, "-m", model_dir, "-o", out, "--overwrite", "-q").err == ""
    latin = os.fsdecode(os.fsencode(tmp_path) + b"/\xe4'.gz")  # not UTF-8
    *_, then = run("annotate", table, "-m", model_dir, "-o", latin).err.splitlines()
    typed = then.partition("--table ")[2].partition(" -o ")[0]
    assert subprocess.run(["bash", "-c", f"test -s {typed}"]).returncode == 0, typed


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("command", ["score -m {m}", "score-lm -m {l}", "generate -m {m} -n 1", "embed -m {m}"])
def test_the_cores_to_compute_on(run: Run, model_dir: str, tmp_path: Path, command: str, threads: int) -> None:
    stdin = b"the\told\n" if command.startswith("score ") else b"the\n"
    args = command.format(m=model_dir, l=small_lm(tmp_path / "lm")).split()
    usual = run(*args, stdin=stdin)
    assert run(*args, "--threads", threads, stdin=stdin).out == usual.out != b""
    assert torch.get_num_threads() == threads


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch, capsys) -> None:
    monkeypatch.setattr("phrase_rescore.cli.terminal.LOG_SECONDS", 0.2)
    with share_bar("scoring", False) as bar, byte_bar((), False, "table.gz") as reading:
        for n in range(1, 9):
            time.sleep(0.05)
            bar.reach(n / 8)
            reading.update(1000)
    assert byte_bar(("-", __file__), quiet=True).total is None, "it is not known"
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 6
    assert re.fullmatch(r"phrase-rescore: scoring: [1-9][0-9]+%, 00:00, 00:00 left", lines[0])
    assert all(re.fullmatch(r"phrase-rescore: (scoring: .*|table\.gz: [0-9.]+kB, 00:00)", line) for line in lines)


def test_group_help_lists_every_command_with_a_word_on_it(run: Run) -> None:
    lines = run("--help").out.decode().partition("\nCommands:\n")[2].splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert list(listed) == list(COMMANDS)
    assert all(text.endswith(".") for text in listed.values())


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"phrase-rescore, version {__version__}\n".encode(), "")


@pytest.mark.parametrize(("line", "named"), [
    ("annotate /dev/null --digit 3", "--digit"), ("annotate", "TABLE"), ("annotate /dev/null b", "(b)"),
    ("annotate /dev/null --scale ln", "--scale"), ("annotate /dev/null --digits 1", "--digits"),
    ("train t --max-time 2hours", "--max-time"), ("train t --memory 0M", "--memory"),
])  # fmt: skip
def test_wrong_usage_exits_with_2_and_names_the_option(run: Run, line: str, named: str) -> None:
    result = run(*line.split())
    assert (result.status, result.out) == (2, b"")
    assert result.err == f"{result.last_line}\n", "one line"
    assert named in result.last_line


@pytest.mark.parametrize("command", [["annotate"], ["strip", "--columns", "1"]])
def test_output_that_moses_would_not_read(run: Run, model_dir: str, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "table").write_bytes(ROW)
    model = ["-m", model_dir] * (command == ["annotate"])
    for ending in (".bz2", ".xz", ".zst", ".zip", ".lz4"):
        out = tmp_path / f"out{ending}"
        result = run(*command, tmp_path / "table", "-o", out, *model)
        assert (result.status, str(out) in result.last_line, out.exists()) == (2, True, False)


@pytest.mark.slow
def test_the_default_model_is_what_train_writes(warm_python: str, tmp_path: Path) -> None:
    """The two commands work one after the other with nothing but the table's name."""
    (tmp_path / "table").write_bytes(ROW + ROW.replace(b"haus", b"heim") + ROW.replace(b"house", b"home"))
    sizes = "--hidden", "4", "--embedding", "3", "--maxout", "2", "--rank", "2"
    trained, annotated = (
        subprocess.run([warm_python, "-m", "phrase_rescore", *line], cwd=tmp_path, capture_output=True, check=False)
        for line in (["train", "table", *sizes, "--max-steps", "2", "--threads", "1"], ["annotate", "table"])
    )
    assert (trained.returncode, trained.stdout) == (0, b""), trained.stderr
    assert annotated.returncode == 0, annotated.stderr
    assert annotated.stdout.count(b"\n") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["phrase-rescore-model", "phrase-rescore-model.pairs", "table"]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:120] DefaultCPUAllocator: can't allocate memory: …")]
)
@pytest.mark.parametrize("out", ["-", "out"])
def test_memory_that_runs_out_is_one_line(run, model_dir, tmp_path, monkeypatch, error, out) -> None:
    def fail(scorer: Scorer, pairs: object) -> None:
        raise type(error)(*error.args)  # a new one, since notes are added to it

    monkeypatch.setattr(Scorer, "log_probs", fail)
    (tmp_path / "table").write_bytes(ROW)
    name = out if out == "-" else tmp_path / out
    result = run("annotate", tmp_path / "table", "-m", model_dir, "-o", name)
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith("phrase-rescore: error: memory ran out; use smaller blocks")
    assert result.err.count("\n") == 1, result.err
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
