"""How a cluster scales past the machines at hand: a discrete-event model of blocks on their way.

A block is read and submitted by the client, passed on by the scheduler, scored by a worker, passed back, received and written
by the client. Client and scheduler do one thing at a time; a worker has one block in work. ``in_flight`` blocks are on their
way at most, and they leave in their order: those limits are ``annotation.pipeline``'s own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Seconds a block takes at each station."""

    read: float  # client: read, and submit
    write: float  # client: receive, and write
    schedule: float  # scheduler: each way
    score: float  # worker, with what it takes to unpack the block and pack the result
    latency: float = 0.0  # each way, of the network and of messages that wait to be sent together


class Station:
    """Something that does one thing at a time, in the order in which they come."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._free, self.busy = clock, 0.0, 0.0

    def do(self, seconds: float, then: Callable[[], None]) -> None:
        self._free = max(self._free, self._clock.now) + seconds
        self.busy += seconds
        self._clock.at(self._free, then)


class Clock:
    """The time of the model, and what happens when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, then: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, then))

    def run(self) -> None:
        while self._events:
            self.now, _, then = heapq.heappop(self._events)
            then()


@dataclass(frozen=True)
class Outcome:
    """What came of a simulated run: seconds, and the share of them that each station was busy."""

    seconds: float
    client: float
    scheduler: float
    workers: float


def simulate(blocks: int, workers: int, costs: Costs, in_flight: int) -> Outcome:
    """Send blocks through a cluster of ``workers`` threads."""
    clock = Clock()
    client, scheduler = Station(clock), Station(clock)
    idle, waiting = deque(Station(clock) for _ in range(workers)), deque[int]()
    stations = list(idle)
    back, submitted, written = set[int](), 0, 0

    def submit() -> None:
        nonlocal submitted
        if submitted < blocks and submitted - written < in_flight:
            number, submitted = submitted, submitted + 1
            client.do(costs.read, lambda: (travel(number, lambda: assign(number)), submit())[0])

    def travel(number: int, then: Callable[[], None]) -> None:
        scheduler.do(costs.schedule, lambda: clock.at(clock.now + costs.latency, then))

    def assign(number: int) -> None:
        waiting.append(number)
        start()

    def start() -> None:
        while idle and waiting:
            worker, number = idle.popleft(), waiting.popleft()
            worker.do(costs.score, lambda worker=worker, number=number: finish(worker, number))  # type: ignore[misc]

    def finish(worker: Station, number: int) -> None:
        idle.append(worker)
        start()
        travel(number, lambda: arrive(number))

    def arrive(number: int) -> None:
        back.add(number)
        write()

    def write() -> None:
        nonlocal written
        while written in back:
            back.remove(written)
            written += 1
            client.do(costs.write, submit)

    submit()
    clock.run()
    busy = sum(worker.busy for worker in stations) / workers
    return Outcome(clock.now, client.busy / clock.now, scheduler.busy / clock.now, busy / clock.now)
