"""What runs on a worker of a cluster: a block through the annotator, by a model that is there or was sent.

A worker takes the model from the directory that the client named if the same model is there, by its signature. Otherwise it
says so (``ModelMissing``), is sent the files in pieces, and keeps them in its own folder as long as it lives.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import socket
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from phrase_rescore._version import __version__
from phrase_rescore.annotation.annotator import Annotator, Compute, Model, Statistics
from phrase_rescore.errors import ModelError, RescoreError, first_line, lacks_memory
from phrase_rescore.runtime import no_cycle_collection, prepare

if TYPE_CHECKING:
    from distributed import Worker


@dataclass(frozen=True)
class Kind:
    """What the digits of a score depend on besides the model: of workers of one kind, output is the same to the byte."""

    version: str
    torch: str
    cpu: str
    has_cuda: bool

    def __str__(self) -> str:
        return f"phrase-rescore {self.version}, torch {self.torch}, {self.cpu}{', CUDA' * self.has_cuda}"


@functools.cache
def kind() -> Kind:
    """Return the kind of this process."""
    import torch

    cpu = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return Kind(__version__, torch.__version__, cpu, torch.cuda.is_available())


def introduce() -> tuple[str, Kind]:
    """Return the name of this machine, and the kind of this process."""
    return socket.gethostname(), kind()


class NotScored(Exception):
    """A worker has not scored a block, since it lacks something that others may have: memory, or room on its disk."""

    def __init__(self, worker: str, why: str) -> None:
        super().__init__(worker, why)
        self.worker, self.why = worker, why


class DeviceMissing(NotScored):
    """A worker has no GPU, and blocks are to be scored on one."""


class ModelMissing(NotScored):
    """A worker lacks a model: neither does the named directory have it, nor was it sent. ``why``: what is there."""

    def __init__(self, worker: str, why: str, number: int) -> None:
        super().__init__(worker, why)
        self.args = worker, why, number
        self.number = number


@dataclass(frozen=True)
class Scored:
    """A block that a worker has scored."""

    worker: str
    host: str
    kind: Kind
    result: tuple[bytes, Statistics]


def score(run: str, annotator: Annotator, number: int, first_row: int, data: bytes) -> Scored:
    """Annotate a block on this worker, and tell the client of ``run`` that it is begun. Raises NotScored, and what the
    annotator raises.
    """
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(run, (worker.address, worker.get_current_task()))
    if annotator.compute.devices != ("cpu",) and not kind().has_cuda:
        raise DeviceMissing(worker.address, "has no GPU")
    _prepare(annotator.compute.threads)
    try:
        models = [_found(worker, i, model, annotator.compute) for i, model in enumerate(annotator.models)]
        with no_cycle_collection():
            result = replace(annotator, models=tuple(models))(number, first_row, data)
    except (MemoryError, RuntimeError, OSError) as error:
        if not lacks_memory(error) and not isinstance(error, OSError):
            raise
        raise NotScored(worker.address, first_line(error)) from None
    return Scored(worker.address, *introduce(), result)


@functools.cache
def _prepare(threads: int) -> None:
    """Ready torch, once a process."""
    prepare(threads)


def _found(worker: Worker, number: int, model: Model, compute: Compute) -> Model:
    """Return where this worker has a model. Raises ModelMissing."""
    why = ""
    for directory in (model.directory, folder_of(worker, model.signature)):
        try:
            if compute.scorer(directory).checkpoint.signature == model.signature:
                return Model(directory, model.signature)
            why = why or f"{directory}: another model"
        except ModelError as error:
            why = why or str(error)
    raise ModelMissing(worker.address, why, number)


def folder_of(worker: Worker, signature: str) -> str:
    """Return where a worker keeps a model that it was sent; the folder goes with the worker."""
    return os.path.join(worker.local_directory, f"phrase-rescore-{sha256(signature.encode()).hexdigest()[:16]}")


def receive(signature: str, name: str, piece: bytes, first: bool, dask_worker: Worker) -> None:
    """Append a piece to a file of a model that is on its way. Raises RescoreError if it cannot be kept."""
    folder = f"{folder_of(dask_worker, signature)}.part"
    try:
        if first:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        with open(os.path.join(folder, name), "ab") as stream:
            stream.write(piece)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RescoreError(f"cannot keep the model in {folder}: {error.strerror or error}") from None


def received(signature: str, dask_worker: Worker) -> None:
    """Give the files of a model that have all come their place. Raises RescoreError if that cannot be done."""
    folder = folder_of(dask_worker, signature)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(f"{folder}.part", folder)
    except OSError as error:
        raise RescoreError(f"cannot keep the model in {folder}: {error.strerror or error}") from None
