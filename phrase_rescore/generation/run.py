"""All of ``generate``: sources from lines, a table or vectors; proposals as TSV, JSON lines or rows of a phrase table."""

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
from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.streams import map_array
from phrase_rescore.generation.tables import Partners, RowLayout, partners
from phrase_rescore.inference.translator import MAX_LENGTH, Proposal, Proposer, Vectors
from phrase_rescore.models.checkpoint import Checkpoint
from phrase_rescore.moses.factors import select_factor
from phrase_rescore.moses.lines import PhraseReader, parsed_lines

AT_ONCE = 256  # sources between two writes


@dataclass(frozen=True)
class Search:
    """How proposals are found: by beam search, or drawn at random."""

    number: int = 10
    beam: int | None = None
    random: bool = False
    seed: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    unk: bool = False
    max_length: int = MAX_LENGTH

    def __call__(self, proposer: Proposer, sources: Sequence[bytes] | Vectors) -> list[list[Proposal]]:
        if self.random:
            return proposer.samples(
                sources, self.number, self.seed, self.temperature, self.top_k, self.unk, self.max_length
            )  # fmt: skip
        return proposer.n_best(sources, self.number, self.beam, self.unk, self.max_length)


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


# ---- proposals out


class Writer(ABC):
    """Makes lines of a source's name and its proposals."""

    def __init__(self, checkpoint: Checkpoint, digits: int = 7) -> None:
        self.checkpoint, self.digits = checkpoint, digits

    @abstractmethod
    def __call__(self, name: bytes, proposals: Sequence[Proposal], known: Sequence[bool] | None) -> list[bytes]:
        """Return the lines; ``known`` says of each proposal whether the table has it, None where there is no table."""

    def pair(self, name: bytes, proposal: Proposal) -> tuple[bytes, bytes]:
        """Return source and target, as the table has them."""
        return (proposal.target, name) if self.checkpoint.inverse else (name, proposal.target)

    def log_p(self, proposal: Proposal) -> bytes:
        """Return the natural log p in text."""
        return b"%.*g" % (self.digits, proposal.log_p)


class TsvWriter(Writer):
    """Source, target, natural log p, number of unknown words; then 1 if the table has the pair, 0 if not."""

    def __call__(self, name: bytes, proposals: Sequence[Proposal], known: Sequence[bool] | None) -> list[bytes]:
        lines = []
        for i, proposal in enumerate(proposals):
            columns = [*self.pair(name, proposal), self.log_p(proposal), b"%d" % proposal.unknown]
            if known is not None:
                columns.append(b"%d" % known[i])
            lines.append(b"\t".join(columns) + b"\n")
        return lines


class JsonWriter(Writer):
    """An object for every source. Bytes that are not UTF-8 are lone surrogates, byte ff is \\udcff (as in Python's PEP 383)."""

    def __call__(self, name: bytes, proposals: Sequence[Proposal], known: Sequence[bool] | None) -> list[bytes]:
        read, predicted = self.checkpoint.sides
        listed = list[dict[str, Any]]()
        for i, proposal in enumerate(proposals):
            text = proposal.target.decode("utf-8", "surrogateescape")
            listed.append({predicted: text, "log_p": float(self.log_p(proposal)), "unknown": proposal.unknown})
            if known is not None:
                listed[-1]["in_table"] = known[i]
        line = json.dumps({read: name.decode("utf-8", "surrogateescape"), "proposals": listed}, ensure_ascii=False)
        return [line.encode("utf-8", "backslashreplace") + b"\n"]


class RowWriter(Writer):
    """Rows of a phrase table, each pair once."""

    def __init__(self, checkpoint: Checkpoint, layout: RowLayout) -> None:
        super().__init__(checkpoint, layout.digits)
        self._layout, self._written = layout, set[tuple[bytes, bytes]]()

    def __call__(self, name: bytes, proposals: Sequence[Proposal], known: Sequence[bool] | None) -> list[bytes]:
        read, predicted = self.checkpoint.sides
        phrase = select_factor([name], self.checkpoint.read_factor, read)[0]
        unknown = int((self.checkpoint.vocabs[0].encode(phrase.split(b" ")) == UNK).sum())
        scores = {self.pair(name, proposal): proposal.log_p for proposal in proposals}
        fresh = [pair for pair in scores if pair not in self._written]
        self._written.update(fresh)
        return self._layout.rows(fresh, [scores[pair] for pair in fresh], {read: unknown, predicted: 0})


# ---- the whole


@dataclass
class Generation:
    """Proposals for sources, and what is counted on the way.

    With a ``table`` all sources are read first, then the table once, to see which pairs it has. ``only_new`` leaves those out;
    they are counted all the same. Raises InputError as the sources and the table do.
    """

    proposer: Proposer
    search: Search
    writer: Writer
    table: str | None = None
    only_new: bool = False
    on_read: Callable[[int], object] | None = None  # bytes of the table
    on_sources: Callable[[int], object] = lambda n: None
    sources: int = 0
    proposals: int = 0
    known: int = 0  # proposals that the table has
    best_known: int = 0  # sources whose first proposal is one of them
    seconds: float = 0.0  # of the search alone

    def run(self, sources: Iterable[Sources]) -> Iterator[list[bytes]]:
        """Yield lines, some sources at a time and in their order."""
        in_table: Partners | None = None
        if self.table is not None:
            sources = list(sources)
            in_table = self._partners(self.table, chain.from_iterable(some.names for some in sources))
        for some in sources:
            start = time.monotonic()
            found = self.search(self.proposer, some.given)
            self.seconds += time.monotonic() - start
            lines = (self._lines(*of_source, in_table) for of_source in zip(some.names, found, strict=True))
            yield list(chain.from_iterable(lines))
            self.on_sources(len(some.names))

    def _key(self, names: Iterable[bytes]) -> Sequence[bytes]:
        """Return phrases as the model reads them: by its factor."""
        checkpoint = self.proposer.checkpoint
        side = checkpoint.sides[0]
        return select_factor(list(names), checkpoint.factors[side == "target"], side)

    def _partners(self, table: str, names: Iterable[bytes]) -> Partners:
        checkpoint = self.proposer.checkpoint
        return partners(table, checkpoint.sides[0], frozenset(self._key(names)), checkpoint.factors, self.on_read)

    def _lines(self, name: bytes, proposals: Sequence[Proposal], in_table: Partners | None) -> list[bytes]:
        known = None
        if in_table is not None:
            has = in_table[self._key([name])[0]]
            known = [proposal.target in has for proposal in proposals]
            self.known += sum(known)
            self.best_known += known[:1] == [True]
            if self.only_new:
                proposals = [proposal for proposal, is_known in zip(proposals, known, strict=True) if not is_known]
                known = [False] * len(proposals)
        self.sources += 1
        self.proposals += len(proposals)
        return self.writer(name, proposals, known)

    def report(self) -> list[str]:
        """Return the closing lines."""
        rate = self.sources / self.seconds if self.seconds else 0.0
        phrases = f"{self.sources:,} {'phrase' if self.sources == 1 else 'phrases'}"
        proposals = f"{self.proposals:,} {'proposal' if self.proposals == 1 else 'proposals'}"
        lines = [f"{phrases}, {proposals}, {rate:,.0f} phrases/s"]
        if self.table is not None and self.sources:
            best = f"{self.best_known:,} of {self.sources:,} ({self.best_known / self.sources:.1%})"
            left_out = ", left out" if self.only_new else ""
            lines.append(f"the first proposal is in {self.table}: {best}; of all proposals {self.known:,}{left_out}")
        return lines
