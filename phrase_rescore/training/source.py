"""Where the data of a training come from: files that are prepared in a directory once, and found there by later trainings."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Generic

from phrase_rescore.data.prepared import Fingerprint, Layout, Store
from phrase_rescore.data.sorting import is_in_scratch, remove_scratch
from phrase_rescore.errors import OptionError
from phrase_rescore.files.locks import lock_name, locked
from phrase_rescore.files.outputs import recover_directory
from phrase_rescore.training.config import Observer


class Source(ABC, Generic[Store]):
    """The files that the data of a training come from, and the directory in which they are prepared.

    ``fingerprints`` are those of data that will do, None if a file cannot be read twice; states of trainings have the first.
    """

    layout: Layout[Store]
    called: str  # the data, in messages
    others: str  # data that are replaced
    scratch: str | None = None  # where they are sorted

    def __init__(self, inputs: Sequence[str], directory: str, *fingerprints: Fingerprint | None) -> None:
        self.inputs, self.directory, self.fingerprints = inputs, directory, fingerprints
        self._store: Store | None = None

    def find(self) -> Store | None:
        """Return the data if they are prepared already and nothing has changed since."""
        self._store = self._store or self.layout.open(self.directory, *self.fingerprints)
        return self._store

    def prepare(self, observer: Observer, check: Callable[[Any], None] = lambda numbers: None) -> Store:
        """Return the data as an earlier run left them, if nothing has changed, else as they are made while nobody else may.

        ``check``: as for ``Layout.write``. Raises InputError for a file that cannot be used, OptionError if there is nothing to
        learn or if another process is preparing the data.
        """
        store, made = self.find(), False
        is_left = self.scratch is not None and is_in_scratch(self.scratch, self.directory)
        if store is None or is_left or os.path.lexists(lock_name(self.directory)):
            os.makedirs(os.path.dirname(os.path.realpath(self.directory)), exist_ok=True)
            with ExitStack() as held:
                try:
                    remedy = f"let it end: it prepares {self.layout.what} there"
                    held.enter_context(locked(self.directory, remedy, observer.say))
                except OptionError:
                    if store is None:
                        raise
                else:
                    recover_directory(self.directory)  # from here on what killed runs left is nobody's
                    if self.scratch is not None:
                        remove_scratch(self.scratch, self.directory)
                    store = self.find()
                if store is None:
                    self.layout.check_target(self.directory)
                    if os.path.isdir(self.directory) and os.listdir(self.directory):
                        observer.say(f"{self.directory} has {self.others}; prepared anew")
                    self._store = store = self.make(observer, check)
                    made = True
        if not made:
            observer.say(f"{self.called} as prepared before in {self.directory}")
        check(store.numbers)
        self.report(store, made, observer.say)
        return store

    @abstractmethod
    def check(self, say: Callable[[str], None]) -> None:
        """Raise OptionError, InputError or RescoreError for files that will not do, before hours of preparing data."""

    @abstractmethod
    def make(self, observer: Observer, check: Callable[[Any], None]) -> Store:
        """Prepare the data in the directory. The caller holds its lock."""

    @abstractmethod
    def report(self, store: Store, made: bool, say: Callable[[str], None]) -> None:
        """Say what the data are; ``made`` tells whether they were prepared now. Raises OptionError if they cannot be learnt."""
