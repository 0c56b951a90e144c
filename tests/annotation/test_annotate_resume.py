"""An annotation that was killed, or whose disk was full, continues to the same bytes; nothing is reused that should not be."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run
from system_calls import available

from phrase_rescore import annotate
from phrase_rescore.annotation.annotator import Statistics
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.files import row_outputs
from phrase_rescore.files.outputs import PartialFile
from phrase_rescore.files.row_outputs import DroppedRows, ResumableOutput
from phrase_rescore.rnn.checkpoint import load, save

pytestmark = pytest.mark.slow

ROWS = [b"the house %d ||| das haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % i for i in range(100)]


@pytest.mark.skipif(not available(), reason="needs Linux 5.6 or later on x86_64")
def test_a_kill_at_any_call_of_the_system_loses_nothing(warm_python: str) -> None:
    """A sample of what ``make faults`` tries."""
    program = [warm_python, ROOT / "tests/faults/system_faults.py", "--kind", "killed", "--only", "annotate", "--times", "60"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[1].split() == ["annotate", "killed", "15", "0", "0", "15", "15"]


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
def interrupted(table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Annotates ``rows`` rows in blocks of ten, then stops; returns OUT."""

    def interrupt(rows: int, out: str = "out.gz", **options: Any) -> Path:
        path = table.parent / out
        with pytest.raises(Stopped) as raised:
            annotate(table, model_dir, path, jobs=1, block_rows=10, observer=stopping_at(rows), **options)
        assert raised.value.__notes__ == [f"{rows} rows are kept in {path}.partial; the same command with --resume continues"]
        assert not path.exists()
        return path

    return interrupt


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_same_command_goes_on(run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]) -> None:
    whole = table.parent / "whole.gz"
    first = run("annotate", table, "-m", model_dir, "-o", whole, "--block-size", 10)
    out = interrupted(40)
    assert names(out.parent) == ["out.gz.partial", "out.gz.partial.json", "table", "whole.gz", "whole.gz.columns.json"]
    again = run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--resume", "--jobs", 2)
    assert again.status == 0, again.err
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.columns.json").read_bytes() == Path(f"{whole}.columns.json").read_bytes()
    assert names(out.parent) == ["out.gz", "out.gz.columns.json", "table", "whole.gz", "whole.gz.columns.json"]
    # and the report is of the whole table, warnings of words that do not fit included
    told = [[line for line in done.err.splitlines() if " s, " not in line] for done in (first, again)]
    same = [[line for line in lines if not re.search("scored|wrote|next", line)] for lines in told]
    assert same[0] == same[1]
    assert "100 rows of 100 sources" in again.err


def test_without_resume_nothing_is_reused_or_lost(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]
) -> None:
    out = interrupted(40)
    left = Path(f"{out}.partial").read_bytes()
    refused = run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10)
    assert refused.status == 2
    parts = f"error: {out}.partial is left from", "add --resume", f"delete {out}.partial"
    assert [part for part in parts if part not in refused.last_line] == []
    assert Path(f"{out}.partial").read_bytes() == left
    Path(f"{out}.partial").unlink()
    assert run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10).status == 0, "its journal alone is nothing"
    assert not Path(f"{out}.partial.json").exists()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--block-size", 20], "block_size 10, not 20"),
        (["--digits", 5], "digits 7, not 5"),
        (["--features", "score"], "features ['score', 'count'], not ['score']"),
        (["--gzip-level", "fast"], "gzip_level '6', not 'fast'"),
        (["--precision", "bf16"], "precision 'float32', not 'bf16'"),
    ],
)
def test_other_options_are_refused(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path], options: list[object], found: str
) -> None:
    out = interrupted(20)
    done = run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--resume", *options)
    assert done.status == 2
    assert done.last_line.startswith(f"phrase-rescore: error: --resume: {out}.partial was made with {found}; ")
    assert f"delete {out}.partial" in done.last_line
    assert Path(f"{out}.partial").exists()


