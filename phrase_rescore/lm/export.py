"""An n-gram model with the probabilities of a network: the n-grams of an ARPA file stay (Wang et al. 2013), every p is new.

For an n-gram (h, w) of the file, with N the words of the file that the network knows and O those that it does not know, p_n
the network's and p_o the old model's probabilities, and S(h) = Σ_{v in O} p_o(v | h):

    p(w | h) = p_n(w | h) (1 - S(h)) / Σ_{v in N} p_n(v | h)     w in N
    p(w | h) = p_o(w | h)                                        w in O
    bo(h)    = (1 - Σ p(w | h)) / (1 - Σ p(w | h'))              both over the n-grams (h, w) of the file

so that every context sums to one. A context of fewer words than the network's is one whose older words are missing; one that
begins with ``<s>`` is whole. All sums are float64.
"""

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.errors import InputError, OptionError, Say, shown, silent
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import Path
from phrase_rescore.lm.checkpoint import LanguageModel, load, warnings
from phrase_rescore.lm.formats import NEVER, UNKNOWN, ArpaReader, Ngram, write_arpa, write_nplm
from phrase_rescore.lm.network import Ngrams
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.text import END, START
from phrase_rescore.runtime import prepare, resolve_device, usable_cores

_AT_ONCE = 1 << 16  # contexts
_LEAST = 10.0**NEVER


def export_lm(lm: Path, out: Path, arpa: str | None = None, *, device: str = "cpu", warn: Say = silent) -> str:
    """Write a language model for decoders as ``phrase-rescore export-lm`` does, as NPLM or with the n-grams of an ARPA file.

    ``-``: to standard output. Returns a line of the report.
    """
    out = os.fspath(out)
    if out.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise OptionError(f"cannot write {out}: NPLM and KenLM's build_binary read plain text")
    model = load(os.fspath(lm))
    for warning in warnings(model, lower_orders=True):
        warn(warning)
    if arpa is None:
        with atomic_output(out) as output:
            write_nplm(output, model)
        return f"{out}: NeuralLM factor=0 name=CSLM0 order={model.model.config.order} path={out}"
    prepare(usable_cores())
    name = display_name(arpa)
    with open_input(arpa) as stream, atomic_output(out) as output:
        found = NetworkArpa(ArpaReader(read_rows(stream), name), model, name, resolve_device(device))
        write_arpa(output, found.counts, found.ngrams())
    if not found.has_unknown:
        warn(f"{name} has no <unk>, so decoders choose the score of other words; make it with lmplz")
    return f"{out}: {sum(found.counts):,} n-grams"


@dataclass
class _Order:
    """The n-grams of one order, sorted by word numbers; probabilities are natural, not logarithms."""

    words: NDArray[np.int32]  # (m, n)
    keys: NDArray[np.int64]  # (m,) the row of the words before the last one, in the order below, times words, plus the last one
    p_old: NDArray[np.float64]  # (m,)
    bo_old: NDArray[np.float64]
    place: NDArray[np.int64]  # (m,) in the file
    p: NDArray[np.float64]
    bo: NDArray[np.float64]


