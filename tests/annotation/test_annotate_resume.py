"""An annotation that was killed, or whose disk was full, goes on to the same bytes; nothing is reused that should not be."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Run

from phrase_rescore.annotation.annotator import Statistics
from phrase_rescore.annotation.pipeline import workers
from phrase_rescore.annotation.run import Files, annotate
from phrase_rescore.errors import OptionError
from phrase_rescore.files import resumable
from phrase_rescore.models.checkpoint import load, save
from phrase_rescore.moses.score_columns import ColumnFormat

pytestmark = pytest.mark.slow

ROWS = [b"the house %d ||| das haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % i for i in range(100)]


def test_faults_at_every_place(tmp_path: Path) -> None:
    """The program behind ``make faults``, on a small invented table."""
    small = ["--invented", "--rows", "300", "--block-size", "20", "--each", "3"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, ROOT / "tests" / "faults.py", *small]
    done = subprocess.run(program, capture_output=True, text=True, env=env, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = {line[:48].strip(): (int(line[48:53]), line[53:].strip()) for line in done.stdout.splitlines()}
    assert {outcome for _, outcome in kinds.values()} == {"identical", "as it should be"}
    assert kinds["final names"][0] == 14
    assert len(kinds) == 9


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "table").write_bytes(b"".join(ROWS))
    return tmp_path / "table"


class Stopped(Exception):
    """What ends an annotation in the middle of these tests."""


@pytest.fixture
def interrupted(table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Annotates ``rows`` rows in blocks of ten, then stops; returns OUT."""

    def interrupt(rows: int, out: str = "out.gz", form: ColumnFormat = ColumnFormat()) -> Path:  # noqa: B008
        def stop(statistics: Statistics) -> None:
            if statistics.rows >= rows:
                raise Stopped

        files = Files(str(table), (model_dir,), str(table.parent / out))
        with pytest.raises(Stopped) as raised, workers(1) as executor:
            annotate(files, form, executor, 1, block_rows=10, on_block=stop)
        assert raised.value.__notes__ == [
            f"{rows} rows are kept in {files.out}.partial; the same command with --resume goes on"
        ]
        assert not Path(files.out).exists()
        return Path(files.out)

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
    assert [line for line in told[0] if "scored" not in line] == [line for line in told[1] if "scored" not in line]
    assert "100 rows of 100 sources" in again.err


def test_the_same_rows_from_a_pipe(run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]) -> None:
    out = interrupted(40)
    packed = gzip.compress(table.read_bytes())
    assert run("annotate", "-", "-m", model_dir, "-o", out, "--block-size", 10, "--resume", stdin=packed).status == 0
    assert gzip.decompress(out.read_bytes()).count(b"\n") == 100


def test_without_resume_nothing_is_reused_or_lost(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]
) -> None:
    out = interrupted(40)
    left = Path(f"{out}.partial").read_bytes()
    refused = run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10)
    text = f"phrase-rescore: error: {out}.partial is of an interrupted run; go on with --resume, or delete it to begin anew\n"
    assert (refused.status, refused.err) == (2, text)
    assert Path(f"{out}.partial").read_bytes() == left
    Path(f"{out}.partial").unlink()
    assert run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10).status == 0, "its journal alone is nothing"
    assert not Path(f"{out}.partial.json").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--block-size", 20], "block_size was 10 and is 20 now"),
        (["--digits", 5], "digits was 7 and is 5 now"),
        (["--features", "score"], "features was ['score', 'count'] and is ['score'] now"),
        (["--gzip-level", "fast"], "gzip_level was '6' and is 'fast' now"),
        (["--precision", "bf16"], "precision was 'float32' and is 'bf16' now"),
    ],
)
def test_other_options_are_refused(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path], options: list[object], told: str
) -> None:
    out = interrupted(20)
    done = run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--resume", *options)
    assert done.status == 2
    assert done.last_line == f"phrase-rescore: error: --resume: {told}; delete {out}.partial to begin anew"
    assert Path(f"{out}.partial").exists()


def test_another_model_is_refused(
    run: Run, table: Path, make_model: Callable[..., str], interrupted: Callable[[int], Path]
) -> None:
    out, other = interrupted(20), make_model(source=[b"the", b"house"])
    done = run("annotate", table, "-m", other, "-o", out, "--block-size", 10, "--resume")
    assert done.status == 2
    assert "--resume: models was" in done.last_line


def test_other_rows_are_refused_and_later_ones_are_not(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]
) -> None:
    out, command = interrupted(20), ("annotate", table, "-m", model_dir, "--block-size", 10, "--resume", "-o")
    table.write_bytes(b"".join([*ROWS[:19], ROWS[0], *ROWS[20:]]))
    done = run(*command, out)
    assert done.status == 1
    found = f"{table}: its first 20 rows are not those of the interrupted run"
    assert f"error: {found}; pass that table, or delete {out}.partial to begin anew" in done.err
    table.write_bytes(b"".join(ROWS[:10]))
    assert "are not those of the interrupted run" in run(*command, out).err, "a shorter one"
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

    def stop(statistics: Statistics) -> None:
        if statistics.rows >= 40:
            raise Stopped

    form = ColumnFormat(drop_bad_rows=True)
    with pytest.raises(Stopped), workers(1) as executor:
        annotate(Files(str(table), (str(factored),), str(out)), form, executor, 1, block_rows=10, on_block=stop)
    command = ("annotate", table, "-m", factored, "--block-size", 10, "--on-bad-row", "drop", "-o")
    again, fresh = run(*command, out, "--resume"), run(*command, whole)
    assert (again.status, fresh.status) == (0, 0), again.err
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.dropped").read_bytes() == Path(f"{whole}.dropped").read_bytes() == ROWS[7]
    warnings = [[line for line in done.err.splitlines() if "warning" in line] for done in (again, fresh)]
    assert warnings[0] == warnings[1] != []


