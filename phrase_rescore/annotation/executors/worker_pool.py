"""The workers of a Dask cluster as the client knows them: what they are, which may score, which models they were sent.

A worker that cannot score, or fails at one block after the other, is left out: retired, so that it takes no more blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from phrase_rescore.annotation.annotator import Model
from phrase_rescore.annotation.executors.worker import Kind, introduce, kind, receive, received
from phrase_rescore.errors import ModelError, RescoreError, first_line
from phrase_rescore.nn.storage import files_of
from phrase_rescore.rnn.checkpoint import load

if TYPE_CHECKING:
    from distributed import Client

FAILURES = 3  # of workers at a block, after which it is given up; and of a worker at one block after the other
PIECE = 16 << 20  # bytes of a model at a time
SENDING = 4  # workers that are sent a model at a time


@dataclass(eq=False)
class KnownWorker:
    """What is known of a worker as long as the scheduler knows it."""

    cores: int
    kind: Kind | None = None  # None: it has not told it yet
    sent: dict[str, float] = field(default_factory=dict)  # when it was sent a model, by the model's signature
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0  # since it last scored a block


class WorkerPool:
    """The workers of the scheduler that ``client`` is connected to, but for those that are left out.

    It changes in the thread of Dask's client; ``kinds``, ``cores`` and the numbers may be read from any.
    ``strict`` leaves out workers of another kind than this process. ``tell`` is called with lines for people, and
    ``on_nobody`` when the last worker is left out after the start.
    """

    def __init__(self, strict: bool, tell: Callable[[str], object], on_nobody: Callable[[], object]) -> None:
        self.known: dict[str, KnownWorker] = {}  # by address
        self.most = 0  # workers at a time
        self.refused = 0  # workers that were left out
        self.client: Client | None = None
        self.started = False  # the first block may come
        self._strict, self._tell, self._on_nobody = strict, tell, on_nobody
        self._left_out: set[str] = set()  # addresses, until their workers have gone
        self._sending = asyncio.Semaphore(SENDING)

    @property
    def kinds(self) -> set[Kind]:
        """What the workers are that have told it."""
        return {worker.kind for worker in list(self.known.values()) if worker.kind}

    @property
    def cores(self) -> int:
        return sum(worker.cores for worker in list(self.known.values()))

    async def count(self) -> dict[str, Any]:
        """Count the workers and their cores anew. Return what the scheduler tells of itself."""
        found: dict[str, Any] = {}
        if self.client is not None:
            with contextlib.suppress(Exception):
                found = await self.client.scheduler.identity(n_workers=-1)  # type: ignore[union-attr]
                self.known = {
                    address: self.known.get(address) or KnownWorker(int(worker["nthreads"]))
                    for address, worker in found["workers"].items()
                    if address not in self._left_out
                }
                self.most = max(self.most, len(self.known))
        return found

    async def welcome(self, address: str) -> None:
        """Ask a worker that came after the start what it is; if it does not answer, its first block tells it."""
        await self.count()
        if self.started and address in self.known:
            await self.ask(address)

    def forget(self, address: str) -> None:
        """Forget a worker that has gone: another one may come under the same address."""
        self.known.pop(address, None)
        self._left_out.discard(address)

    def forget_all(self) -> None:
        """Forget all workers: their scheduler is lost."""
        self.known.clear()
        self._left_out.clear()

    async def ask(self, address: str) -> None:
        """Ask a worker what it is, and leave it out if it cannot score. Raises RescoreError as ``judge`` does."""
        assert self.client is not None
        try:
            answers = await self.client.run(introduce, workers=[address], on_error="return")
        except (OSError, ValueError):  # it has gone meanwhile
            return
        answer = answers.get(address)
        if isinstance(answer, tuple):
            await self.judge(address, *answer)
        elif answer is not None and not isinstance(answer, OSError):
            await self.leave_out(address, f"cannot run phrase_rescore ({first_line(answer)}); install it there")

    async def judge(self, address: str, host: str, found: Kind) -> bool:
        """Compare the kind of a worker with that of this process, once. Tell whether it may score.

        Raises RescoreError before the first block, if it is strict and the kinds differ; later such a worker is left out.
        """
        worker = self.known.get(address)
        if worker and worker.kind:
            return True
        here = kind()
        if found.version != here.version:
            await self.leave_out(address, f"on {host} has phrase-rescore {found.version}, here is {here.version}")
            return False
        if (found.torch, found.cpu) != (here.torch, here.cpu):
            differs = f"workers with {found}; here is {here}: the last digits of scores may differ from a run here"
            if self._strict and not self.started:
                raise RescoreError(f"worker {address} on {host}: {differs} (--strict)")
            if self._strict:
                await self.leave_out(address, f"on {host}: {differs} (--strict)")
                return False
            self._tell(f"warning: {differs}")
        if worker:
            worker.kind = found
        return True

    def scored(self, address: str) -> None:
        """Note that a worker has scored a block."""
        if worker := self.known.get(address):
            worker.failures = 0

    async def failed(self, address: str, why: str) -> None:
        """Note that a worker failed at a block; leave it out after FAILURES of them, unless it is the last one."""
        self._tell(f"warning: worker {address} failed at a block ({why}); others take it")
        if worker := self.known.get(address):
            worker.failures += 1
            if worker.failures >= FAILURES and len(self.known) > 1:
                await self.leave_out(address, f"failed at {FAILURES} blocks, one after the other ({why})")

    async def leave_out(self, address: str, why: str) -> None:
        """Retire a worker that cannot score: it would take block after block, and give none back."""
        if address in self._left_out:
            return
        self._left_out.add(address)
        self.refused += 1
        self.known.pop(address, None)
        self._tell(f"warning: left out: worker {address} {why}")
        if self.started and not self.known:
            self._on_nobody()
        assert self.client is not None
        with contextlib.suppress(Exception):
            await self.client.retire_workers([address])

    async def supply(self, address: str, model: Model, why: str, asked: float) -> None:
        """Send a model to a worker that lacked it at the time ``asked``; leave it out if it had been sent it by then.

        Raises ModelError if the directory has not the model of this run any more.
        """
        worker = self.known.get(address)
        if worker is None:  # it has gone meanwhile, or was not counted yet
            await asyncio.sleep(0.1)
            await self.count()
            return
        if asked > worker.sent.get(model.signature, asked):
            return await self.leave_out(address, f"has not kept the model that it was sent ({why})")
        async with worker.sending, self._sending:
            if model.signature in worker.sent or self.known.get(address) is not worker:  # or it was left out meanwhile
                return
            if not await asyncio.to_thread(_is_there, model):
                raise ModelError(f"{model.directory}: the model has changed since annotation began; start again")
            self._tell(f"sending the model to workers that lack it ({why})")
            assert self.client is not None
            run = functools.partial(self.client.run, workers=[address])
            try:
                first = True
                for name in files_of(model.directory):
                    with open(os.path.join(model.directory, name), "rb") as stream:
                        while piece := await asyncio.to_thread(stream.read, PIECE):
                            await run(receive, model.signature, name, piece, first)
                            first = False
                await run(received, model.signature)
                worker.sent[model.signature] = time.monotonic()
            except RescoreError as error:
                await self.leave_out(address, str(error))
            except (OSError, KeyError, ValueError):  # the worker is gone
                return


def _is_there(model: Model) -> bool:
    """Tell whether a directory still has the model."""
    return load(model.directory).signature == model.signature
