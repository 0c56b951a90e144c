"""All of ``generate``: sources from lines, a table or vectors; hypotheses as TSV, JSON lines or rows of a phrase table."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.errors import InputError, RowError, counted
from phrase_rescore.files.inputs import map_array
from phrase_rescore.moses.factors import select_factor
from phrase_rescore.moses.text import PhraseReader, parsed_lines
from phrase_rescore.queries.tables import Partners, RowLayout, partners
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, TEMPERATURES, TOP_K, Checked, ranged
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.translator import MAX_LENGTH, Hypothesis, Translator, Vectors

AT_ONCE = 256  # sources between two writes


@dataclass(frozen=True)
class Search(Checked):
    """How hypotheses are found: by beam search, or drawn at random."""

    number: int = ranged(10, HYPOTHESES)
    beam: int | None = ranged(None, BEAMS)
    random: bool = False
    seed: int = ranged(1, SEEDS)
    temperature: float = ranged(1.0, TEMPERATURES)
    top_k: int | None = ranged(None, TOP_K)
    unk: bool = False
    max_length: int = ranged(MAX_LENGTH, LENGTHS)

    def __call__(self, translator: Translator, sources: Sequence[bytes] | Vectors) -> list[list[Hypothesis]]:
        if self.random:
            return translator.samples(
                sources, self.number, self.seed, self.temperature, self.top_k, self.unk, self.max_length
            )  # fmt: skip
        return translator.n_best(sources, self.number, self.beam, self.unk, self.max_length)


@dataclass(frozen=True)
class Sources:
    """Some phrases of the side that the model reads, or vectors in their place, whose names are their row numbers from 0."""

    names: Sequence[bytes]
    given: Sequence[bytes] | Vectors

    @classmethod
    def of_phrases(cls, phrases: Sequence[bytes]) -> Sources:
        return cls(phrases, phrases)


# ---- sources


def sources_of_lines(lines: Iterable[bytes], reader: PhraseReader, name: str, at_once: int = AT_ONCE) -> Iterator[Sources]:
    """Yield the phrases of lines. Raises InputError, with the line, for a bad one; the sources before it come first."""
    return map(Sources.of_phrases, parsed_lines(lines, reader, name, at_once))


def sources_of_phrases(phrases: Sequence[bytes], reader: PhraseReader, table: str) -> Iterator[Sources]:
    """Yield the phrases of a table's valid rows. Raises InputError for a word without the model's factor."""
    for start in range(0, len(phrases), AT_ONCE):
        try:
            yield Sources.of_phrases([reader(phrase) for phrase in phrases[start : start + AT_ONCE]])
        except RowError as error:
            raise InputError(table, error.found, error.hint) from None


def sources_of_vectors(path: str, hidden: int) -> Iterator[Sources]:
    """Yield the rows of an ``.npy`` file with float32 numbers, (n, hidden).

    Raises InputError for any other file, and for a row with a number that is not finite.
    """
    hint = f"pass phrase vectors of this model, float32 of shape (n, {hidden}), such as numpy.save writes"
    vectors = map_array(path, hint)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or vectors.shape[1] != hidden:
        raise InputError(path, f"holds {vectors.dtype} of shape {vectors.shape}", hint)
    for start in range(0, len(vectors), AT_ONCE):
        some = np.ascontiguousarray(vectors[start : start + AT_ONCE], dtype=np.float32)
        finite = np.isfinite(some).all(1)
        if not finite.all():
            found = f"row {start + int(finite.argmin())} (from 0) has a number that is not finite"
            raise InputError(path, found, "compute it again")
        yield Sources([b"%d" % row for row in range(start, start + len(some))], some)


# ---- hypotheses out


class Writer(ABC):
    """Makes lines of a source's name and its hypotheses."""

    def __init__(self, checkpoint: Checkpoint, digits: int = 7) -> None:
        self.checkpoint, self.digits = checkpoint, digits

    @abstractmethod
    def __call__(self, name: bytes, hypotheses: Sequence[Hypothesis], known: Sequence[bool] | None) -> list[bytes]:
        """Return the lines; ``known`` says of each hypothesis whether the table has it, None where there is no table."""

    def pair(self, name: bytes, hypothesis: Hypothesis) -> tuple[bytes, bytes]:
        """Return source and target, as the table has them."""
        return (hypothesis.target, name) if self.checkpoint.inverse else (name, hypothesis.target)

    def log_p(self, hypothesis: Hypothesis) -> bytes:
        """Return the natural log p in text."""
        return b"%.*g" % (self.digits, hypothesis.log_p)


class TsvWriter(Writer):
    """Source, target, natural log p, number of unknown words; then 1 if the table has the pair, 0 if not."""

    def __call__(self, name: bytes, hypotheses: Sequence[Hypothesis], known: Sequence[bool] | None) -> list[bytes]:
        lines = []
        for i, hypothesis in enumerate(hypotheses):
            columns = [*self.pair(name, hypothesis), self.log_p(hypothesis), b"%d" % hypothesis.unknown]
            if known is not None:
                columns.append(b"%d" % known[i])
            lines.append(b"\t".join(columns) + b"\n")
        return lines