def test_other_rows_are_refused_and_later_ones_are_not(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]
) -> None:
    out, command = interrupted(20), ("annotate", table, "-m", model_dir, "--block-size", 10, "--resume", "-o")
    table.write_bytes(b"".join([*ROWS[:19], ROWS[0], *ROWS[20:]]))
    done = run(*command, out)
    assert done.status == 1
    found = f"{table}: its first 20 rows differ from the interrupted run's"
    assert f"error: {found}; pass that table, or delete {out}.partial to" in done.err
    table.write_bytes(b"".join(ROWS[:10]))
    assert "differ from the interrupted run's" in run(*command, out).err, "a shorter one"
    table.write_bytes(b"".join(ROWS[:50]))
    assert run(*command, out).status == 0
    fresh = table.parent / "fresh.gz"
    assert run(*command[:-2], "-o", fresh).status == 0
    assert out.read_bytes() == fresh.read_bytes(), "as if it had been this table from the beginning"


def test_rows_without_a_factor_that_an_interrupted_run_dropped(run: Run, table: Path, model_dir: str) -> None:
    """They are read again, to see whether table and model go together, and are no more phrases than before."""
    factored = table.parent / "factored"
    factored.mkdir()
    save(replace(load(model_dir), factors=(0, 1)), str(factored))
    rows = [row.replace(b"das haus", b"A|das N|haus") if i != 7 else row for i, row in enumerate(ROWS)]
    table.write_bytes(b"".join(rows))
    out, whole = (table.parent / name for name in ("out.gz", "whole.gz"))

    with pytest.raises(Stopped):
        annotate(table, factored, out, jobs=1, block_rows=10, on_bad_row="drop", observer=stopping_at(40))
    command = ("annotate", table, "-m", factored, "--block-size", 10, "--on-bad-row", "drop", "-o")
    again, fresh = run(*command, out, "--resume"), run(*command, whole)
    assert (again.status, fresh.status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.dropped").read_bytes() == Path(f"{whole}.dropped").read_bytes() == ROWS[7]
    warnings = [[line for line in done.err.splitlines() if "warning" in line] for done in (again, fresh)]
    assert warnings[0] == warnings[1] != []


def test_damaged_partials_are_told(run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]) -> None:
    out, command = interrupted(20), ("annotate", table, "-m", model_dir, "--block-size", 10, "--resume", "-o")
    partial, journal = Path(f"{out}.partial"), Path(f"{out}.partial.json")
    good, remedy = partial.read_bytes(), f"delete {partial} to start over"
    for bad in (good[:-1], b"x" + good[1:]):
        partial.write_bytes(bad)
        assert re.search(f": {partial} differs from .*journal.*; {remedy}$", run(*command, out).last_line)
    partial.write_bytes(good + b"more that the journal does not count")
    text = journal.read_text()
    first_line, crc = text.splitlines()
    other_version = json.dumps({**json.loads(first_line), "format_version": 1})
    for bad_text in (
        "",
        "[]",
        f"{other_version}\n{crc}\n",
        text.replace('"rows": 20', '"rows": 21'),
        first_line,
        "[" * 100_000,
    ):
        journal.write_text(bad_text)
        last_line = run(*command, out).last_line
        assert re.search(f": {journal} is damaged .*; delete it and {partial} to start over$", last_line)
    journal.write_text(text)
    assert run(*command, out).status == 0


def test_resume_needs_a_file(run: Run, table: Path, model_dir: str) -> None:
    for out in ("-", "/dev/null"):
        done = run("annotate", table, "-m", model_dir, "-o", out, "--resume")
        assert done.status == 2
        assert re.search(f"--resume needs a file, and {out} is a stream; .*-o", done.last_line)


def test_a_bad_row_late_in_the_table_loses_nothing(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_outputs, "SECONDS_BETWEEN", 0.0)
    table.write_bytes(b"".join(ROWS[:50]) + b"bad\n")
    out = table.parent / "out.gz"
    with pytest.raises(Exception, match="1 field in 'bad'") as raised:
        annotate(table, model_dir, out, jobs=1, block_rows=10)
    assert "50 rows are kept in" in raised.value.__notes__[0]
    table.write_bytes(b"".join(ROWS))
    assert run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--resume").status == 0


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


