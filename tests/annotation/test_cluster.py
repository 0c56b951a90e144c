"""Blocks scored by workers of a Dask cluster: the bytes of a local run, whatever happens to workers, scheduler and lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from dask_harness import Cluster, Line, broken_copy, cluster, free_port, wait_for

from phrase_rescore import annotate, api
from phrase_rescore.annotation import run as table_run
from phrase_rescore.annotation.executors import cluster as on_client
from phrase_rescore.annotation.executors import worker_pool
from phrase_rescore.annotation.executors.worker import Kind
from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.files.blocks import Block

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Dask warns of its own future

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
        standing.add_worker(DELAY=DELAY)
    return standing


@pytest.fixture
def bare(standing: Cluster) -> Cluster:
    """The cluster without a worker, for tests that start their own. They stand together: the others start two more."""
    standing.end_workers()
    return standing


class Annotation:
    """An annotation on a cluster: what was told, and a call after the first blocks."""

    def __init__(self, table: Path, model_dir: str, out: Path) -> None:
        self.table, self.model_dir, self.out = table, model_dir, out
        self.told: list[str] = []
        self.work: list[str] = []

    def __call__(self, where: str, then: Callable[[], object] = lambda: None, after: int = 3, **options: object) -> bytes:
        blocks = 0

        def on_block(statistics: object) -> None:
            nonlocal blocks
            blocks += 1
            if blocks == after:
                threading.Thread(target=then).start()

        summary = annotate(
            self.table, self.model_dir, self.out, block_rows=BLOCK, cluster=where, on_block=on_block, on_work=self.work.append,
            tell=self.told.append, **options,
        )  # type: ignore[arg-type]  # fmt: skip
        self.how = summary.how
        return self.out.read_bytes()


@pytest.fixture
def annotation(table: Path, model_dir: str, tmp_path: Path) -> Annotation:
    return Annotation(table, model_dir, tmp_path / "out")


def test_same_bytes(annotation: Annotation, dask: Cluster, expected: bytes) -> None:
    assert annotation(dask.address) == expected
    assert annotation.how == f"on cpu in float32, 2 workers of {dask.address}"
    assert any("2 workers, " in work and "blocks in flight" in work for work in annotation.work)


@pytest.mark.parametrize("trouble", ["killed", "exits", "hung", "memory", "disk", "slow"])
def test_trouble_of_a_worker_costs_time_and_no_row(
    annotation: Annotation, dask: Cluster, expected: bytes, trouble: str
) -> None:
    assert annotation(dask.address, lambda: dask.trouble(trouble)) == expected
    assert not list(dask.troubles.iterdir())
    assert ("1 lost on the way" in annotation.how) == (trouble in ("killed", "exits", "hung"))
    for worker in dask.workers:  # the one that was stopped, too
        if trouble == "hung" and worker.poll() is None:
            worker.kill()
            worker.wait()


def test_a_worker_that_its_nanny_kills_for_its_memory(
    annotation: Annotation, dask: Cluster, expected: bytes, tmp_path: Path
) -> None:
    (tmp_path / "troubles").mkdir()
    (tmp_path / "troubles" / "swells").touch()
    swelling = dask.add_worker(memory="1GB", TROUBLES=tmp_path / "troubles")
    dask.wait_for_worker(swelling)
    assert annotation(dask.address) == expected
    assert not list((tmp_path / "troubles").iterdir())
    assert "1 lost on the way" in annotation.how
    swelling.terminate()
    swelling.wait(30)


def test_a_cut_between_a_worker_and_the_scheduler(annotation: Annotation, dask: Cluster, expected: bytes) -> None:
    line = Line(dask.port)
    beyond = dask.add_worker(by=f"tcp://127.0.0.1:{line.port}", DELAY=DELAY)
    dask.wait_for_worker(beyond)
    assert annotation(dask.address, line.cut) == expected
    assert "1 lost on the way" in annotation.how
    beyond.wait(30)


def test_a_model_named_from_here_is_found_by_workers_elsewhere(
    annotation: Annotation, dask: Cluster, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(os.path.dirname(annotation.model_dir))
    annotation.model_dir = os.path.basename(annotation.model_dir)
    assert annotation(dask.address) == expected
    assert not [line for line in annotation.told if "sending" in line]


def test_a_worker_with_a_full_disk_is_left_out(
    annotation: Annotation, dask: Cluster, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent the model once, though several of its blocks lacked it: more would wait for an answer of one that has gone."""
    sent, is_there = [], worker_pool._is_there
    monkeypatch.setattr(worker_pool, "_is_there", lambda model: sent.append(model) or is_there(model))
    full = dask.add_worker(DELAY=0, HIDDEN=os.path.realpath(annotation.model_dir), FILE_LIMIT=1000)
    dask.wait_for_worker(full)
    assert annotation(dask.address) == expected
    assert any("left out: worker" in line and "cannot keep the model" in line for line in annotation.told), annotation.told
    full.wait(30)
    assert len(sent) == 1


