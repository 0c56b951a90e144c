"""Blocks scored by workers of a Dask cluster: the bytes of a local run, whatever happens to workers and their lines."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Run
from dask_harness import Cluster, broken_copy, cluster, wait_for

from phrase_rescore import annotate
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.errors import OptionError, RescoreError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("distributed"), reason="needs Dask"),
    pytest.mark.filterwarnings("default"),  # Dask warns of its own future
]

ROWS, BLOCK, DELAY = 400, 10, 0.03


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table"
    path.write_bytes(
        b"".join(b"la maison %d ||| the house %d ||| 0.5 0.25 ||| 0-0 1-1 ||| 4 2 1\n" % (i // 3, i) for i in range(ROWS))
    )
    return path


@pytest.fixture(scope="module")
def expected(table: Path, model_dir: str) -> bytes:
    out = table.parent / "expected"
    annotate(table, model_dir, out, block_rows=BLOCK, jobs=1)
    return out.read_bytes()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Iterator[Cluster]:
    """A cluster for all tests of this module, each of which leaves two workers behind."""
    with cluster(tmp_path_factory.mktemp("dask"), 2, python=warm_python, DELAY=DELAY) as started:
        yield started


@pytest.fixture
def dask(standing: Cluster) -> Cluster:
    for path in standing.troubles.iterdir():
        path.unlink()
    while len(standing.living()) < 2:
        standing.wait_for_worker(standing.add_worker(DELAY=DELAY))
    return standing


@pytest.fixture
def bare(standing: Cluster) -> Cluster:
    """The cluster without a worker, for tests that start their own. They stand together: the others start two more."""
    standing.end_workers()
    return standing


class Annotation:
    """An annotation on a cluster: what was said, and a call after the first blocks."""

    def __init__(self, table: Path, model_dir: str, out: Path) -> None:
        self.table, self.model_dir, self.out = table, model_dir, out
        self.said: list[str] = []
        self.warned: list[str] = []

    def __call__(self, where: str, then: Callable[[], object] = lambda: None, after: int = 3, **options: object) -> bytes:
        blocks = 0

        def on_block(statistics: object) -> None:
            nonlocal blocks
            blocks += 1
            if blocks == after:
                threading.Thread(target=then).start()

        observer = AnnotateObserver(self.said.append, self.warned.append, on_block=on_block)
        summary = annotate(self.table, self.model_dir, self.out, block_rows=BLOCK, cluster=where, observer=observer, **options)
        self.how = summary.how
        return self.out.read_bytes()


@pytest.fixture
def annotation(table: Path, model_dir: str, tmp_path: Path) -> Annotation:
    return Annotation(table, model_dir, tmp_path / "out")


def test_same_bytes(annotation: Annotation, dask: Cluster, expected: bytes) -> None:
    for worker in dask.workers:
        dask.wait_for_worker(worker)
    assert annotation(dask.address) == expected
    assert annotation.how == f"on cpu in float32, 2 workers of {dask.address}"


# A worker that its nanny kills, a cut line, many at once: tests/faults/cluster_faults.py


@pytest.mark.parametrize("trouble", ["killed", "exits", "hung", "memory", "disk", "slow"])
def test_trouble_of_a_worker_costs_time_and_no_row(annotation, dask, expected, trouble) -> None:
    assert annotation(dask.address, lambda: dask.trouble(trouble)) == expected
    assert not list(dask.troubles.iterdir())
    for worker in dask.workers:  # the one that was stopped, too
        if trouble == "hung" and worker.poll() is None:
            worker.kill()
            worker.wait()


def test_a_model_named_from_here_is_found_by_workers_elsewhere(annotation, dask, expected, monkeypatch) -> None:
    monkeypatch.chdir(os.path.dirname(annotation.model_dir))
    annotation.model_dir = os.path.basename(annotation.model_dir)
    assert annotation(dask.address) == expected


def test_each_time_that_no_worker_is_left_is_told() -> None:
    from phrase_rescore.annotation.cluster import Cluster

    counts = iter([{"one": 1, "two": 1}, {}, {}, {"one": 1}, {}])
    warned = list[str]()
    client: Any = SimpleNamespace(nthreads=lambda: next(counts))
    watched = Cluster(client, "here", AnnotateObserver(warn=warned.append))
    for _ in range(5):
        watched.watch()
    assert (len(warned), watched.description) == (2, "2 workers of here")


@pytest.mark.parametrize(("there", "told"), [
    ("nothing", "lacks the model"), ("another model", "has another model at"), ("a later version", "has phrase-rescore 9.9,"),
])  # fmt: skip
def test_a_worker_without_the_model_is_named(annotation, bare, tmp_path, there, told) -> None:
    settings = {"VERSION": "9.9"} if "version" in there else {"HIDDEN": os.path.realpath(annotation.model_dir)}
    if there == "another model":
        settings["BROKEN"] = broken_copy(annotation.model_dir, tmp_path / "broken")
    bare.add_worker(**settings)
    with pytest.raises(RescoreError, match=f"worker .* {told}"):
        annotation(bare.address)
    bare.end_workers()


def test_a_killed_client_goes_on(dask: Cluster, table: Path, model_dir: str, expected: bytes, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    command = ["annotate", str(table), "-m", model_dir, "-o", str(out), "--block-size", str(BLOCK), "--cluster", dask.address]
    client = subprocess.Popen([sys.executable, "-m", "phrase_rescore", *command, "-q"])  # a warm one outlives its caller
    partial = tmp_path / "out.partial"
    wait_for(lambda: partial.exists() and partial.stat().st_size > 2000)
    client.kill()
    client.wait()
    assert not out.exists()
    assert run(*command, "--resume").status == 0
    assert out.read_bytes() == expected


def test_workers_with_another_version_are_refused(annotation, dask, monkeypatch) -> None:
    monkeypatch.setattr("phrase_rescore.annotation.cluster.__version__", "9.9")
    with pytest.raises(RescoreError, match=r"worker .* has .*, here is 9\.9"):
        annotation(dask.address)


def test_another_torch_is_a_warning(annotation, dask, expected, monkeypatch) -> None:
    monkeypatch.setattr("torch.__version__", "9.9")
    assert annotation(dask.address) == expected
    assert any("here is 9.9" in line for line in annotation.warned)


def test_bad_rows_are_named(dask: Cluster, tmp_path: Path, model_dir: str, run: Run) -> None:
    table = tmp_path / "bad"
    table.write_bytes(b"a ||| b ||| 0.5\n" * 30 + b"bad\n")
    result = run("annotate", table, "-m", model_dir, "--block-size", 10, "--cluster", dask.address, "-o", tmp_path / "out")
    assert result.status == 1
    assert f"{table}:31: 1 field" in result.err


def test_a_block_that_workers_die_of(annotation: Annotation, bare: Cluster, expected: bytes) -> None:
    for _ in range(4):  # one more than Dask's allowed-failures
        bare.wait_for_worker(bare.add_worker(DELAY=DELAY, POISON=20))
    with pytest.raises(RescoreError, match=r"table: rows 201 to 210: workers failed at them .* died\)"):
        annotation(bare.address)
    bare.end_workers()
    bare.add_worker(DELAY=DELAY)
    assert annotation(bare.address, resume=True) == expected


def test_local_workers(table: Path, model_dir: str, expected: bytes, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    result = run("annotate", table, "-m", model_dir, "--block-size", BLOCK, "--cluster", "local:2", "-o", out)
    assert result.status == 0, result.err
    assert out.read_bytes() == expected
    assert "2 workers of local:2" in result.err


@pytest.mark.parametrize(("library", "where"), [("distributed", "local:2"), ("dask_jobqueue", "slurm:2")])
def test_without_dask_one_line_says_what_to_install(annotation, run, monkeypatch, library, where) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    if library == "distributed":
        monkeypatch.delitem(sys.modules, "phrase_rescore.annotation.cluster", raising=False)
    result = run("annotate", annotation.table, "-m", annotation.model_dir, "--cluster", where, "-o", annotation.out)
    assert result.status == 2
    assert result.last_line.endswith(f"--cluster {where} needs {library}; run: pip install 'phrase-rescore[cluster]'")


SBATCH = """#!/bin/sh
cp "$1" "$JOBS/$$"
setsid sh "$JOBS/$$" > "$JOBS/$$.log" 2>&1 &
echo "Submitted batch job $!"
"""


def test_slurm(table: Path, model_dir: str, expected: bytes, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """dask-jobqueue submits to a stand-in of Slurm, which starts every job at once."""
    for name, script in (("sbatch", SBATCH), ("scancel", '#!/bin/sh\nkill -- "-$1"\n')):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    settings = {"CORES": "1", "MEMORY": "2GB", "INTERFACE": "lo", "LOCAL_DIRECTORY": str(tmp_path)}
    for name, value in settings.items():
        monkeypatch.setenv(f"DASK_JOBQUEUE__SLURM__{name}", value)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(tmp_path))
    import dask

    dask.config.refresh()
    out = tmp_path / "out"
    result = run("annotate", table, "-m", model_dir, "--block-size", BLOCK, "--cluster", "slurm:1", "-o", out)
    assert result.status == 0, result.err
    assert out.read_bytes() == expected


@pytest.mark.parametrize(("where", "error", "says"), [
    ("nowhere", OptionError, "--cluster nowhere is not one of tcp://HOST:PORT"),
    ("local:many", OptionError, "'many' is not a whole number from 1 to 100000, as in local:4"),
    ("file:none.json", RescoreError, "none.json: no such file; start dask scheduler"),
    ("tcp://127.0.0.1:1", RescoreError, "no scheduler answers there"),
])  # fmt: skip
def test_places_that_cannot_be_reached(annotation, where, error, says, monkeypatch) -> None:
    monkeypatch.setattr("phrase_rescore.annotation.cluster.FIRST_CONNECTION", 1.0)
    with pytest.raises(error, match=says):
        annotation(where)


def test_jobs_are_for_this_machine(annotation: Annotation) -> None:
    with pytest.raises(OptionError, match="--jobs is for this machine"):
        annotation("local:1", jobs=2)


def test_a_lost_scheduler_ends_the_run_and_resume_goes_on(annotation, dask, table, model_dir, expected) -> None:
    """The last test of the standing cluster's scheduler."""
    with pytest.raises(RescoreError, match=r"scheduler .* kept: .*--resume"):
        annotation(dask.address, dask.scheduler.kill, after=12)
    annotate(table, model_dir, annotation.out, block_rows=BLOCK, jobs=1, resume=True)
    assert annotation.out.read_bytes() == expected


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_parts_cut_after_whole_blocks_make_the_bytes_of_one_run(table, model_dir, tmp_path, suffix) -> None:
    """GNU split cuts the table and cat puts the parts together, as ``docs/cluster.md`` does for an array of jobs."""
    cut = f"cat {table} | split -l {3 * BLOCK} -d -a 4 --filter='gzip > $FILE.gz' - {tmp_path}/part."
    subprocess.run(["bash", "-c", cut], check=True)
    parts = sorted(tmp_path.glob("part.*.gz"))
    assert len(parts) == -(-ROWS // (3 * BLOCK))
    joined = b""
    for part in parts:
        out = part.with_name(f"{part.name}.out{suffix}")
        annotate(part, model_dir, out, block_rows=BLOCK, jobs=1)
        joined += out.read_bytes()
    whole = tmp_path / f"whole{suffix}"
    annotate(table, model_dir, whole, block_rows=BLOCK, jobs=2)
    assert joined == whole.read_bytes()