@pytest.mark.parametrize("seconds_between", [0.0, 10.0])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (ResumableOutput, "write"), (ResumableOutput, "commit"), (DroppedRows, "add"), (PartialFile, "write"),
        (Statistics, "__iadd__"),
        (PartialFile, "sync"), (PartialFile, "publish"), (PartialFile, "close"),
    ],
)  # fmt: skip
def test_an_interruption_at_any_place_loses_and_repeats_no_row(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, after: bool,
    seconds_between: float,
) -> None:  # fmt: skip
    monkeypatch.setattr(row_outputs, "SECONDS_BETWEEN", seconds_between)
    bad = {3: b"bad 3\n", 14: b"bad 14\n", 15: b"bad 15\n", 33: b"bad 33\n", 34: b"bad 34\n"}
    table.write_bytes(b"".join(bad.get(i, row) for i, row in enumerate(ROWS[:57])))
    command = ("annotate", table, "-m", model_dir, "--block-size", 10, "--on-bad-row", "drop", "-o")
    folders = [table.parent / name for name in ("whole", "other")]
    for folder in folders:
        folder.mkdir()
    assert run(*command, folders[0] / "out.gz").status == 0
    out, met = folders[1] / "out.gz", 0
    for call in (1, 3, 4):
        with monkeypatch.context() as patch:
            interrupt_at(patch, owner, method, call, after, KeyboardInterrupt)
            met += run(*command, out, "--resume").status == 130
    assert met
    again = run(*command, out, "--resume")
    assert again.status == 0, again.err
    assert {name: (folders[1] / name).read_bytes() for name in names(folders[1])} == {
        name: (folders[0] / name).read_bytes() for name in names(folders[0])
    }
    assert "dropped 5 rows" in again.err


def stop_at_journal(path: str) -> None:
    if path.endswith(".json") and os.path.exists(path):
        raise KeyboardInterrupt
    os.remove(path)


@pytest.mark.parametrize("left", ["the partial", "the journal"])
@pytest.mark.parametrize("rows", [30, 40])
def test_a_complete_run_is_not_finished_with_another_table(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch, left: str, rows: int
) -> None:
    """Everything was written, and only names were missing: a longer table since then is another one."""
    table.write_bytes(b"".join(ROWS[:rows]))
    out, command = table.parent / "out", ("annotate", table, "-m", model_dir, "--block-size", 20, "--resume", "-o")
    with monkeypatch.context() as patch:
        if left == "the partial":
            interrupt_at(patch, PartialFile, "publish", 2, after=False, error=KeyboardInterrupt)  # the first is the sidecar's
        else:
            patch.setattr(row_outputs.os, "unlink", stop_at_journal)
        assert run(*command, out).status == 130
    assert out.exists() == (left == "the journal")
    before = names(table.parent)
    table.write_bytes(b"".join(ROWS[: rows + 10]))
    done = run(*command, out)
    remains = f"{out}.partial" + (".json" if left == "the journal" else "")
    assert done.status == 1
    assert re.search(
        f"rows (differ from|of) the (interrupted run's|complete run); pass that table, or delete {remains} to", done.err
    )
    assert names(table.parent) == before
    table.write_bytes(b"".join(ROWS[:rows]))
    assert run(*command, out).status == 0
    assert names(table.parent) == ["out", "out.columns.json", "table"]
    assert out.read_bytes().count(b"\n") == rows


# What may change when a run is resumed


def keeps_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_outputs, "SECONDS_BETWEEN", 0.0)


