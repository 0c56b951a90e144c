"""The machine that computes: cores, memory, devices and precisions (``--threads``, ``--device``, ``--precision``)."""

import contextlib
import ctypes
import functools
import gc
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from phrase_rescore.errors import OptionError
from phrase_rescore.messages import printable
from phrase_rescore.ranges import Words

PRECISIONS = Words(("float32", "tf32", "bf16"))
OWN_PRECISIONS = Words(("auto", *PRECISIONS))

S = TypeVar("S")
T = TypeVar("T")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def usable_cores(root: str = "/") -> int:
    """Return the number of cores to use unless another is asked for: those that this process may run on.

    A container's quota of their time bounds it (below ``root``: /proc and /sys), and OMP_NUM_THREADS.
    """
    cores = len(os.sched_getaffinity(0))
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of nested regions the outermost
    if asked.isdecimal() and int(asked) and _processes_here() == 1:  # torchrun sets it itself, to 1
        cores = min(cores, int(asked))
    return min([cores, *(max(1, math.ceil(share)) for share in _quotas(root))])


def _quotas(root: str) -> Iterator[float]:
    """Yield how many cores' time the control groups of this process leave it, of both versions, the innermost first."""
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, inside = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = inside.strip("/")
        while True:
            folder = os.path.join(root, "sys/fs/cgroup", "cpu" if controllers else "", group)
            found = _read(os.path.join(folder, "cpu.max"))  # 150000 100000, or max 100000
            if controllers:
                found = " ".join(_read(os.path.join(folder, f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
            with contextlib.suppress(ValueError, ZeroDivisionError):
                quota, period = map(int, found.split())
                if quota > 0:  # -1: none
                    yield quota / period
            if not group:
                break
            group = os.path.dirname(group)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except (OSError, ValueError):  # a name with NUL
        return ""


def _processes_here() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def share_of_cores() -> int:
    """Return the cores of this process: torchrun may have started several on this machine."""
    return max(1, usable_cores() // _processes_here())


def use_threads(threads: int) -> None:
    """Let the calling thread compute on ``threads`` cores. Results then do not depend on which worker did what."""
    import torch

    torch.set_flush_denormal(True)  # running averages of rare words, softmax tails: each would cost a hundred normal numbers
    torch.set_num_threads(threads)


def prepare_parts(threads: int | None, device: str) -> int:
    """Configure torch for parts that compute on a core each. Return how many may at a time, on a GPU one."""
    prepare(1)
    return (threads or usable_cores()) if device == "cpu" else 1


def in_threads(function: Callable[[S], T], parts: Sequence[S], threads: int) -> list[T]:
    """Return ``function`` of every part, in order, ``threads`` parts at a time.

    After ``prepare_parts`` each computes on one core, so that threads do not change a bit. An interruption does not wait for
    parts in work.
    """
    if threads == 1 or len(parts) < 2:
        return [function(part) for part in parts]
    executor = ThreadPoolExecutor(threads, initializer=use_threads, initargs=(1,))
    try:
        done = list(executor.map(function, parts))
    except BaseException as error:
        executor.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    executor.shutdown()
    return done


def prepare(threads: int | None = None) -> None:
    """Configure torch for computing on ``threads`` cores, by default all usable ones. Call it before anything is computed."""
    use_threads(threads or usable_cores())
    keep_freed_memory()


def keep_freed_memory(keep: bool = True) -> None:
    """Let glibc keep freed blocks: it gives large ones back to the kernel, and new pages cost as much as arithmetic on them."""
    size = 1 << 30 if keep else 128 << 10  # glibc's own thresholds
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, size)
        mallopt(_M_TRIM_THRESHOLD, size)


@contextlib.contextmanager
def no_cycle_collection() -> Iterator[None]:
    """Turn Python's search for reference cycles off: rows make none, and the search doubles the time that text takes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def resolve_device(name: str) -> str:
    """Turn ``auto`` into ``cuda`` or ``cpu``; check any other name. Raises OptionError for a device that is not there."""
    named = re.fullmatch(r"auto|cpu(:\d+)?|cuda(?::(\d+))?", name, re.ASCII)
    if not named:
        raise OptionError(f"--device {printable(name)}: write auto, cpu, cuda or cuda:0")
    if name.startswith("cpu"):
        return "cpu"
    import torch  # a second, which who asks for the CPU need not wait for here

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if int(named[2] or 0) >= torch.cuda.device_count():
        raise OptionError(f"--device {printable(name)}: torch sees no such device here; write auto or cpu")
    return name


def resolve_devices(names: str) -> tuple[str, ...]:
    """Turn ``auto`` into every GPU there is, or ``cpu``; split a list such as ``cuda:0,cuda:2``. Raises OptionError."""
    import torch

    if names == "auto":
        return tuple(f"cuda:{n}" for n in range(torch.cuda.device_count())) or ("cpu",)
    devices = tuple(resolve_device(name.strip()) for name in names.split(","))
    if len({torch.device(device).type for device in devices}) > 1:
        raise OptionError(f"--device {names}: CPU and GPU differ in the last digits; name devices of one type")
    return devices


def resolve_precision(name: str, device: str) -> str:
    """Turn ``auto`` into ``bf16`` on a CPU with units for it (AMX, or AMD's AVX-512), else ``float32``; leave another name."""
    if name != "auto":
        return name
    return "bf16" if device == "cpu" and (_has("amx_bf16") or _is_amd_with("avx512_bf16")) else "float32"


@functools.cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN makes float32 products faster than MKL, which leaves half of AVX-512 unused on AMD's CPUs."""
    import torch

    return torch.backends.mkldnn.is_available() and _is_amd_with("avx512f")


def _is_amd_with(flag: str) -> bool:
    return _has("AuthenticAMD") and _has(flag)


def _has(name: str) -> bool:
    return re.search(rf"\b{name}\b", _read("/proc/cpuinfo")) is not None


def check_precision(precision: str, device: str, here: bool = True) -> str:
    """Return a warning if a ``device`` that is ``here`` is slow at it. Raises OptionError if no device of this type has it."""
    import torch

    cpu = torch.device(device).type == "cpu"
    if precision == "tf32" and cpu:
        raise OptionError("--precision tf32 is for GPUs; on a CPU use float32")
    if not here or precision != "bf16":
        return ""
    has_it = torch.ops.mkldnn._is_mkldnn_bf16_supported() if cpu else torch.cuda.is_bf16_supported(including_emulation=False)
    slow = f"this {'CPU' if cpu else 'GPU'} has no bf16 arithmetic: --precision bf16 is slower than float32 here"
    return "" if has_it else slow


def set_tf32(precision: str, device: str) -> None:
    """Let GPUs multiply float32 matrices in TF32 from now on, with every precision but ``float32``."""
    import torch

    if torch.device(device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision in ("tf32", "bf16")
