"""What a test takes from its process: root's right to read and write everything, and files of any size."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator

import pytest


class _Capabilities(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextlib.contextmanager
def like_anybody() -> Iterator[None]:
    """Without CAP_DAC_OVERRIDE (1) and CAP_DAC_READ_SEARCH (2), by which root passes over permissions (capabilities(7))."""
    if os.geteuid():
        yield
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("root may do everything here")
    libc = ctypes.CDLL(None, use_errno=True)
    header, now = (ctypes.c_uint32 * 2)(0x20080522, 0), (_Capabilities * 2)()
    assert libc.capget(header, now) == 0
    had = now[0].effective
    now[0].effective = had & ~(1 << 1 | 1 << 2)
    assert libc.capset(header, now) == 0
    try:
        yield
    finally:
        now[0].effective = had
        assert libc.capset(header, now) == 0


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows beyond ``size`` bytes: as on a full disk, writing fails in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