def test_a_worker_that_fails_at_every_block_is_left_out(annotation: Annotation, dask: Cluster, expected: bytes) -> None:
    starved = dask.add_worker(DELAY=0, ALWAYS="memory")
    dask.wait_for_worker(starved)
    assert annotation(dask.address) == expected
    assert any("left out: worker" in line and "failed at 3 blocks" in line for line in annotation.told), annotation.told
    starved.wait(30)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the second half of the blocks wait until the gate is open."""
    opened, read_blocks = threading.Event(), table_run.read_blocks

    def gated(*stream: object) -> Iterator[Block]:
        for block in read_blocks(*stream):  # type: ignore[arg-type]
            if block.number == ROWS // BLOCK // 2:
                assert opened.wait(60)
            yield block

    monkeypatch.setattr(table_run, "read_blocks", gated)
    monkeypatch.setattr(on_client, "AHEAD", 2)  # so that blocks of the first half come back meanwhile
    return opened


def test_rows_that_come_while_the_scheduler_is_away(
    annotation: Annotation, dask: Cluster, expected: bytes, gate: threading.Event
) -> None:
    line = Line(dask.port)

    def cut() -> None:
        time.sleep(1)  # until all blocks before the gate are back
        line.closed = True
        line.cut()
        time.sleep(0.5)
        gate.set()
        time.sleep(1.5)
        line.closed = False

    assert annotation(f"tcp://127.0.0.1:{line.port}", cut, after=12) == expected
    assert any("lost the scheduler" in told for told in annotation.told)


def test_a_restarted_scheduler(annotation: Annotation, dask: Cluster, expected: bytes) -> None:
    def restart() -> None:
        dask.restart_scheduler()
        for worker in dask.living():
            worker.kill()
        for _ in range(2):
            dask.add_worker(DELAY=DELAY)

    assert annotation(dask.address, restart) == expected
    assert any("lost the scheduler" in line for line in annotation.told)


def test_a_cut_line(annotation: Annotation, dask: Cluster, expected: bytes) -> None:
    line = Line(dask.port)
    assert annotation(f"tcp://127.0.0.1:{line.port}", line.cut) == expected
    assert any("lost the scheduler" in told for told in annotation.told)


def test_a_killed_client_goes_on(
    dask: Cluster, table: Path, model_dir: str, expected: bytes, tmp_path: Path, run: Run, warm_python: str
) -> None:
    out = tmp_path / "out"
    command = ["annotate", str(table), "-m", model_dir, "-o", str(out), "--block-size", str(BLOCK), "--cluster", dask.address]
    client = subprocess.Popen([warm_python, "-m", "phrase_rescore", *command, "-q"])
    partial = tmp_path / "out.partial"
    wait_for(lambda: partial.exists() and partial.stat().st_size > 2000)
    client.kill()
    client.wait()
    assert not out.exists()
    assert run(*command, "--resume").status == 0
    assert out.read_bytes() == expected


def test_strict_refuses_workers_of_another_kind(
    annotation: Annotation, dask: Cluster, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker_pool.kind()
    monkeypatch.setattr(worker_pool, "kind", lambda: Kind(here.version, "1.0", here.cpu, here.has_cuda))
    with pytest.raises(RescoreError, match=r"torch .* here is .*torch 1\.0.*\(--strict\)"):
        annotation(dask.address, strict=True)
    assert annotation(dask.address) == expected
    assert any(line.startswith("warning: workers with") and "last digits" in line for line in annotation.told)


def test_strict_leaves_out_workers_of_another_kind_that_come_later(
    annotation: Annotation, dask: Cluster, expected: bytes, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker_pool.kind()
    monkeypatch.setattr(  # the words of this table are not the model's, which strict would refuse, too
        api,
        "open_cluster",
        lambda where, device, strict, tell: on_client.open_cluster(where, device, strict=True, tell=tell),
    )

    def another() -> None:
        monkeypatch.setattr(worker_pool, "kind", lambda: Kind(here.version, "1.0", here.cpu, here.has_cuda))
        dask.add_worker(DELAY=0)
        wait_for(lambda: any("left out" in line for line in annotation.told))
        gate.set()

    assert annotation(dask.address, another) == expected
    assert any("left out" in line and "(--strict)" in line for line in annotation.told), annotation.told


def test_bad_rows_are_named(dask: Cluster, tmp_path: Path, model_dir: str, run: Run) -> None:
    table = tmp_path / "bad"
    table.write_bytes(b"a ||| b ||| 0.5\n" * 30 + b"bad\n")
    result = run("annotate", table, "-m", model_dir, "--block-size", 10, "--cluster", dask.address, "-o", tmp_path / "out")
    assert result.status == 1
    assert f"{table}:31: 1 field" in result.err


def test_workers_without_a_gpu_are_left_out(annotation: Annotation, dask: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They came when those with one had been asked."""
    monkeypatch.setattr(on_client.Cluster, "devices", lambda cluster, device: ("cuda",))
    with pytest.raises(RescoreError, match="no worker there can score"):
        annotation(dask.address)
    assert any("has no GPU" in line for line in annotation.told)
    dask.end_workers()


