"""Delays the first SIGINT or SIGTERM until a training can stop without loss."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class FirstSignal:
    """Holds back the main thread's first SIGINT or SIGTERM, ``number``, until ``deliver`` or the end; the next acts at once."""

    def __init__(self, waits: bool = True) -> None:
        self.number = 0
        self._waits = waits and threading.current_thread() is threading.main_thread()
        self._usual: dict[int, Any] = {}  # handlers

    def __enter__(self) -> Self:
        if self._waits:
            usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self._usual = {number: handler for number, handler in usual.items() if handler not in (signal.SIG_IGN, None)}
            for number in self._usual:
                signal.signal(number, self._hold)
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._restore()
        if self.number and kind is None:
            self.deliver(self.number)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)

    def deliver(self, number: int) -> None:
        """Let a signal of this number, which another process may have received, act now."""
        self.number = 0
        self._restore()
        signal.raise_signal(number)
