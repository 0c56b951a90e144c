"""The low-rank softmax of the output layer, without ever holding the logits of all positions.

p(y = k) = softmax_k(G_l g + b_G) with g = G_r s of R numbers and K = some 15,000 words: the logits of a batch would be larger
than all else. So rows are taken a few at a time and, in training, the gradient is formed while they are at hand.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.nn.linear import MULTIPLE, by_onednn, filled, product

ROWS = 256  # rows at a time, on a CPU: their exponentials (15 MB at K = 15,002) should stay in the last-level cache
TILE_SYMBOLS, TILE_ROWS = 1024, 512  # of a normaliser's exponentials: 2 MB
GROUP = 64  # words: the k best words are in the k best groups
GPU_ROWS = 4096  # of logits: 246 MB at K = 15,002, and as many exponentials
SURE = 300  # words that every estimate of Z has; the k-th most frequent one has the chance SURE / k
LOG2_E = 1.0 / math.log(2.0)  # exp(x) = exp2(x log2 e): torch's exp2 takes half the time of its exp on AMD's CPUs


def plain_cross_entropy(g: Tensor, G_l: Tensor, b: Tensor, targets: Tensor, alpha: float = 0.0) -> Tensor:
    """Return what ``cross_entropy`` returns, by the equation, with all logits in memory: tests compare the two."""
    logits = g @ G_l.T + b
    log_z = logits.logsumexp(1)
    return (log_z + alpha * log_z.square() - logits.gather(1, targets.unsqueeze(1)).squeeze(1)).sum()


# What follows computes that in less time. Why it looks as it does:
# The K exponentials of a row cost more than all else. exp2 takes half the time of exp, so logits are multiplied by log2 e.
# Each pass over them counts: b is one more column of G_l, so that no pass adds it; a column of ones makes Z in the product
# that makes G_lᵀ e. Where numbers are cut to fewer digits, b has two columns: its upper digits and what they leave.


def _extended(G_l: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return [G_l, b log2 e, 1] in ``dtype``, (K, R + 2), wider for two columns of b's digits, and for a GPU's products."""
    bias = b * LOG2_E
    parts = [bias.to(dtype)]
    if dtype != b.dtype:
        parts.append((bias - parts[0]).to(dtype))
    elif b.is_cuda and torch.backends.cuda.matmul.allow_tf32:  # products keep as many digits as float16 has
        parts = [bias.half().to(dtype), bias - bias.half()]
    if b.is_cuda:
        parts += [torch.zeros_like(parts[0])] * (-(G_l.shape[1] + len(parts) + 1) % 8)
    return torch.cat((G_l.to(dtype), torch.stack((*parts, torch.ones_like(parts[0])), 1)), 1)