def test_a_worker_that_lacks_the_model_is_sent_it(annotation: Annotation, bare: Cluster, expected: bytes) -> None:
    bare.add_worker(DELAY=DELAY, HIDDEN=os.path.realpath(annotation.model_dir))
    assert annotation(bare.address) == expected
    assert [line for line in annotation.told if "sending the model to workers that lack it" in line]


def test_a_broken_copy_of_the_model_is_not_used(
    annotation: Annotation, bare: Cluster, expected: bytes, model_dir: str, tmp_path: Path
) -> None:
    broken = broken_copy(model_dir, tmp_path / "broken")
    bare.add_worker(DELAY=DELAY, HIDDEN=os.path.realpath(model_dir), BROKEN=broken)
    assert annotation(bare.address) == expected
    assert any("another model" in line for line in annotation.told)


def test_an_end_when_nobody_is_left_who_can_score(annotation: Annotation, bare: Cluster) -> None:
    bare.add_worker(HIDDEN=os.path.realpath(annotation.model_dir), FILE_LIMIT=1000)
    with pytest.raises(RescoreError, match="no worker there can score"):
        annotation(bare.address)


def test_another_worker_at_the_same_address(annotation: Annotation, bare: Cluster, expected: bytes) -> None:
    lacking = {"DELAY": DELAY, "HIDDEN": os.path.realpath(annotation.model_dir), "port": free_port()}
    first = bare.add_worker(**lacking)

    def exchange() -> None:
        first.kill()
        first.wait()
        bare.add_worker(**lacking)

    assert annotation(bare.address, exchange) == expected
    assert not any("left out" in line for line in annotation.told)


def test_a_block_that_three_workers_die_of(annotation: Annotation, bare: Cluster, expected: bytes, table: Path) -> None:
    poisoned = [bare.add_worker(DELAY=DELAY, POISON=20) for _ in range(3)]
    with pytest.raises(RescoreError, match=r"table: rows 201 to 210: workers failed .* died; .* died; .* died.*out\.failed"):
        annotation(bare.address)
    kept = annotation.out.with_name("out.failed").read_bytes()
    assert kept == b"".join(table.read_bytes().splitlines(keepends=True)[200:210])
    for worker in poisoned:
        worker.kill()
    bare.add_worker(DELAY=DELAY)
    assert annotation(bare.address, resume=True) == expected