class JsonWriter(Writer):
    """An object for every source. Bytes that are not UTF-8 are lone surrogates, byte ff is \\udcff (as in Python's PEP 383)."""

    def __call__(self, name: bytes, hypotheses: Sequence[Hypothesis], known: Sequence[bool] | None) -> list[bytes]:
        read, predicted = self.checkpoint.sides
        listed = list[dict[str, Any]]()
        for i, hypothesis in enumerate(hypotheses):
            text = hypothesis.target.decode("utf-8", "surrogateescape")
            listed.append({predicted: text, "log_p": float(self.log_p(hypothesis)), "unknown": hypothesis.unknown})
            if known is not None:
                listed[-1]["in_table"] = known[i]
        line = json.dumps({read: name.decode("utf-8", "surrogateescape"), "proposals": listed}, ensure_ascii=False)
        return [line.encode("utf-8", "backslashreplace") + b"\n"]


class RowWriter(Writer):
    """Rows of a phrase table, each pair once."""

    def __init__(self, checkpoint: Checkpoint, layout: RowLayout) -> None:
        super().__init__(checkpoint, layout.digits)
        self._layout, self._written = layout, set[tuple[bytes, bytes]]()

    def __call__(self, name: bytes, hypotheses: Sequence[Hypothesis], known: Sequence[bool] | None) -> list[bytes]:
        read, predicted = self.checkpoint.sides
        phrase = select_factor([name], self.checkpoint.read_factor, read)[0]
        unknown = int((self.checkpoint.vocabs[0].encode(phrase.split(b" ")) == UNK).sum())
        scores = {self.pair(name, hypothesis): hypothesis.log_p for hypothesis in hypotheses}
        fresh = [pair for pair in scores if pair not in self._written]
        self._written.update(fresh)
        return self._layout.rows(fresh, [scores[pair] for pair in fresh], {read: unknown, predicted: 0})


# ---- the whole


@dataclass
class Generation:
    """Hypotheses for sources, and what is counted on the way.

    With a ``table`` all sources are read first, then the table once, to see which pairs it has. ``only_new`` leaves those out;
    they are counted all the same. Raises InputError as the sources and the table do.
    """

    translator: Translator
    search: Search
    writer: Writer
    table: str | None = None
    only_new: bool = False
    on_read: Callable[[int], object] | None = None  # bytes of the table
    on_sources: Callable[[int], object] = lambda n: None
    sources: int = 0
    hypotheses: int = 0
    known: int = 0  # hypotheses that the table has
    best_known: int = 0  # sources whose first hypothesis is one of them
    seconds: float = 0.0  # of the search alone

    def run(self, sources: Iterable[Sources]) -> Iterator[list[bytes]]:
        """Yield lines, some sources at a time and in their order."""
        in_table: Partners | None = None
        if self.table is not None:
            sources = list(sources)
            in_table = self._partners(self.table, chain.from_iterable(some.names for some in sources))
        for some in sources:
            start = time.monotonic()
            found = self.search(self.translator, some.given)
            self.seconds += time.monotonic() - start
            lines = (self._lines(*of_source, in_table) for of_source in zip(some.names, found, strict=True))
            yield list(chain.from_iterable(lines))
            self.on_sources(len(some.names))

    def _key(self, names: Iterable[bytes]) -> Sequence[bytes]:
        """Return phrases as the model reads them: by its factor."""
        checkpoint = self.translator.checkpoint
        return select_factor(list(names), checkpoint.read_factor, checkpoint.sides[0])

    def _partners(self, table: str, names: Iterable[bytes]) -> Partners:
        checkpoint = self.translator.checkpoint
        return partners(table, checkpoint.sides[0], frozenset(self._key(names)), checkpoint.factors, self.on_read)

    def _lines(self, name: bytes, hypotheses: Sequence[Hypothesis], in_table: Partners | None) -> list[bytes]:
        known = None
        if in_table is not None:
            has = in_table[self._key([name])[0]]
            known = [hypothesis.target in has for hypothesis in hypotheses]
            self.known += sum(known)
            self.best_known += known[:1] == [True]
            if self.only_new:
                hypotheses = [hypothesis for hypothesis, is_known in zip(hypotheses, known, strict=True) if not is_known]
                known = [False] * len(hypotheses)
        self.sources += 1
        self.hypotheses += len(hypotheses)
        return self.writer(name, hypotheses, known)

    def report(self) -> list[str]:
        """Return the closing lines."""
        rate = self.sources / self.seconds if self.seconds else 0.0
        hypotheses = f"{self.hypotheses:,} {'hypothesis' if self.hypotheses == 1 else 'hypotheses'}"
        lines = [f"{counted(self.sources, 'phrase')}, {hypotheses}, {rate:,.0f} phrases/s"]
        if self.table is not None and self.sources:
            best = f"{self.best_known:,} of {self.sources:,} ({self.best_known / self.sources:.1%})"
            left_out = ", left out" if self.only_new else ""
            lines.append(f"the first hypothesis is in {self.table}: {best}; of all hypotheses {self.known:,}{left_out}")
        return lines
