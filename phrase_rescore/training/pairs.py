"""Pairs to train on, of phrases or of sentences: from files to encoded arrays on disk, and the task of training on them."""

import contextlib
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from phrase_rescore._version import __version__
from phrase_rescore.data.pair_store import LAYOUT, PairNumbers, PairStore, prepare_store
from phrase_rescore.data.prepared import fingerprint_of
from phrase_rescore.data.ragged import EncodedPairs, Indices, Ragged
from phrase_rescore.data.sampling import drawn_rows
from phrase_rescore.data.sorting import sorted_pairs
from phrase_rescore.data.vocabulary import (
    SIDES,
    SOURCE_VOCAB,
    TARGET_VOCAB,
    Vocabularies,
    Vocabulary,
    most_frequent,
    read_shortlist,
    read_vocabulary,
    untrained_unk,
)
from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.files.row_outputs import DroppedRows
from phrase_rescore.messages import Listener, Progress, Say, silent
from phrase_rescore.moses.pairs import PairBlock
from phrase_rescore.moses.parallel import Sides
from phrase_rescore.moses.text import Sentences
from phrase_rescore.nn.packed import pack_pairs
from phrase_rescore.nn.softmax import SURE
from phrase_rescore.training.config import Observer, Pairs
from phrase_rescore.training.run import Source

_SHAPE_PAIRS = ("shortlist", "held_out", "max_length")  # of Pairs: what is prepared depends on them
_FEW_KNOWN, _LEAST_KNOWN = 0.9, 0.5  # shares of known words below which a given vocabulary is warned of, and refused


@dataclass(frozen=True)
class PairInputs:
    """The inputs of a training on pairs, and how they are read: its room knows their format."""

    groups: Sequence[tuple[str, ...]]  # files that belong together
    # Takes the files of a group, ``on_read``, ``sentences``, which read them, and, where rows drop, ``on_bad_row``
    read: Callable[..., Generator[PairBlock]]
    options: dict[str, Any]  # what changes the pairs besides what follows
    min_count: int = 1  # pairs seen less often are left out; above 1 blocks have counts
    drops: bool = False  # bad rows are dropped


def vocabularies_of(model_dir: str) -> Vocabularies | None:
    """Return the words that a model of pairs knows, None if there is none."""
    with contextlib.suppress(InputError):
        src, tgt = (read_vocabulary(os.path.join(model_dir, name)) for name in (SOURCE_VOCAB, TARGET_VOCAB))
        return src, tgt
    return None