class NetworkArpa:
    """Reads an ARPA file whole (50 bytes an n-gram, four a word); gives its n-grams with a network's p. Raises InputError."""

    def __init__(self, reader: ArpaReader, lm: LanguageModel, name: str, device: str = "cpu") -> None:
        self._sizes, self._name = lm.model.config, name
        self._names = list(dict.fromkeys((*reader.unigrams, UNKNOWN)))
        self._numbers = {word: number for number, word in enumerate(self._names)}
        self._start, self.has_unknown = self._numbers[START], UNKNOWN in reader.unigrams
        self._orders: list[_Order] = []
        self._read(reader)
        ids = lm.vocab.encode(self._names)
        self._ids = np.where(np.array([word in (START, END) for word in self._names]), EOS, ids)
        self._outside = self._ids == UNK
        self._scorer = NgramScorer(lm, device, among=np.unique(self._ids[~self._outside]))
        shares: list[NDArray[np.float64]] = []  # S of each order's n-grams as contexts, NaN where they are none
        for n in range(1, len(self.counts) + 1):
            shares.append(self._shares_after(n, shares))
            self._compute(n, shares)

    def _read(self, reader: ArpaReader) -> None:
        """Read the orders, and sort each by word numbers."""
        ngrams = reader.ngrams()
        below = np.zeros(1, np.int64)  # what stands before a unigram
        for n, count in enumerate(reader.counts, 1):
            flat, log_p, log_bo = array("i"), array("d"), array("d")  # they grow: the header may lie
            for ngram in islice(ngrams, count):
                flat.extend(self._numbers[word] for word in ngram.words)
                log_p.append(ngram.log10_p)
                log_bo.append(ngram.log10_backoff)
            words = np.array(flat, np.int32).reshape(-1, n)
            below = self._rows(words[:, :-1])
            if (below < 0).any():
                lacking = shown(b" ".join(self._names[number] for number in words[below < 0][0, :-1]))
                raise InputError(self._name, f"n-grams after {lacking}, which the file lacks", "is the file whole?")
            keys = below * len(self._numbers) + words[:, -1]
            order = np.argsort(keys, kind="stable")
            order = order[np.diff(keys[order], prepend=-1) > 0]  # of an n-gram that is there twice the first
            p, bo = 10.0 ** np.array(log_p), 10.0 ** np.array(log_bo)
            new_p, new_bo = np.empty(len(order)), np.ones(len(order))
            self._orders.append(_Order(words[order], keys[order], p[order], bo[order], order, new_p, new_bo))
        next(ngrams, None)  # the end of the file is looked at
        self.counts = tuple(len(of.keys) for of in self._orders)

    def _rows(self, words: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where n-grams (m, n) are in their order, -1 for those that are not there: (m,). The empty one is 0."""
        rows = np.zeros(len(words), np.int64)
        for of, last in zip(self._orders, words.T, strict=False):
            wanted = rows * len(self._numbers) + last
            at = np.minimum(np.searchsorted(of.keys, wanted), max(0, len(of.keys) - 1))
            there = (of.keys[at] == wanted) & (rows >= 0) if len(of.keys) else np.zeros(len(rows), np.bool_)
            rows = np.where(there, at, -1)
        return rows

    def _backed_off(self, words: NDArray[np.int32], new: bool) -> NDArray[np.float64]:
        """Return p of the last words after the others, by the network's model or the old one: (m,)."""
        n = words.shape[1]
        of = self._orders[n - 1]
        at, found = self._rows(words), np.full(len(words), _LEAST)
        found[at >= 0] = (of.p if new else of.p_old)[at[at >= 0]]
        rest = np.flatnonzero(at < 0)
        if n > 1 and len(rest):
            found[rest] = self._backed_off(words[rest, 1:], new) * self._backoff(words[rest, :-1], new)
        return found

    def _backoff(self, contexts: NDArray[np.int32], new: bool) -> NDArray[np.float64]:
        """Return the back-off weights of contexts, 1 where the file does not have them."""
        of = self._orders[contexts.shape[1] - 1]
        at = self._rows(contexts)
        found = np.ones(len(at))
        found[at >= 0] = (of.bo if new else of.bo_old)[at[at >= 0]]
        return found

    def _contexts(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return of order n's sorted n-grams where each context begins, the context of each, and its row in the order below."""
        below = self._orders[n - 1].keys // len(self._numbers)
        rows, starts, which = np.unique(below, return_index=True, return_inverse=True)
        return starts, which, rows

    def _shares_after(self, n: int, lower: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return S(h) of every (n-1)-gram h, NaN if nothing in the file follows it."""
        of = self._orders[n - 1]
        starts, which, rows = self._contexts(n)
        outside = np.flatnonzero(self._outside[of.words[:, -1]])
        share = np.asarray(np.bincount(which[outside], of.p_old[outside], len(starts)), np.float64)
        if n > 1:
            contexts = of.words[starts, :-1]
            shorter = np.bincount(which[outside], self._backed_off(of.words[outside, 1:], new=False), len(starts))
            below = self._share_of(contexts[:, 1:], lower)
            share += self._orders[n - 2].bo_old[rows] * np.maximum(below - shorter, 0.0)
        found = np.full(len(self._orders[n - 2].keys) if n > 1 else 1, np.nan)
        found[rows] = share
        return found

    def _share_of(self, contexts: NDArray[np.int32], lower: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return S of any contexts (m, k), which may have no n-grams of their own."""
        k = contexts.shape[1]
        if k == 0:
            return np.full(len(contexts), lower[0][0])
        at, found = self._rows(contexts), np.full(len(contexts), np.nan)
        found[at >= 0] = lower[k][at[at >= 0]]
        rest = np.flatnonzero(np.isnan(found))
        if len(rest):
            found[rest] = self._backoff(contexts[rest], new=False) * self._share_of(contexts[rest, 1:], lower)
        return found

    def _compute(self, n: int, shares: list[NDArray[np.float64]]) -> None:
        """Give order n its probabilities, and the order below it its back-off weights."""
        of = self._orders[n - 1]
        starts, which, rows = self._contexts(n)
        last = of.words[:, -1]
        scale = np.maximum(1.0 - shares[n - 1][rows], 0.0)
        of.p = np.where(self._outside[last], of.p_old, self._network(of.words, starts) * scale[which])
        if n == 1:
            of.p[last == self._start] = _LEAST
            of.p /= of.p.sum()  # nothing to back off to: rounding
            return
        explicit = np.bincount(which, of.p, len(starts))
        lower = np.bincount(which, self._backed_off(of.words[:, 1:], new=True), len(starts))
        left, below = np.maximum(1.0 - explicit, 0.0), np.maximum(1.0 - lower, 1e-12)
        self._orders[n - 2].bo[rows] = left / below

    def _network(self, words: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return p_n(w | h) / Σ_{v in N} p_n(v | h) of the last words after those before them: (m,)."""
        network, ends = np.ones(len(words)), np.append(starts[1:], len(words))
        for first in range(0, len(starts), _AT_ONCE):
            rows = slice(starts[first], ends[min(first + _AT_ONCE, len(starts)) - 1])
            known = np.flatnonzero(~self._outside[words[rows, -1]]) + rows.start
            ids = self._ids[words[known, -1]].astype(np.int64)
            network[known] = np.exp(self._scorer.log_probs(Ngrams(self._context_ids(words[known]), ids)))
        return network

    def _context_ids(self, words: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the network's contexts of n-grams: the words before the last."""
        sizes = self._sizes
        before = words[:, :-1][:, -(sizes.order - 1) :]
        contexts = np.full((len(words), sizes.order - 1), sizes.missing, np.int64)
        if before.shape[1]:
            contexts[:, -before.shape[1] :] = self._ids[before]
            from_start = (before == self._start).any(1)
            contexts[from_start] = np.where(contexts[from_start] == sizes.missing, EOS, contexts[from_start])
        return contexts

    def ngrams(self) -> Iterator[Ngram]:
        """Yield the n-grams in the order of the file."""
        for of in self._orders:
            back = np.argsort(of.place)
            log_p = np.log10(np.clip(of.p, _LEAST, 1.0))  # a float32 may be above 1 in its last digit
            if of.words.shape[1] == 1:  # never predicted; KenLM writes 0 there
                is_start = of.words[:, 0] == self._start
                log_p[is_start] = np.log10(np.maximum(of.p_old[is_start], _LEAST))
            log_bo = np.log10(np.maximum(of.bo, _LEAST))
            for row in back.tolist():
                words = tuple(self._names[number] for number in of.words[row].tolist())
                yield Ngram(words, float(log_p[row]), float(log_bo[row]))
