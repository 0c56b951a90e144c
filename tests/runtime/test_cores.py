"""How many cores a command uses unless it is told: OMP_NUM_THREADS and the quota of a container bound them."""

import os
import threading
from pathlib import Path

import pytest

from phrase_rescore.runtime import in_threads, prepare_parts, share_of_cores, usable_cores

HERE = len(os.sched_getaffinity(0))
V1 = "sys/fs/cgroup/cpu"


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def system(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(("group", "files", "cores"), [
    ("0::/\n", {}, HERE), ("", {"sys/fs/cgroup/cpu.max": "100000 100000\n"}, HERE), ("\0\n:\n1:cpu\n", {}, HERE),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, HERE), ("0::/\n", {"sys/fs/cgroup/cpu.max": "much\n"}, HERE),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "90000 100000\n"}, 1), ("0::/\n", {"sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "110000 100000\n"}, min(2, HERE)),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "100000 0\n"}, HERE),
    ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n"}, 1),
    ("0::/not/seen/here\n", {"sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
    ("4:cpuset:/\n3:cpu,cpuacct:/a\n", {f"{V1}/a/cpu.cfs_quota_us": "50000\n", f"{V1}/a/cpu.cfs_period_us": "100000\n"}, 1),
    ("3:cpu:/\n", {f"{V1}/cpu.cfs_quota_us": "-1\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, HERE),
    ("3:memory:/\n", {"sys/fs/cgroup/cpu.max": "100000 100000\n"}, HERE),
])  # fmt: skip
def test_a_container_s_quota_bounds_the_cores(tmp_path: Path, group: str, files: dict[str, str], cores: int) -> None:
    assert usable_cores(system(tmp_path, {"proc/self/cgroup": group, **files})) == cores


def test_without_proc_and_sys(tmp_path: Path) -> None:
    assert usable_cores(str(tmp_path)) == HERE


@pytest.mark.parametrize(("asked", "cores"), [
    ("1", 1), ("1,4", 1), (" 1 ", 1), ("9999", HERE), ("0", HERE), ("-1", HERE), ("", HERE), ("many", HERE),
])  # fmt: skip
def test_omp_num_threads_bounds_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, cores: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_cores(str(tmp_path)) == cores


def test_torchrun_s_own_omp_num_threads_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets 1 for several processes, whoever wants what."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert share_of_cores() == 4


def test_parts_are_computed_on_so_many_cores_at_a_time() -> None:
    assert (prepare_parts(3, "cpu"), prepare_parts(None, "cpu"), prepare_parts(3, "cuda")) == (3, usable_cores(), 1)
    together = threading.Barrier(3, timeout=60)  # passed only if three are there at once
    assert in_threads(lambda part: together.wait() >= 0 and part, [5, 6, 7], 3) == [5, 6, 7]
