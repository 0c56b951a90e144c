"""System calls of a process that fail on purpose, whoever makes them: Python, torch, numpy, GNU sort.

The process hands the calls to its parent (seccomp's user notifications, Linux 5.6 and later on x86_64), which lets each go on,
or answers it with an error, or, of a write, carries out half.
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

_NUMBERS = {
    "read": (0, 17), "write": (1, 18), "sync": (74, 75), "rename": (82, 264, 316), "open": (2, 257), "mkdir": (83, 258),
    "unlink": (87, 263), "lock": (73,), "wait": (61, 247),
}  # fmt: skip
_NAMES = {number: name for name, numbers in _NUMBERS.items() for number in numbers}
_LIBC = ctypes.CDLL(None, use_errno=True)
_SECCOMP, _PIDFD_GETFD, _SET_FILTER, _NEW_LISTENER, _NO_NEW_PRIVILEGES = 317, 438, 1, 8, 38
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_ARCHITECTURE = 0xC000003E  # x86_64
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NOTE, _ANSWER = "=QII i I Q 6Q", "=Q q i I"
_GO_ON = 1


class Call(NamedTuple):
    """A system call of a process (or thread), under a name that those of like purpose share."""

    name: str
    pid: int
    number: int
    arguments: tuple[int, ...]

    @property
    def creates(self) -> bool:
        """Whether it may make a file or a directory."""
        return self.name == "mkdir" or (self.name == "open" and bool(self.arguments[1 + (self.number == 257)] & os.O_CREAT))

    @property
    def path(self) -> str:
        """The path that it opens, if it is one that opens files."""
        with open(f"/proc/{self.pid}/mem", "rb", 0) as memory:
            address = self.arguments[int(self.number == 257)]
            data = os.pread(memory.fileno(), min(4096, 4096 - address % 4096), address)  # to the end of the page
            if b"\0" not in data:
                data += os.pread(memory.fileno(), 4096, address + len(data))
        return os.fsdecode(data.partition(b"\0")[0])

    @property
    def file(self) -> str:
        """What the handle that it reads, writes or syncs leads to: a path, or the name of a pipe."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/{self.arguments[0]}")
        except OSError:
            return ""


Decide = Callable[[Call], int | None]  # None: it goes on; an error number; or 0: half is written


def available() -> bool:
    """Tell whether this machine can do it."""
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    return platform.system() == "Linux" and platform.machine() == "x86_64" and release >= (5, 6)


def _filter() -> bytes:
    """Return the program of the filter: calls of _NAMES are told to the listener, others go on."""
    numbers = sorted(_NAMES)
    program = [
        (0x20, 0, 0, 4), (0x15, 1, 0, _ARCHITECTURE), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 0),
        *((0x15, len(numbers) - i, 0, number) for i, number in enumerate(numbers)),
        (0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY),
    ]  # fmt: skip
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def hand_over(to: socket.socket) -> None:
    """Hand this process's system calls to its parent from now on."""
    code = _filter()
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    if _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    listener = _LIBC.syscall(_SECCOMP, _SET_FILTER, _NEW_LISTENER, program)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(to, [b"."], [listener])
    os.close(listener)


def _write_half(call: Call) -> int:
    """Write half of what a process wanted to write, at least a byte; return the number of bytes."""
    handle, address, length, offset = call.arguments[:4]
    with open(f"/proc/{call.pid}/mem", "rb", 0) as memory:
        data = os.pread(memory.fileno(), max(1, length // 2), address)
    process = next(line for line in open(f"/proc/{call.pid}/status") if line.startswith("Tgid:"))  # noqa: SIM115
    pidfd = os.pidfd_open(int(process.split()[1]))
    own = _LIBC.syscall(_PIDFD_GETFD, pidfd, handle, 0)
    os.close(pidfd)
    if own < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        return os.write(own, data) if call.number == 1 else os.pwrite(own, data, offset)
    finally:
        os.close(own)


def supervise(pid: int, channel: socket.socket, decide: Decide, seconds: float) -> bool:
    """Answer the calls of a process and of its children until it ends. Returns False if it has not ended in time."""
    _, (listener, *_), _, _ = socket.recv_fds(channel, 1, 1)
    watched, pidfd = select.poll(), os.pidfd_open(pid)
    watched.register(listener, select.POLLIN)
    watched.register(pidfd, select.POLLIN)
    try:
        while ready := watched.poll(seconds * 1000):
            if any(handle == pidfd for handle, _ in ready):
                return True
            note = bytearray(80)
            try:
                fcntl.ioctl(listener, _RECEIVE, note)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):  # the caller is gone
                    continue
                raise
            number, caller, _, which, _, _, *arguments = struct.unpack(_NOTE, note)
            call = Call(_NAMES[which], caller, which, tuple(arguments))
            failure = decide(call)
            value, error_number, flags = 0, 0, 0
            if failure is None:
                flags = _GO_ON
            elif failure:
                error_number = -failure
            else:
                value = _write_half(call)
            answer = struct.pack(_ANSWER, number, value, error_number, flags)
            try:
                fcntl.ioctl(listener, _SEND, answer)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
        os.kill(pid, signal.SIGKILL)
        return False
    finally:
        os.close(listener)
        os.close(pidfd)