def _exponentials(g: Tensor, G_l: Tensor, b: Tensor, M: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
    """Return e = exp(G_l g + b - shift), a column for each row of g: (K, n); G_lᵀ e (R, n); Z = Σ e (n,); and the shift.

    The shift is 0 where that is safe, else each column's largest logit (n,). M is G_l's extension. e lies in ``out``.
    """
    R = g.shape[1]
    last = [g.new_zeros(len(g), 1)] if g.is_cuda else []  # times the 1, so that the width stays
    extended = torch.cat((g * LOG2_E, g.new_ones(len(g), M.shape[1] - R - 1), *last), 1).to(M.dtype)
    e = torch.mm(M[:, : extended.shape[1]], extended.T.contiguous(), out=out.view(len(M), -1)).exp2_()
    sums = torch.mm(M.T, e).to(g.dtype)
    mass = sums[-1]
    if _is_safe(mass):
        return e, sums[:R], mass, 0.0
    logits = torch.addmm(b.unsqueeze(1), G_l, g.T)
    shift = logits.amax(0)
    e = logits.sub_(shift).exp_()
    return e, G_l.T @ e, e.sum(0), shift


def _is_safe(mass: Tensor) -> bool:
    """Return whether no sum of exponentials has overflowed or lost a term that matters."""
    return bool(((mass > 1e-30) & (mass < 1e30)).all())


def _logits_of(targets: Tensor, g: Tensor, G_l: Tensor, b: Tensor) -> Tensor:
    return (g * G_l[targets]).sum(1) + b[targets]


class _CrossEntropy(torch.autograd.Function):
    """Σ_i -log softmax(G_l g_i + b)[target_i] + α log² Z_i, with the gradients made in the forward pass.

    ∂/∂logits = (1 + 2 α log Z) e / Z - [target], e = exp(logits), Z = Σ e. What is divided is R wide, and not e, K wide.
    """

    @staticmethod
    def forward(ctx: Any, g: Tensor, G_l: Tensor, b: Tensor, targets: Tensor, alpha: float, dtype: torch.dtype) -> Tensor:
        picked = _logits_of(targets, g, G_l, b)
        total = -picked.sum()
        M = _extended(G_l, b, dtype)
        d_g, d_G_l, d_b = torch.empty_like(g), torch.zeros_like(G_l), torch.zeros_like(b)
        if M.dtype != g.dtype:
            M = filled(M, M.dtype)  # a row of zeros has no part in Z, for its 1 is a 0
        at_once = GPU_ROWS if g.is_cuda else ROWS
        scratch = M.new_empty(len(M) * min(at_once, len(g) + MULTIPLE))  # to ask for it every time takes as long as a product
        for start in range(0, len(g), at_once):
            rows = g[start : start + at_once]
            n = len(rows)
            if M.dtype != g.dtype:
                rows = filled(rows, g.dtype)
            e, sums, mass, shift = _exponentials(rows, G_l, b, M, scratch[: len(M) * len(rows)])
            log_z = mass.log() + shift
            total += log_z[:n].sum() + alpha * log_z[:n].square().sum()
            mass = mass / (1.0 + 2.0 * alpha * log_z)
            mass[n:] = math.inf  # what was filled up has no gradient
            d_g[start : start + n] = (sums / mass).T[:n]
            weights = (rows / mass.unsqueeze(1)).to(e.dtype)
            if e.dtype == d_G_l.dtype:
                d_G_l.addmm_(e, weights)
            else:
                d_G_l += (e @ weights)[: len(b)]
            d_b += (e @ (1.0 / mass).to(e.dtype))[: len(b)]
        d_g -= G_l[targets]
        d_G_l.index_add_(0, targets, g, alpha=-1.0)
        d_b.index_add_(0, targets, torch.ones_like(picked), alpha=-1.0)
        ctx.save_for_backward(d_g, d_G_l, d_b)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grad_outputs
        gradients = ctx.saved_tensors if scale == 1.0 else [gradient * scale for gradient in ctx.saved_tensors]
        return *gradients, None, None, None


def sampled_words(targets: Tensor, K: int, seed: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return words to estimate Z from, ascending, and the natural log of how many words each stands for: (m,) each.

    Word k, counted from 1 and from the most frequent one, is drawn with the chance π_k = min(1, SURE / k), a target always. It
    stands for 1 / π words, so that Σ exp(logit) / π is Z in the mean (Horvitz and Thompson 1952).
    """
    chance = np.minimum(1.0, SURE / np.arange(1, K + 1))
    chance[targets.cpu().numpy()] = 1.0
    words = np.flatnonzero(np.random.default_rng(tuple(seed)).random(K) < chance)
    log_number = torch.from_numpy(-np.log(chance[words])).float()
    return torch.from_numpy(words).to(targets.device), log_number.to(targets.device)


def cross_entropy(
    g: Tensor, G_l: Tensor, b: Tensor, targets: Tensor, alpha: float = 0.0, dtype: torch.dtype | None = None,
    seed: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Return the summed negative log-likelihood, natural log, of ``targets`` (n,) under softmax(g @ G_l.T + b): a scalar.

    g (n, R), G_l (K, R), b (K,). ``alpha`` times log² Z of every row is added, Z being the sum that the softmax divides by
    (Devlin et al. 2014, section 2.2). Where a gradient is wanted, its products are in ``dtype`` (None: that of G_l). With a
    ``seed`` Z is estimated from ``sampled_words``. The estimate of Z has no bias, that of log Z little.
    """
    if seed is not None:
        words, log_number = sampled_words(targets, len(b), seed)
        G_l, b = G_l.index_select(0, words), b.index_select(0, words) + log_number
        targets = torch.searchsorted(words, targets)
    if not torch.is_grad_enabled():
        log_z = LogNormaliser(G_l, b)(g)
        return (log_z + alpha * log_z.square() - _logits_of(targets, g, G_l, b)).sum()
    return _CrossEntropy.apply(g, G_l, b, targets, alpha, dtype or G_l.dtype)  # type: ignore[no-any-return, no-untyped-call]


class NextWords(NamedTuple):
    """What may come after n positions: natural log p of EOS (n,) and of the k best words, and their ids (n, k)."""

    end: NDArray[np.float64]
    log_p: NDArray[np.float64]
    ids: NDArray[np.int64]


def _with_ones(g: Tensor) -> Tensor:
    """Return (g, 1), filled up where ``product`` wants it."""
    extended = torch.cat((g, g.new_ones(len(g), 1)), 1)
    return filled(extended, g.dtype) if by_onednn(g) else extended


class LogNormaliser:
    """Gives log Σ_k exp(G_l g + b)_k for rows of g, natural log, without a gradient: (n, R) -> (n,). G_l (K, R), b (K,).

    ``next_words`` gives the most probable words, too.
    A CPU accumulates it over tiles of TILE_SYMBOLS × TILE_ROWS exponentials that stay in cache, a GPU takes GPU_ROWS at a time.
    """

    def __init__(self, G_l: Tensor, b: Tensor) -> None:
        self.G_l, self.b = G_l, b
        if G_l.is_cuda:
            self._scaled = G_l * LOG2_E, b * LOG2_E
        else:
            self._binary = torch.cat((G_l, b.unsqueeze(1)), 1) * LOG2_E  # times (g, 1): what 2 is raised to

    def __call__(self, g: Tensor) -> Tensor:
        if g.is_cuda:
            G_l, b = self._scaled
            mass = torch.cat([torch.addmm(b, rows, G_l.T).exp2_().sum(1) for rows in g.split(GPU_ROWS)])
            if _is_safe(mass):
                return mass.log_()
            return torch.cat([self._at_once(rows) for rows in g.split(GPU_ROWS)])
        tile = g.new_empty(TILE_SYMBOLS * TILE_ROWS)
        log_z = []
        for part in g.split(TILE_ROWS):
            rows = _with_ones(part)
            mass = g.new_zeros(len(rows))
            for symbols in self._binary.split(TILE_SYMBOLS):
                e = tile[: len(symbols) * len(rows)].view(len(symbols), -1)
                mass += product(symbols, rows, out=e).exp2_().sum(0)
            log_z.append(mass[: len(part)].log_() if _is_safe(mass) else self._at_once(part))
        return torch.cat(log_z)

    def _at_once(self, g: Tensor) -> Tensor:
        """Compute it from whole rows of logits, whose largest is subtracted first: safe however far out they are."""
        return torch.logsumexp(torch.addmm(self.b, g, self.G_l.T), 1)

    def next_words(self, g: Tensor, k: int, barred: Tensor) -> NextWords:
        """Return what may come after the rows of g (n, R), the words without ``barred`` ones (m,), the lower of equal ones."""
        parts = zip(*(self._next_words(rows, k, barred) for rows in g.split(GPU_ROWS if g.is_cuda else TILE_ROWS)), strict=True)
        end, log_p, ids = (torch.cat(part).cpu() for part in parts)
        return NextWords(end.double().numpy(), log_p.double().numpy(), ids.numpy())

    def _next_words(self, g: Tensor, k: int, barred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, largest, log_z = self._logits(g)
        of_words = logits.view(-1, len(g))
        end = of_words[EOS] / LOG2_E - log_z
        of_words.index_fill_(0, barred, -torch.inf)
        changed = (barred // GROUP).unique()
        largest[changed] = logits[changed].amax(1)
        groups = largest.topk(min(k + 1, len(largest)), dim=0).indices  # the next one is in them, too
        ids = (groups.unsqueeze(1) * GROUP + torch.arange(GROUP, device=g.device)[:, None]).view(-1, len(g))
        values, places = of_words.gather(0, ids).topk(min(k + 1, len(ids)), dim=0)
        ids = ids.gather(0, places)
        tied = (values[k - 1] == values[k:]).any(0).nonzero().squeeze(1)  # topk takes any of them
        if len(tied):
            ordered, order = of_words[:, tied].sort(dim=0, descending=True, stable=True)
            values[:k, tied], ids[:k, tied] = ordered[:k], order[:k]
        return end, (values[:k] / LOG2_E - log_z).T, ids[:k].T

    def _logits(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return all logits times log2 e (K / GROUP, GROUP, n), the largest of each group (K / GROUP, n), and log Z (n,)."""
        K, n = len(self.b), len(g)
        logits = g.new_empty(-(-K // GROUP), GROUP, n)
        of_words, largest = logits.view(-1, n), g.new_empty(len(logits), n)
        of_words[K:] = -torch.inf
        if g.is_cuda:
            torch.addmm(self._scaled[1].unsqueeze(1), self._scaled[0], g.T, out=of_words[:K])
            torch.amax(logits, 1, out=largest)
            mass = of_words.exp2().sum(0)
        else:
            rows, mass = _with_ones(g), g.new_zeros(n)
            tile = g.new_empty(TILE_SYMBOLS, n)
            for first, symbols in zip(range(0, K, TILE_SYMBOLS), self._binary.split(TILE_SYMBOLS), strict=True):
                made = of_words[first : first + len(symbols)].copy_(product(symbols, rows)[:, :n])
                groups = slice(first // GROUP, -(-(first + len(symbols)) // GROUP))
                torch.amax(logits[groups], 1, out=largest[groups])
                mass += torch.exp2(made, out=tile[: len(symbols)]).sum(0)
        log_z = mass.log_() if _is_safe(mass) else (of_words / LOG2_E).logsumexp(0)
        return logits, largest, log_z