class PairSource(Source[PairStore]):
    """The pairs of a training. Those of all rows serve, too, if bad rows are to be dropped."""

    layout = LAYOUT
    called = "distinct pairs"

    def __init__(self, paths: Sequence[str], model_dir: str, pairs: Pairs, threads: int, inputs: PairInputs) -> None:
        self.scratch: str = pairs.scratch or tempfile.gettempdir()
        self.most_held_out = pairs.held_out
        self._pairs, self._threads, self._inputs = pairs, threads, inputs
        self._dropped = DroppedRows(beside(model_dir, "dropped"), inputs.drops)
        self._given = pairs.source_vocab, pairs.target_vocab
        self._model_dir = model_dir
        options = {name: getattr(pairs, name) for name in _SHAPE_PAIRS} | inputs.options
        options |= {"min_count": inputs.min_count, "version": __version__}
        made_of = (fingerprint_of(paths, self._given, **options, drop_bad_rows=drops) for drops in (False, inputs.drops))
        super().__init__(paths, pairs.pairs_dir or beside(model_dir, "pairs"), *made_of)

    def check(self) -> None:
        """Check the first rows of every input, and vocabularies, but no streams. Raises InputError."""
        for group in self._inputs.groups:
            if not any(map(is_stream, group)):
                with contextlib.closing(self._read(group, Sentences())) as pairs:
                    next(pairs, None)  # and closed here, not by a destructor, from which no signal comes out
        for given in self._given:
            if given and not is_stream(given):
                read_shortlist(given)

    def report(self, store: PairStore, listener: Listener) -> None:
        """Report the number of pairs. Raises OptionError if there are none, or if given vocabularies lack too many words."""
        say, warn = listener.say, listener.warn
        numbers, unknown = store.numbers, store.unk_shares
        if not numbers.training:
            raise OptionError("there are no pairs to train on")
        say(f"{numbers.training:,} distinct pairs to train on, {numbers.held_out:,} held out")
        if self._pairs.held_out and not numbers.held_out:
            warn("too few sources to hold any out; the last step is kept, not the best")
        known = (f"{1 - share:.1%} of the running {side} words" for side, share in zip(SIDES, unknown, strict=True))
        say(f"the shortlists have {' and '.join(known)}")
        for side, given, share in zip(SIDES, self._given, unknown, strict=True):
            found = f"--{side}-vocab {given} has {1 - share:.1%} of the running {side} words of the pairs"
            if given and 1 - share < _LEAST_KNOWN:
                raise OptionError(f"{found}; give the vocabulary of these pairs")
            if given and 1 - share < _FEW_KNOWN:
                warn(found)
        if before := vocabularies_of(self._model_dir):
            try:
                store.refuse_swapped(display_name(self.inputs[0]), before, f"the model that is replaced, {self._model_dir}")
            except InputError as error:
                warn(f"{error.path}: {error.found}")
        for warning in untrained_unk(dict(zip(SIDES, unknown, strict=True)), "use a smaller --shortlist to train UNK"):
            warn(warning)

    def make(self, observer: Observer, check: Callable[[PairNumbers], None]) -> PairStore:
        """Read, sort and encode the pairs."""
        pairs, inputs, sentences = self._pairs, self._inputs, Sentences()

        def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> Vocabularies:
            return self._vocabulary(0, src, observer.say), self._vocabulary(1, tgt, observer.say)

        with contextlib.ExitStack() as sorting:
            with self._dropped.opened():
                limits = inputs.min_count, pairs.max_length
                blocks = self._blocks(observer, sentences)
                in_order = sorted_pairs(blocks, self.scratch, self.directory, pairs.memory, self._threads, *limits)
                distinct = sorting.enter_context(in_order)  # all rows are read: their file is complete before the pairs are
            made_of = self.fingerprints[1 if self._dropped.rows else 0]
            how_many = pairs.held_out, observer.on_pairs
            store = prepare_store(self.directory, made_of, distinct, vocabularies, *how_many, check)
        for warning in filter(None, (*sentences.warnings(), self._dropped.summary())):
            observer.warn(warning)
        rarely = f"seen less than {inputs.min_count} times"
        for why, number in (("too long", store.numbers.too_long), (rarely, store.numbers.left_out)):
            if number:
                observer.say(f"{number:,} distinct pairs left out: {why}")
        return store

    def _blocks(self, observer: Observer, sentences: Sentences) -> Iterator[PairBlock]:
        for group in self._inputs.groups:
            name, sides = display_name(group[0]), Sides(line_by_line=len(group) > 1)

            def drop(line: int, row: bytes, error: RowError, name: str = name) -> None:
                self._dropped.add(f"{name}:{line}", row)

            for block in self._read(group, sentences, observer.on_read, drop):
                sides.add(block.src, block.tgt)
                yield block
            sides.check(" and ".join(map(display_name, group)), observer.warn, all_there_is=len(self._inputs.groups) == 1)

    def _read(
        self, group: Sequence[str], sentences: Sentences, on_read: Progress | None = None,
        on_bad_row: Callable[..., None] = silent,
    ) -> Generator[PairBlock]:  # fmt: skip
        more = {"on_bad_row": on_bad_row} if self._inputs.drops else {}
        return self._inputs.read(*group, on_read=on_read, sentences=sentences, **more)

    def _vocabulary(self, side: int, counts: Counter[bytes], say: Say) -> Vocabulary:
        """Return the shortlist of a side (0: source, 1: target), from a file or of the words of the pairs."""
        if path := self._given[side]:
            return read_shortlist(path)
        shortlist, left_out = most_frequent(counts, self._pairs.shortlist)
        chosen = f"{SIDES[side]}: {len(shortlist.words):,} of {len(counts):,} words are in the shortlist"
        say(chosen + (f"; the {left_out:,} rarest are left out to train UNK" if left_out else ""))
        return shortlist