def test_a_journal_names_no_file_that_this_run_does_not_write(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int, str, ColumnFormat], Path]
) -> None:
    table.write_bytes(b"no row\n".join((b"".join(ROWS[:7]), b"".join(ROWS[7:]))))
    out = interrupted(29, "out.gz", ColumnFormat(drop_bad_rows=True))  # of three blocks
    command = ("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--on-bad-row", "drop", "--resume")
    before = names(out.parent)
    done = run(*command, "--dropped", table.parent / "other")
    told = f"--resume: the interrupted run wrote {out}.dropped too, and this one does not; name it as before, or delete "
    assert (done.status, done.last_line) == (2, f"phrase-rescore: error: {told}{out}.partial to begin anew")
    assert names(out.parent) == before
    assert run(*command).status == 0
    assert Path(f"{out}.dropped").read_bytes() == b"no row\n"


def test_a_link_in_the_journals_place_is_not_followed(
    run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]
) -> None:
    out, precious = interrupted(20), table.parent / "precious"
    precious.write_bytes(b"mine")
    Path(f"{out}.partial.json.new").symlink_to(precious)
    done = run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--resume")
    assert (done.status, precious.read_bytes()) == (0, b"mine")


def test_damaged_partials_are_told(run: Run, table: Path, model_dir: str, interrupted: Callable[[int], Path]) -> None:
    out, command = interrupted(20), ("annotate", table, "-m", model_dir, "--block-size", 10, "--resume", "-o")
    partial, journal = Path(f"{out}.partial"), Path(f"{out}.partial.json")
    good = partial.read_bytes()
    for bad in (good[:-1], b"x" + good[1:]):
        partial.write_bytes(bad)
        assert run(*command, out).last_line.endswith(f"{partial} is not what its journal says; delete it to begin anew")
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
        told = f"{journal} is damaged or not a journal of this version; delete it and {partial} to begin anew"
        assert run(*command, out).last_line.endswith(told)
    journal.write_text(text)
    assert run(*command, out).status == 0


def test_two_at_once_are_refused(run: Run, table: Path, model_dir: str) -> None:
    out = table.parent / "out.gz"
    holder = resumable.PartialFile(str(out))
    holder.open()
    done = run("annotate", table, "-m", model_dir, "-o", out, "--resume")
    assert (done.status, done.last_line) == (
        2, f"phrase-rescore: error: {out}.partial is being written by another process; let it end"
    )  # fmt: skip
    holder.close()
    assert run("annotate", table, "-m", model_dir, "-o", out).status == 0, "what was never in a journal is begun anew"


def test_resume_needs_a_file(run: Run, table: Path, model_dir: str) -> None:
    for out in ("-", "/dev/null"):
        done = run("annotate", table, "-m", model_dir, "-o", out, "--resume")
        assert done.status == 2
        assert f"--resume needs a file to go on with; name it with -o, and not {out}" in done.last_line


def test_a_failure_before_anything_was_kept_leaves_nothing(run: Run, table: Path, model_dir: str) -> None:
    table.write_bytes(b"".join(ROWS[:50]) + b"bad\n")
    done = run("annotate", table, "-m", model_dir, "-o", table.parent / "out.gz", "--block-size", 100)
    assert done.status == 1
    assert names(table.parent) == ["table"]


def test_a_bad_row_late_in_the_table_loses_nothing(
    run: Run, table: Path, model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN", 0.0)
    table.write_bytes(b"".join(ROWS[:50]) + b"bad\n")
    out = table.parent / "out.gz"
    with pytest.raises(Exception, match="1 field in 'bad'") as raised, workers(1) as executor:
        annotate(Files(str(table), (model_dir,), str(out)), ColumnFormat(), executor, 1, block_rows=10)
    assert "50 rows are kept in" in raised.value.__notes__[0]
    table.write_bytes(b"".join(ROWS))
    assert run("annotate", table, "-m", model_dir, "-o", out, "--block-size", 10, "--resume").status == 0


class Dies:
    """A block function's stand-in whose worker is killed, as by the kernel when memory runs out."""

    def __call__(self, *block: object) -> None:
        os.kill(os.getpid(), 9)


def test_a_dead_worker_is_noticed(table: Path) -> None:
    """Of executors with processes, which a library caller may pass: no hang, the error is the executor's."""
    from phrase_rescore.annotation.pipeline import in_order
    from phrase_rescore.files.blocks import Block

    blocks = [Block(i, 10 * i + 1, b"") for i in range(5)]
    with ProcessPoolExecutor(2) as executor, pytest.raises(BrokenProcessPool):
        list(in_order(executor, Dies(), blocks, in_flight=4))


def test_options_error_before_reading(table: Path, model_dir: str) -> None:
    files = Files(str(table), (model_dir,), str(table.parent / "none" / "out"))
    with workers(1) as executor, pytest.raises(OptionError, match="cannot write"):
        annotate(files, ColumnFormat(), executor, 1)
