"""``--device`` and ``--precision``: names that a machine has and names that it lacks; the cores of a process."""

import os

import pytest
import torch

from phrase_rescore import runtime
from phrase_rescore.errors import OptionError
from phrase_rescore.runtime import check_precision, resolve_device, resolve_devices, resolve_precision, share_of_cores


def test_a_precision_that_a_device_lacks() -> None:
    for precision, device, here in (("float32", "cpu", True), ("tf32", "cuda:1", True), ("bf16", "cuda", False)):
        assert check_precision(precision, device, here) == ""
    with pytest.raises(OptionError, match="tf32 is for GPUs; on a CPU use float32"):
        check_precision("tf32", "cpu")


def test_the_precision_of_trainings_is_that_of_the_cpu_s_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker, flags, found in (
        ("GenuineIntel", "avx512_bf16 amx_bf16 amx_tile", "bf16"), ("GenuineIntel", "avx512_bf16", "float32"),
        ("AuthenticAMD", "avx512f avx512_bf16", "bf16"), ("AuthenticAMD", "avx512f", "float32"), ("", "", "float32"),
    ):  # fmt: skip
        monkeypatch.setattr(runtime, "_read", lambda path, cpu=f"vendor_id : {maker}\nflags : fpu {flags}\n": cpu)
        assert resolve_precision("auto", "cpu") == found
        assert resolve_precision("auto", "cuda:0") == "float32"
        assert [resolve_precision(name, "cpu") for name in ("float32", "bf16")] == ["float32", "bf16"]


def test_where_onednn_s_products_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker, flags, faster in (
        ("AuthenticAMD", "avx2 avx512f", True),
        ("AuthenticAMD", "avx2", False),
        ("GenuineIntel", "avx512f", False),
    ):
        monkeypatch.setattr(runtime, "_read", lambda path, cpu=f"vendor_id : {maker}\nflags : fpu {flags}\n": cpu)
        assert runtime.onednn_is_faster.__wrapped__() == faster


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_devices("auto") == ("cuda:0", "cuda:1")
    assert resolve_devices("cuda:1, cuda:1") == ("cuda:1", "cuda:1")
    assert resolve_device("auto") == "cuda"
    for names in ("cuda:2", "cpu,cuda:0", "", "gpu", "cpu,", "meta"):
        with pytest.raises(OptionError, match="--device"):
            resolve_devices(names)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert resolve_devices("auto") == ("cpu",)
    with pytest.raises(OptionError, match="no such device"):
        resolve_devices("cuda")


def test_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS")
    for processes, cores in ((None, 8), ("1", 8), ("3", 2), ("16", 1)):
        if processes:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert share_of_cores() == cores
