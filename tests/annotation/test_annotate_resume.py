"""An annotation that was killed, or whose disk was full, continues to the same bytes; nothing is reused that should not be."""

import gzip
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Result, Run
from system_calls import available

from phrase_rescore import annotate
from phrase_rescore.annotation import run as annotation_run
from phrase_rescore.annotation.annotator import Statistics
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.files import inputs, row_outputs
from phrase_rescore.files.locks import lock_file
from phrase_rescore.files.outputs import PartialFile
from phrase_rescore.files.row_outputs import DroppedRows, ResumableOutput
from phrase_rescore.rnn.checkpoint import load, save

pytestmark = pytest.mark.slow

ROWS = [b"the house %d ||| das haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % i for i in range(100)]


@pytest.mark.skipif(not available(), reason="needs Linux 5.6 or later on x86_64")
def test_a_kill_at_any_call_of_the_system_loses_nothing(warm_python: str) -> None:
    """A sample of what ``make faults`` tries."""
    program = [warm_python, ROOT / "tests/faults/system_faults.py", "--kind", "killed", "--only", "annotate", "--times", "75"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "annotate: 15 killed"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "table").write_bytes(b"".join(ROWS))
    return tmp_path / "table"


class Stopped(Exception):
    """What ends an annotation in the middle of these tests."""


def stopping_at(rows: int) -> AnnotateObserver:
    def stop(statistics: Statistics) -> None:
        if statistics.rows >= rows:
            raise Stopped

    return AnnotateObserver(on_block=stop)


@pytest.fixture
def interrupted(table: Path, model_dir: str) -> Callable[[int], Path]:
    """Annotates ``rows`` rows in blocks of ten, then stops; returns OUT."""

    def interrupt(rows: int) -> Path:
        out = table.parent / "out.gz"
        with pytest.raises(Stopped) as raised:
            annotate(table, model_dir, out, jobs=1, block_rows=10, observer=stopping_at(rows))
        assert raised.value.__notes__ == [f"{rows} rows are kept in {out}.partial; the same command with --resume continues"]
        assert not out.exists()
        return out

    return interrupt


Command = Callable[..., Result]


@pytest.fixture
def command(run: Run, table: Path, model_dir: str) -> Command:
    """Annotates the table to OUT, in blocks of ten."""
    return lambda out, *options, model=model_dir: run("annotate", table, "-m", model, "-o", out, "--block-size", 10, *options)


@pytest.fixture
def kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block counts on disk as soon as it is written."""
    monkeypatch.setattr(row_outputs, "SECONDS_BETWEEN", 0.0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_same_command_goes_on(command: Command, interrupted: Callable[[int], Path]) -> None:
    out = interrupted(40)
    assert names(out.parent) == ["out.gz.partial", "out.gz.partial.json", "table"]
    whole = out.parent / "whole.gz"
    first, again = command(whole), command(out, "--resume", "--jobs", 2, "--features", "count,score")
    assert (first.status, again.status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.columns.json").read_bytes() == Path(f"{whole}.columns.json").read_bytes()
    assert names(out.parent) == ["out.gz", "out.gz.columns.json", "table", "whole.gz", "whole.gz.columns.json"]
    # and the report is of the whole table, warnings of words that do not fit included
    lines = [
        [line for line in done.err.splitlines() if not re.search(" s, |scored|wrote|next", line)] for done in (first, again)
    ]
    assert lines[0] == lines[1]
    assert "100 rows in" in again.err


def test_without_resume_nothing_is_reused_or_lost(command: Command, interrupted: Callable[[int], Path]) -> None:
    out = interrupted(40)
    partial = Path(f"{out}.partial")
    left, refused = partial.read_bytes(), command(out)
    assert (refused.status, partial.read_bytes()) == (2, left)
    for fact in (f"error: {partial} is left from", "--resume", f"delete {partial}"):
        assert fact in refused.last_line
    partial.write_bytes(b"")
    assert command(out).status == 0, "its journal alone is nothing"
    partial.write_bytes(left)
    assert command(out, "--overwrite").status == 0, "nor is a partial without one"


@pytest.mark.parametrize("options", [[], ["--resume"]])
def test_a_second_run_is_not_told_to_delete_what_a_living_one_writes(command: Command, interrupted, options: list[str]) -> None:
    partial = PartialFile(str(interrupted(30)), hidden=False)
    with open(partial.path, "rb") as living:
        lock_file(living.fileno())
        result = command(partial.target, *options)
    assert result.status == 2
    assert result.last_line == f"phrase-rescore: error: {partial.path} is being written by another process; let it end"


@pytest.mark.parametrize(("options", "found"), [
    (["--block-size", 20], "block_size 10, not 20"), (["--digits", 5], "digits 7, not 5"),
    (["--features", "score"], "features ['score', 'count'], not ['score']"), (["-m", "OTHER"], "models "),
    (["--gzip-level", "fast"], "gzip_level '6', not 'fast'"), (["--precision", "bf16"], "precision 'float32', not 'bf16'"),
    (["--threads", 2, "--jobs", 1], "threads 1, not 2"),
])  # fmt: skip
def test_other_options_are_refused(command, interrupted, make_model, options, found) -> None:
    out = interrupted(20)
    other = make_model(logits={b"das": 2.0})
    done = command(out, "--resume", *(other if option == "OTHER" else option for option in options))
    assert (done.status, Path(f"{out}.partial").exists()) == (2, True)
    assert f"--resume: {out}.partial was made with {found}" in done.last_line
    assert f"delete {out}.partial" in done.last_line


def test_other_rows_are_refused_and_later_ones_are_not(command, table, interrupted) -> None:
    out = interrupted(20)
    for rows in ([*ROWS[:19], ROWS[0], *ROWS[20:]], ROWS[:10]):
        table.write_bytes(b"".join(rows))
        done = command(out, "--resume")
        assert done.status == 1
        assert f"{table}: its first 20 rows differ from the interrupted run's" in done.err
    table.write_bytes(b"".join(ROWS[:50]))
    fresh = table.parent / "fresh.gz"
    assert (command(out, "--resume").status, command(fresh).status) == (0, 0)
    assert out.read_bytes() == fresh.read_bytes(), "as if it had been this table from the beginning"


def test_rows_without_a_factor_that_an_interrupted_run_dropped(command: Command, table: Path, model_dir: str) -> None:
    """They are read again, to see whether table and model go together, and are no more phrases than before."""
    factored = table.parent / "factored"
    factored.mkdir()
    save(replace(load(model_dir), factors=(0, 1)), str(factored))
    rows = [row.replace(b"das haus", b"A|das N|haus") if i != 7 else row for i, row in enumerate(ROWS)]
    table.write_bytes(b"".join(rows))
    out, whole = (table.parent / name for name in ("out.gz", "whole.gz"))
    with pytest.raises(Stopped):
        annotate(table, factored, out, jobs=1, block_rows=10, on_bad_row="drop", observer=stopping_at(40))
    options = "--on-bad-row", "drop", "--resume"
    table.write_bytes(b"".join(rows[::-1]))
    assert "its first 50 rows differ" in command(out, *options, model=factored).err, "dropped ones, too"
    table.write_bytes(b"".join(rows))
    again, fresh = command(out, *options, model=factored), command(whole, *options, model=factored)
    assert (again.status, fresh.status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.dropped").read_bytes() == Path(f"{whole}.dropped").read_bytes() == ROWS[7]
    warnings = [[line for line in done.err.splitlines() if "warning" in line] for done in (again, fresh)]
    assert warnings[0] == warnings[1] != []


def test_damaged_partials_are_told(command: Command, interrupted: Callable[[int], Path]) -> None:
    out = interrupted(20)
    partial, journal = Path(f"{out}.partial"), Path(f"{out}.partial.json")
    good = partial.read_bytes()

    def refused(damaged: Path) -> bool:
        line = command(out, "--resume").last_line
        return f": {damaged} " in line and str(partial) in line.partition("delete ")[2]

    for bad in (good[:-1], b"x" + good[1:]):
        partial.write_bytes(bad)
        assert refused(partial)
    partial.write_bytes(good + b"more that the journal does not count" * 1000)
    text = journal.read_text()
    entry, crc = text.splitlines()
    other_version = json.dumps({**json.loads(entry), "format_version": 1})
    for damaged in ("", "[]", f"{other_version}\n{crc}\n", text.replace('"rows": 20', '"rows": 21'), entry, "[" * 100_000):
        journal.write_text(damaged)
        assert refused(journal)
    journal.write_text(text)
    assert command(out, "--resume").status == 0
    assert gzip.decompress(out.read_bytes()).count(b"\n") == 100


@pytest.mark.parametrize("out", ["-", "/dev/null"])
def test_resume_needs_a_file(command: Command, out: str) -> None:
    done = command(out, "--resume")
    assert (done.status, f"--resume needs a file, and {out} is a stream" in done.last_line) == (2, True)


@pytest.mark.usefixtures("kept_at_once")
@pytest.mark.parametrize(("block_bytes", "kept"), [(1 << 24, 50), (200, 48)])  # a block is ten rows, or four that are as long
def test_a_bad_row_late_in_the_table_loses_nothing(command, table, monkeypatch, block_bytes, kept) -> None:
    for module in (annotation_run, inputs):
        monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    table.write_bytes(b"".join(ROWS[:50]) + b"bad\n")
    out = table.parent / "out.gz"
    failed = command(out)
    assert (failed.status, "1 field in 'bad'" in failed.err, f"{kept} rows are kept in" in failed.err) == (1, True, True)
    table.write_bytes(b"".join(ROWS))
    assert command(out, "--resume").status == 0


# One moment at which a block counts: its bytes, the record of it, the rows that were dropped from it


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an interrupted command ends the process, tests and all."""
    monkeypatch.setattr("phrase_rescore.cli.main.threading.active_count", lambda: 1)


def interrupt_at(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, call: int, after: bool, error: type[BaseException]
) -> None:
    """Let a signal come just before or just after the ``call``-th call of a method, as a handler raises it."""
    real, calls = getattr(owner, method), Counter[str]()

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls[method] += 1
        if calls[method] == call and not after:
            raise error
        result = real(*args, **kwargs)
        if calls[method] == call:
            raise error
        return result

    monkeypatch.setattr(owner, method, interrupted)


@pytest.mark.parametrize("seconds", [0.0, 10.0])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "method"), [
    (ResumableOutput, "write"), (ResumableOutput, "commit"), (DroppedRows, "add"), (PartialFile, "write"),
    (Statistics, "__iadd__"), (PartialFile, "sync"), (PartialFile, "publish"), (PartialFile, "close"),
])  # fmt: skip
def test_an_interruption_at_any_place_loses_and_repeats_no_row(
    command: Command, table: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, after: bool, seconds: float
) -> None:
    monkeypatch.setattr(row_outputs, "SECONDS_BETWEEN", seconds)
    bad = {i: b"bad %d\n" % i for i in (3, 14, 15, 33, 34)}
    table.write_bytes(b"".join(bad.get(i, row) for i, row in enumerate(ROWS[:57])))
    folders = [table.parent / name for name in ("whole", "other")]
    for folder in folders:
        folder.mkdir()
    assert command(folders[0] / "out.gz", "--on-bad-row", "drop").status == 0
    out, interruptions, options = folders[1] / "out.gz", 0, ("--on-bad-row", "drop", "--resume")
    for call in (1, 3, 4):
        with monkeypatch.context() as patch:
            interrupt_at(patch, owner, method, call, after, KeyboardInterrupt)
            interruptions += command(out, *options).status == 130
    assert interruptions
    again = command(out, *options)
    assert again.status == 0, again.err
    whole, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert other == whole
    assert "dropped 5 rows" in again.err