_EVALUATED = 512  # pairs at a time
WORTHWHILE = 20 * SURE  # words of a softmax from which on to draw some of them saves more than it takes
SAMPLED = 0.95  # share of a run during which the softmax is sampled; what is left mends what that leaves inexact
# With another source a held-out pair costs at least this share more, if the model reads its source and there are enough pairs
# to tell: 7 % after 20 steps, thrice as much after 200. Where sources and targets do not belong together it stays near 0
_READS, _FEWEST = 0.05, 20


def with_other_sources(pairs: EncodedPairs, seed: int = 0) -> tuple[EncodedPairs, Indices]:
    """Replace every source by another of equal length. Return the pairs for which there is one, and their rows."""
    rng = np.random.default_rng(seed)
    sources = [tuple(ids) for ids in np.split(pairs.src.ids, pairs.src.offsets[1:-1])]
    by_length: dict[int, set[tuple[int, ...]]] = {}
    for source in sources:
        by_length.setdefault(len(source), set()).add(source)
    other: dict[tuple[int, ...], tuple[int, ...]] = {}
    for _, group in sorted(by_length.items()):
        alike = sorted(group)
        order = rng.permutation(len(alike))
        if len(alike) > 1:
            for a, b in zip(order, np.roll(order, 1), strict=True):
                other[alike[a]] = alike[b]
    rows = np.array([i for i, source in enumerate(sources) if source in other], dtype=np.int64)
    exchanged = Ragged.of([other[sources[i]] for i in rows])
    return EncodedPairs(exchanged, pairs.tgt.take(rows)), rows


@torch.no_grad()
def held_out_figures(
    model: nn.Module, pairs: EncodedPairs, device: torch.device | str = "cpu", room: int = 0
) -> dict[str, float]:
    """Return ``loss``, the negative log-likelihood per pair in nats, EOS included, and ``perplexity`` per word, EOS counted."""
    total, words = 0.0, 0
    for start in range(0, len(pairs), _EVALUATED):
        for piece in in_pieces(pairs.take(np.arange(start, min(start + _EVALUATED, len(pairs)))), room):
            src, tgt = pack_pairs(piece, device)
            total += model(src, tgt).item()
            words += len(tgt.ids)
    return {"loss": total / len(pairs), "perplexity": math.exp(min(total / words, 700.0))}


def is_sampled(softmax: str, words: int, device: str) -> bool:
    """Return whether a softmax of this number of words is taken over drawn ones: a small one never, ``auto`` on a CPU."""
    return words >= WORTHWHILE and (softmax == "sampled" or (softmax == "auto" and device == "cpu"))


class Part(NamedTuple):
    """Pairs of a minibatch, and seeds: of the words drawn for their softmax, None if it is over all, and of dropout if any."""

    pairs: EncodedPairs
    seeds: tuple[tuple[int, ...] | None, ...] = ()
    room: int = 0  # for padded pairs; 0: they are not padded


# Numbers of a minibatch that is padded; of 96 pairs of 100 words it has 11 million, and a step some copies of them. What is
# only measured has no copies
ROOM, _ROOM_MEASURED = 1 << 24, 1 << 26
_OF_WORD = 512  # numbers, as of the layers that are padded; of every two words of a pair there is one, for attention


def in_pieces(pairs: EncodedPairs, room: int) -> list[EncodedPairs]:
    """Cut pairs, the longest first, so that each piece, padded to its longest sides, has room or is one pair."""
    src, tgt = pairs.src.lengths + 1, pairs.tgt.lengths + 1  # with EOS

    def numbers(n: int, src: int, tgt: int) -> int:
        return n * (src * tgt + _OF_WORD * (src + tgt))

    if not room or not len(pairs) or numbers(len(pairs), int(src.max()), int(tgt.max())) <= room:
        return [pairs]
    order, cuts, longest = np.lexsort((src, tgt))[::-1], [0], 0
    for i, row in enumerate(order):
        longest = max(longest, int(src[row])) if i > cuts[-1] else int(src[row])
        if i > cuts[-1] and numbers(i + 1 - cuts[-1], longest, int(tgt[order[cuts[-1]]])) > room:
            cuts.append(i)
            longest = int(src[row])
    return [pairs.take(rows) for rows in np.split(order, cuts[1:])]