def test_workers_of_another_version_are_left_out(
    annotation: Annotation, dask: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker_pool.kind()
    monkeypatch.setattr(worker_pool, "kind", lambda: Kind("9.9", here.torch, here.cpu, here.has_cuda))
    with pytest.raises(RescoreError, match="no worker there can score"):
        annotation(dask.address)
    assert any("here is 9.9" in line for line in annotation.told)
    dask.end_workers()


def test_local_workers(table: Path, model_dir: str, expected: bytes, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    result = run("annotate", table, "-m", model_dir, "--block-size", BLOCK, "--cluster", "local:2", "-o", out)
    assert result.status == 0, result.err
    assert out.read_bytes() == expected
    assert "2 workers of local:2" in result.err


@pytest.mark.parametrize(("library", "where"), [("distributed", "local:2"), ("dask_jobqueue", "slurm:2")])
def test_without_dask_one_line_says_what_to_install(
    annotation: Annotation, run: Run, monkeypatch: pytest.MonkeyPatch, library: str, where: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    result = run("annotate", annotation.table, "-m", annotation.model_dir, "--cluster", where, "-o", annotation.out)
    assert result.status == 2
    assert result.last_line.endswith(f"--cluster {where} needs {library}: pip install 'phrase-rescore[cluster]'")


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


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [
        ("nowhere", OptionError, "--cluster nowhere: is none of tcp://HOST:PORT"),
        ("local:many", OptionError, "'many' is not a whole number from 1 to 100000, as in local:4"),
        ("file:none.json", RescoreError, "none.json: no such file; start dask scheduler"),
        ("tcp://127.0.0.1:1", RescoreError, "no scheduler answers there"),
    ],
)
def test_places_that_cannot_be_reached(
    annotation: Annotation, where: str, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_client, "FIRST_CONNECTION", 1.0)
    with pytest.raises(error, match=says):
        annotation(where)


def test_jobs_are_for_this_machine(annotation: Annotation) -> None:
    with pytest.raises(OptionError, match="--jobs is for this machine"):
        annotation("local:1", jobs=2)


def test_a_lost_scheduler_that_stays_away(
    annotation: Annotation, dask: Cluster, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of the standing cluster's scheduler: it ends."""
    monkeypatch.setattr(on_client, "PATIENCE", 2.0)
    begun = time.monotonic()
    with pytest.raises(RescoreError, match=r"no scheduler answers there.*go on with --resume"):
        annotation(dask.address, dask.scheduler.kill)
    assert time.monotonic() - begun < 120
    assert annotation("local:1", resume=True) == expected
    dask.restart_scheduler()


def test_a_wrong_path_is_told_before_a_cluster_is_asked(annotation: Annotation, tmp_path: Path) -> None:
    annotation.table = tmp_path / "none.gz"
    with pytest.raises(OptionError, match=r"none\.gz: No such file or directory; check the path"):
        annotation("local:1")
    assert annotation.told == []


@pytest.mark.parametrize(("workers", "in_flight", "seconds"), [(1, 9, 5.0), (2, 9, 3.0), (5, 9, 1.0), (5, 2, 3.0)])
def test_the_model_of_a_cluster_by_hand(workers: int, in_flight: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five blocks of a second each: the workers share them, and no more are on their way than may be."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from simulate_cluster import Costs, simulate

    assert simulate(5, workers, Costs(0.0, 0.0, 0.0, 1.0), in_flight).seconds == seconds
    assert simulate(5, 5, Costs(1.0, 1.0, 0.0, 0.0), in_flight).seconds == 10.0  # the client alone reads and writes


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_parts_cut_after_whole_blocks_make_the_bytes_of_one_run(
    table: Path, model_dir: str, tmp_path: Path, suffix: str
) -> None:
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


def test_parts_cut_elsewhere_differ_in_the_last_digits_alone(
    table: Path, model_dir: str, tmp_path: Path, expected: bytes
) -> None:
    rows, found = table.read_bytes().splitlines(keepends=True), b""
    for start in range(0, ROWS, 3 * BLOCK - 7):
        part, out = tmp_path / "part", tmp_path / "out"
        part.write_bytes(b"".join(rows[start : start + 3 * BLOCK - 7]))
        annotate(part, model_dir, out, block_rows=BLOCK, jobs=1)
        found += out.read_bytes()
        out.unlink()
    scores = [
        np.log([float(row.split(b" ||| ")[2].split()[2]) for row in written.splitlines()]) for written in (found, expected)
    ]
    assert len(scores[0]) == ROWS
    assert abs(scores[0] - scores[1]).max() < 1e-4


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls_by_dasks_own_settings(
    annotation: Annotation, expected: bytes, tmp_path: Path, warm_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    names = ("CA_FILE", *(f"{role}__{what}" for role in ("SCHEDULER", "WORKER", "CLIENT") for what in ("CERT", "KEY")))
    for name in names:
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{name}", str(key if name.endswith("KEY") else certificate))
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION", "True")
    import dask

    dask.config.refresh()
    with cluster(tmp_path / "tls", 1, scheme="tls", python=warm_python) as started:
        assert annotation(started.address) == expected
        assert started.address.startswith("tls://")
    monkeypatch.undo()
    dask.config.refresh()