@pytest.mark.parametrize("rows", [30, 40])
def test_a_complete_run_is_not_finished_with_another_table(command, table, monkeypatch, rows) -> None:
    """Everything was written, and only names were missing: a longer table since then is another one."""
    out, options = table.parent / "out", ("--block-size", 20, "--resume")
    table.write_bytes(b"".join(ROWS[:rows]))
    with monkeypatch.context() as patch:
        interrupt_at(patch, PartialFile, "publish", 2, after=False, error=KeyboardInterrupt)  # the first is the sidecar's
        assert command(out, *options).status == 130
    before = names(table.parent)
    table.write_bytes(b"".join(ROWS[: rows + 10]))
    done = command(out, *options)
    assert (done.status, names(table.parent)) == (1, before)
    assert re.search("rows (differ from|of) the (interrupted|complete) run", done.err)
    table.write_bytes(b"".join(ROWS[:rows]))
    assert command(out, *options).status == 0
    assert names(table.parent) == ["out", "out.columns.json", "table"]
    assert out.read_bytes().count(b"\n") == rows


@pytest.mark.usefixtures("kept_at_once")
@pytest.mark.parametrize("name", ["out", "out.gz"])
@pytest.mark.parametrize(("rows", "cut"), [(47, b""), (47, b"the house 47 ||| das ha"), (49, b"the house 49 ||| das ha")])
def test_a_table_that_was_cut_off_comes_again_whole(command: Command, table: Path, name: str, rows: int, cut: bytes) -> None:
    """The last block was short, or its last row: it is scored again, and everything before it stays."""
    out, whole, options = table.parent / name, table.parent / f"whole.{name}", ("--expect-rows", 100, "--on-bad-row", "drop")
    table.write_bytes(b"".join(ROWS[:rows]) + cut)
    done = command(out, *options)
    assert done.status == 1
    assert f"{rows} rows{' (and 1 dropped)' if cut else ''} went through where 100 were expected" in done.err
    assert f"40 rows are kept in {out}.partial; " in done.err
    again = command(out, "--resume", "--expect-rows", rows - 1, "--on-bad-row", "drop")
    assert (again.status, f"{rows} rows" in again.err) == (1, True), "what is expected may change"
    table.write_bytes(b"".join(ROWS))
    again, fresh = command(out, *options, "--resume"), command(whole, *options)
    assert (again.status, fresh.status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert names(table.parent) == sorted(["table", *(p + e for p in (name, f"whole.{name}") for e in ("", ".columns.json"))])


@pytest.mark.usefixtures("kept_at_once")
def test_a_bad_row_is_dropped_when_the_run_goes_on(command: Command, table: Path) -> None:
    table.write_bytes(b"".join([*ROWS[:55], b"bad\n", *ROWS[55:]]))
    out, whole, drop = table.parent / "out", table.parent / "whole", ("--on-bad-row", "drop")
    assert "50 rows are kept in" in command(out).err
    again = command(out, "--resume", *drop)
    assert (again.status, command(whole, *drop).status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.dropped").read_bytes() == b"bad\n"


@pytest.mark.usefixtures("kept_at_once")
def test_unknown_words_are_accepted_when_the_run_goes_on(command: Command, table: Path, make_model: Callable[..., str]) -> None:
    model, accept = make_model(unk_shares=(0.0, 0.0)), "--allow-untrained-unk"
    known = b"the house ||| das haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n"
    table.write_bytes(known * 25 + known.replace(b"house", b"palace"))
    out, whole = table.parent / "out", table.parent / "whole"
    failed = command(out, model=model)
    assert (accept in failed.err, "20 rows are kept in" in failed.err) == (True, True)
    again = command(out, "--resume", accept, model=model)
    assert (again.status, command(whole, accept, model=model).status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("kept_at_once")
def test_strictness_may_change(command: Command, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that do not fit, found by an earlier run, are an error for one that is strict; and a warning again for others."""
    monkeypatch.setattr("phrase_rescore.annotation.record.FIT_ROWS", 30)
    rows = b"".join(b"wholly %d ||| unbekannt ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % i for i in range(100))
    table.write_bytes(rows + b"bad\n")
    out, other = table.parent / "out", table.parent / "other"
    failed = command(out)
    assert ("100 rows are kept in" in failed.err, "warning: " in failed.err) == (True, True)
    table.write_bytes(rows)
    strict = command(out, "--resume", "--strict")
    assert (strict.status, "(--strict)" in strict.err) == (1, True)
    done = command(out, "--resume")
    assert (done.status, "warning: " in done.err) == (0, True)
    assert "20 rows are kept in" in command(other, "--strict").err
    done = command(other, "--resume")
    assert (done.status, other.read_bytes()) == (0, out.read_bytes())