# From pairs, the size of a minibatch, a seed and a number: minibatches without end, from that number on
Minibatches = Callable[[EncodedPairs, int, int, int], Iterator[EncodedPairs]]


def at_random(pairs: EncodedPairs, size: int, seed: int, first: int) -> Iterator[EncodedPairs]:
    """Yield minibatches of ``size`` pairs, drawn at random without replacement, pass after pass (section 4.1)."""
    return map(pairs.take, drawn_rows(len(pairs), size, seed, first))


Network = TypeVar("Network", bound=nn.Module)  # from what ``pack_pairs`` returns and seeds to the summed loss


class PairTask(Generic[Network]):
    """Gives the loop every pair once a pass, as ``loop.Task`` says.

    ``sampled``: until SAMPLED of the run the softmax is taken over drawn words. ``minibatches``: their order. ``drops``: the
    network gets a seed of dropout, made of the numbers of step, part and piece but the first. ``padded``: it pads pairs.
    """

    def __init__(
        self, module: Network, pairs: EncodedPairs, held_out: EncodedPairs, batch_size: int, seed: int,
        device: str = "cpu", sampled: bool = False, minibatches: Minibatches = at_random, drops: bool = False,
        padded: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.pairs, self.held_out = module, pairs, held_out
        self.batch_size, self.seed, self.device, self.sampled = min(batch_size, len(pairs)), seed, device, sampled
        self._minibatches, self._drops = minibatches, drops
        self._room, self._room_measured = (ROOM, _ROOM_MEASURED) if padded else (0, 0)

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        """Yield minibatches from number ``first`` on."""
        return self._minibatches(self.pairs, self.batch_size, self.seed, first)

    def parts(self, batch: EncodedPairs, parts: int, step: int = 0, done: float = 1.0) -> list[Part]:
        """Put every ``parts``-th pair in the order of lengths into a part, so that all parts have nearly the same work."""
        cut = [batch]
        if parts > 1:
            order = np.lexsort((batch.src.lengths, batch.tgt.lengths))
            cut = [batch.take(np.sort(order[i::parts])) for i in range(parts)]
        sampled, result = self.sampled and done < SAMPLED, []
        for number, pairs in enumerate(cut):
            seed = (self.seed, step, number)
            room = self._room // min(parts, 32)  # each has its own
            result.append(Part(pairs, (seed if sampled else None, *([seed] if self._drops else [])), room))
        return result

    def pieces(self, part: Part) -> list[Part]:
        """Cut a part into pieces that have room, each with seeds of its own."""
        cut = in_pieces(part.pairs, part.room)
        seeds = [part.seeds, *([seed and (*seed, i) for seed in part.seeds] for i in range(1, len(cut)))]
        return [Part(pairs, tuple(of_piece)) for pairs, of_piece in zip(cut, seeds, strict=True)]

    def loss(self, module: nn.Module, piece: Part) -> Tensor:
        """Return the negative log-likelihood of the pairs in nats, a scalar."""
        if not len(
            piece.pairs
        ):  # fewer pairs than parts: nothing to add, but every process must take part in the backward pass
            return module(*pack_pairs(self.pairs.take(np.arange(1)), self.device)) * 0.0  # type: ignore[no-any-return]
        return module(*pack_pairs(piece.pairs, self.device), *piece.seeds)  # type: ignore[no-any-return]

    def evaluate(self) -> dict[str, float] | None:
        """Return the held-out figures, None if no pairs are held out."""
        return self._figures(self.held_out) if len(self.held_out) else None

    def control(self, warn: Say, remedy: str) -> dict[str, float] | None:
        """Return the held-out figures with other sources of equal length, None without such. Warn if they cost hardly more."""
        exchanged, rows = with_other_sources(self.held_out)
        if not len(rows):
            return None
        figures, loss = self._figures(exchanged), self._figures(self.held_out.take(rows))["loss"]
        if len(rows) >= _FEWEST and figures["loss"] < (1 + _READS) * loss:
            warn(f"the model hardly reads its source: held-out pairs cost nearly the same with other sources; {remedy}")
        return figures

    def _figures(self, pairs: EncodedPairs) -> dict[str, float]:
        return held_out_figures(self.module, pairs, self.device, self._room_measured)