@pytest.mark.parametrize("name", ["out", "out.gz"])
@pytest.mark.parametrize("cut", [b"", b"the house 47 ||| das ha"])
def test_a_table_that_was_cut_off_comes_again_whole(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch, name: str, cut: bytes
) -> None:
    """The last block was short, or its last row: it is scored again, and everything before it stays."""
    keeps_blocks(monkeypatch)
    out, whole = table.parent / name, table.parent / f"whole.{name}"
    command = ("annotate", table, "-m", model_dir, "--block-size", 10, "--expect-rows", 100, "--on-bad-row", "drop", "-o")
    table.write_bytes(b"".join(ROWS[:47]) + cut)
    done = run(*command, out)
    assert done.status == 1
    dropped = " (and 1 dropped)" if cut else ""
    assert f"47 rows{dropped} went through where 100 were expected" in done.err
    assert done.err.endswith(f"phrase-rescore: 40 rows are kept in {out}.partial\n")
    table.write_bytes(b"".join(ROWS))
    again, fresh = run(*command, out, "--resume"), run(*command, whole)
    assert (again.status, fresh.status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert not Path(f"{out}.dropped").exists()
    assert names(table.parent) == sorted(["table", *(p + e for p in (name, f"whole.{name}") for e in ("", ".columns.json"))])


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("expected", [0, 47, 1000, "other"])
@pytest.mark.parametrize("bad", [b"", b"bad\n"])
def test_the_advice_on_rows_expected_ends_well(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch, expected: int | str, bad: bytes, kept: bool
) -> None:
    """The wrong number, the file of another table, rows that were dropped: the same command would fail again."""
    if kept:
        keeps_blocks(monkeypatch)
    monkeypatch.chdir(table.parent)
    table.write_bytes(b"".join([*ROWS[:97], bad]))
    Path("other").write_bytes(b"a\n" * 98)
    command = ("annotate", "table", "-m", model_dir, "--block-size", 10, "--on-bad-row", "drop", "-o", "out")
    for resume in ((), ("--resume",)):
        done = run(*command, *resume, "--expect-rows", expected)
        assert done.status == 1
        assert "with --resume" not in done.err
    told = re.search(
        r"expected; add (--resume), and pass the whole table if it is cut off, else (--expect-rows) (97)\n", done.err
    )
    assert told, done.err
    assert ("90 rows are kept in" in done.err) is kept
    assert run(*command, *told.groups()).status == 0
    whole = run("annotate", "table", "-m", model_dir, "--block-size", 10, "--on-bad-row", "drop")
    assert Path("out").read_bytes() == whole.out


def test_a_bad_row_is_dropped_when_the_run_goes_on(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_blocks(monkeypatch)
    table.write_bytes(b"".join([*ROWS[:55], b"bad\n", *ROWS[55:]]))
    out, whole = table.parent / "out", table.parent / "whole"
    command = ("annotate", table, "-m", model_dir, "--block-size", 10, "-o")
    assert "50 rows are kept in" in run(*command, out).err
    again = run(*command, out, "--resume", "--on-bad-row", "drop")
    assert again.status == 0, again.err
    assert "phrase-rescore: --on-bad-row was fail; from row 51 it is drop\n" in again.err
    assert run(*command, whole, "--on-bad-row", "drop").status == 0
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.dropped").read_bytes() == b"bad\n"


def test_unknown_words_are_accepted_when_the_run_goes_on(
    run: Run, table: Path, make_model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_blocks(monkeypatch)
    model = make_model(unk_shares=(0.0, 0.0))
    known = [b"the house ||| das haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n"] * 25
    table.write_bytes(b"".join(known) + b"the palace ||| das haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n")
    out, whole = table.parent / "out", table.parent / "whole"
    command = ("annotate", table, "-m", model, "--block-size", 10, "-o")
    failed = run(*command, out)
    assert "accept with --allow-untrained-unk" in failed.err
    assert "20 rows are kept in" in failed.err
    again = run(*command, out, "--resume", "--allow-untrained-unk")
    assert again.status == 0, again.err
    assert "--allow-untrained-unk was False; from row 21 it is True" in again.err
    assert run(*command, whole, "--allow-untrained-unk").status == 0
    assert out.read_bytes() == whole.read_bytes()


def test_strictness_may_change(run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that do not fit, found by an earlier run, are an error for one that is strict; and a warning again for others."""
    keeps_blocks(monkeypatch)
    monkeypatch.setattr("phrase_rescore.annotation.record.FIT_ROWS", 30)
    rows = b"".join(b"wholly %d ||| unbekannt ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % i for i in range(100))
    table.write_bytes(rows + b"bad\n")
    out, command = table.parent / "out", ("annotate", table, "-m", model_dir, "--block-size", 10, "--resume", "-o")
    failed = run(*command, out)
    assert "100 rows are kept in" in failed.err
    assert "warning: " in failed.err
    table.write_bytes(rows)
    strict = run(*command, out, "--strict")
    assert strict.status == 1
    assert "(--strict)" in strict.err
    done = run(*command, out)
    assert done.status == 0
    assert "warning: " in done.err
    other = table.parent / "other"
    failed = run(*command, other, "--strict")
    assert "20 rows are kept in" in failed.err
    done = run(*command, other)
    assert (done.status, other.read_bytes()) == (0, out.read_bytes())
    assert "--strict was True; from row 21 it is False" in done.err
