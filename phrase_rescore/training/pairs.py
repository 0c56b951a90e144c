"""Pairs to train on, of phrases or of sentences: from files to encoded arrays on disk, and the task of training on them."""

import contextlib
import math
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
from phrase_rescore.data.vocabulary import SIDES, Vocabularies, Vocabulary, most_frequent, read_shortlist, untrained_unk
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import beside, is_stream
from phrase_rescore.files.row_outputs import DroppedRows
from phrase_rescore.messages import Listener, Progress, Say, silent
from phrase_rescore.moses.pairs import PairBlock
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
    read: Callable[..., Generator[PairBlock]]  # takes the files of a group, ``on_read`` and, where rows drop, ``on_bad_row``
    options: dict[str, Any]  # what changes the pairs besides what follows
    min_count: int = 1  # pairs seen less often are left out; above 1 blocks have counts
    drops: bool = False  # bad rows are dropped


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
        options = {name: getattr(pairs, name) for name in _SHAPE_PAIRS} | inputs.options
        options |= {"min_count": inputs.min_count, "version": __version__}
        made_of = (fingerprint_of(paths, self._given, **options, drop_bad_rows=drops) for drops in (False, inputs.drops))
        super().__init__(paths, pairs.pairs_dir or beside(model_dir, "pairs"), *made_of)

    def check(self) -> None:
        """Check the first rows of every input, and vocabularies, but no streams. Raises InputError."""
        for group in self._inputs.groups:
            if not any(map(is_stream, group)):
                with contextlib.closing(self._read(group)) as pairs:
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
        for warning in untrained_unk(dict(zip(SIDES, unknown, strict=True)), "use a smaller --shortlist to train UNK"):
            warn(warning)

    def make(self, observer: Observer, check: Callable[[PairNumbers], None]) -> PairStore:
        """Read, sort and encode the pairs."""
        pairs, inputs = self._pairs, self._inputs

        def vocabularies(src: Counter[bytes], tgt: Counter[bytes]) -> Vocabularies:
            return self._vocabulary(0, src, observer.say), self._vocabulary(1, tgt, observer.say)

        with contextlib.ExitStack() as sorting:
            with self._dropped.opened():
                limits = inputs.min_count, pairs.max_length
                blocks = self._blocks(observer.on_read)
                in_order = sorted_pairs(blocks, self.scratch, self.directory, pairs.memory, self._threads, *limits)
                distinct = sorting.enter_context(in_order)  # all rows are read: their file is complete before the pairs are
            made_of = self.fingerprints[1 if self._dropped.rows else 0]
            how_many = pairs.held_out, observer.on_pairs
            store = prepare_store(self.directory, made_of, distinct, vocabularies, *how_many, check)
        if dropped := self._dropped.summary():
            observer.warn(dropped)
        rarely = f"seen less than {inputs.min_count} times"
        for why, number in (("too long", store.numbers.too_long), (rarely, store.numbers.left_out)):
            if number:
                observer.say(f"{number:,} distinct pairs left out: {why}")
        return store

    def _blocks(self, on_read: Progress | None) -> Iterator[PairBlock]:
        for group in self._inputs.groups:
            name = display_name(group[0])

            def drop(line: int, row: bytes, error: RowError, name: str = name) -> None:
                self._dropped.add(f"{name}:{line}", row)

            yield from self._read(group, on_read, drop)

    def _read(
        self, group: Sequence[str], on_read: Progress | None = None, on_bad_row: Callable[..., None] = silent
    ) -> Generator[PairBlock]:
        more = {"on_bad_row": on_bad_row} if self._inputs.drops else {}
        return self._inputs.read(*group, on_read=on_read, **more)

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
def held_out_figures(model: nn.Module, pairs: EncodedPairs, device: torch.device | str = "cpu") -> dict[str, float]:
    """Return ``loss``, the negative log-likelihood per pair in nats, EOS included, and ``perplexity`` per word, EOS counted."""
    total, words = 0.0, 0
    for start in range(0, len(pairs), _EVALUATED):
        src, tgt = pack_pairs(pairs.take(np.arange(start, min(start + _EVALUATED, len(pairs)))), device)
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


# From pairs, the size of a minibatch, a seed and a number: minibatches without end, from that number on
Minibatches = Callable[[EncodedPairs, int, int, int], Iterator[EncodedPairs]]


def at_random(pairs: EncodedPairs, size: int, seed: int, first: int) -> Iterator[EncodedPairs]:
    """Yield minibatches of ``size`` pairs, drawn at random without replacement, pass after pass (section 4.1)."""
    return map(pairs.take, drawn_rows(len(pairs), size, seed, first))


Network = TypeVar("Network", bound=nn.Module)  # from what ``pack_pairs`` returns and seeds to the summed loss


class PairTask(Generic[Network]):
    """Gives the loop every pair once a pass, as ``loop.Task`` says.

    ``sampled``: until SAMPLED of the run the softmax is taken over drawn words. ``minibatches``: their order. ``drops``: the
    network gets a seed of dropout, made of the numbers of step and part.
    """

    def __init__(
        self, module: Network, pairs: EncodedPairs, held_out: EncodedPairs, batch_size: int, seed: int,
        device: str = "cpu", sampled: bool = False, minibatches: Minibatches = at_random, drops: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.pairs, self.held_out = module, pairs, held_out
        self.batch_size, self.seed, self.device, self.sampled = min(batch_size, len(pairs)), seed, device, sampled
        self._minibatches, self._drops = minibatches, drops

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
            result.append(Part(pairs, (seed if sampled else None, *([seed] if self._drops else []))))
        return result

    def loss(self, module: nn.Module, part: Part) -> Tensor:
        """Return the negative log-likelihood of the pairs in nats, a scalar."""
        if not len(part.pairs):  # fewer pairs than parts: nothing to add, but every process must take part in the backward pass
            return module(*pack_pairs(self.pairs.take(np.arange(1)), self.device)) * 0.0  # type: ignore[no-any-return]
        return module(*pack_pairs(part.pairs, self.device), *part.seeds)  # type: ignore[no-any-return]

    def evaluate(self) -> dict[str, float] | None:
        """Return the held-out figures, None if no pairs are held out."""
        return held_out_figures(self.module, self.held_out, self.device) if len(self.held_out) else None

    def control(self, warn: Say, remedy: str) -> dict[str, float] | None:
        """Return the held-out figures with other sources of equal length, None without such. Warn if they cost hardly more."""
        exchanged, rows = with_other_sources(self.held_out)
        if not len(rows):
            return None
        figures = held_out_figures(self.module, exchanged, self.device)
        loss = held_out_figures(self.module, self.held_out.take(rows), self.device)["loss"]
        if len(rows) >= _FEWEST and figures["loss"] < (1 + _READS) * loss:
            warn(f"the model hardly reads its source: held-out pairs cost nearly the same with other sources; {remedy}")
        return figures
