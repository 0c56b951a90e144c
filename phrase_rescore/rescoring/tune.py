"""Weights with which n-best lists of a tuning set yield the best BLEU, the whole of ``phrase-rescore tune``.

BLEU of the entries that weights choose is a step function of them. Och's line search (2003) climbs it: along a line w + γ d the
total of an entry is linear in γ, and all BLEUs along the line follow from the points where the choice changes. Where no line
leads upwards, L-BFGS climbs BLEU of the expected counts, which is smooth (Rosti et al. 2011): exp(total) / Σ exp(total) is the
probability of an entry in its list. It does so again with larger weights; then come the lines again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, permutations
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from phrase_rescore.errors import InputError
from phrase_rescore.evaluation.corpora import read_lines, segments_of
from phrase_rescore.evaluation.significance import LEVEL, randomization_p_values
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import check_apart
from phrase_rescore.messages import Progress, counted, printable
from phrase_rescore.moses.hypotheses import as_value
from phrase_rescore.moses.parallel import check_lines
from phrase_rescore.ranges import RESTARTS, SEEDS, Checked, ranged
from phrase_rescore.rescoring.lists import Floats, Lists, Reader, Rows, given_weights

SHARPNESS, STEPS = (30.0, 90.0), 30  # Σ|w| where each climb starts; its steps
ROUNDS, LEAST = 30, 0.002  # of line searches along all directions: at most so many, while BLEU rises by so much
WIDTH = 1e-6  # of the interval of γ in which the best choice does not change, at least
EXACT = 1e-3  # standard deviations of the totals: what is less is rounding
TINY = 1e-9
RARE = 0.01  # of the segments: a weight that fewer decide on would be learnt by heart


@dataclass(frozen=True)
class TuneOptions(Checked):
    """The options."""

    nbest: tuple[str, ...]
    references: tuple[str, ...]
    out: str = "-"
    weights: str | None = None  # an ini to start from
    tokenize: str = "none"  # one of sacrebleu's
    restarts: int = ranged(5, RESTARTS)
    seed: int = ranged(1, SEEDS)


@dataclass
class TuneSummary:
    """The result. A gain is that of weights on the half of the segments that they were not tuned on."""

    entries: int = 0
    segments: int = 0
    bleu_of_totals: float = 0.0
    bleu: float = 0.0
    constant: tuple[str, ...] = ()  # what decides in RARE of the segments or fewer: labels, with numbers of their values
    new: tuple[str, ...] = ()  # labels that the totals do not count: the gain is over weights tuned without them,
    gain: float = 0.0  # else over the totals
    p: float = 1.0
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the lines of the report, without the ``warnings``."""
        lines = [
            f"{self.entries:,} entries of {counted(self.segments, 'segment')}",
            f"BLEU {self.bleu_of_totals:.2f} by the totals of the lists, {self.bleu:.2f} by the new weights",
        ]
        if self.segments > 1:
            over = f"weights tuned without {', '.join(self.new)}" if self.new else "the totals of the lists"
            verdict = "within noise" if self.p >= LEVEL else "beyond noise" if self.gain > 0 else "a loss"
            judged = "judged on the halves that the weights were not tuned on"
            lines.append(f"gain {self.gain:+.2f} BLEU over {over}, {judged} (p = {self.p:.4f}): {verdict}")
        if self.constant:
            lines.append(f"{', '.join(self.constant)}: the same in all entries of nearly every segment, so the weight is 0")
        return lines


def bleu(counts: Floats) -> Floats:
    """Return BLEU of sums of counts, (..., 10), as sacrebleu smooths it."""
    length, reference, matches, ngrams = counts[..., 0], counts[..., 1], counts[..., 2:6], counts[..., 6:10]
    zero = matches == 0
    smoothed = np.where(zero, 0.5 ** np.cumsum(zero, -1), matches)
    smoothed = smoothed * (matches[..., :1] > 0)  # without a word in common there is nothing to smooth
    with np.errstate(all="ignore"):
        precision = np.log(smoothed / ngrams).mean(-1)
        brevity = np.minimum(0, 1 - reference / length)
        score = 100 * np.exp(precision + brevity)
    return np.asarray(np.where(ngrams.all(-1), score, 0.0))


def expected_bleu(counts: Tensor) -> Tensor:
    """Return BLEU of sums of counts, (10,), which may be expectations."""
    precisions = counts[2:6].clamp(min=TINY) / counts[6:10].clamp(min=TINY)
    return 100 * torch.exp(precisions.log().mean() + torch.clamp(1 - counts[1] / counts[0], max=0))


def climbed(features: Tensor, counts: Tensor, segment: Tensor, start: Tensor, steps: int) -> Tensor:
    """Return weights from ``start`` uphill in expected BLEU, (features,), for entries in the order of their segments."""
    weights, segments = start.clone().requires_grad_(True), int(segment.max()) + 1
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = features @ weights
        top = total.new_full((segments,), -torch.inf).scatter_reduce(0, segment, total.detach(), "amax")
        weight = (total - top[segment]).exp()
        mass = total.new_zeros(segments).index_add(0, segment, weight)
        loss = -expected_bleu((weight / mass[segment]) @ counts)
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach()


def chosen(totals: Floats, places: Rows) -> Rows:
    """Return which entry of every segment has the highest of the totals (n,), the first of equal ones: (S,)."""
    return np.asarray(places[np.arange(len(places)), totals[places].argmax(1)])


def best_step(a: Floats, b: Floats, counts: Floats) -> tuple[float, float]:
    """Return the γ at which choosing by a + γ b, (S, K), has the highest BLEU, and that BLEU. ``counts``: (S, K, 10)."""
    rows = np.arange(len(a))
    at = np.where(b == b.min(1, keepdims=True), a, -np.inf).argmax(1)  # what is chosen at γ = -∞
    total, steps, changes = counts[rows, at].sum(0), [np.zeros(0)], [np.zeros((0, 10))]
    # With growing γ the choice in a segment goes from each entry to the steeper one that meets it first (the upper envelope of
    # their lines). Every round makes this step in all segments; those whose entry meets no other are done.
    while len(rows):
        own = np.arange(len(rows))
        slope = b - b[own, at][:, None]
        with np.errstate(all="ignore"):
            meets = np.where(slope > 0, (a[own, at][:, None] - a) / slope, np.inf)
        following = meets.argmin(1)
        step = meets[own, following]
        go = np.flatnonzero(np.isfinite(step))
        steps.append(step[go])
        changes.append(counts[rows[go], following[go]] - counts[rows[go], at[go]])
        rows, at, a, b = rows[go], following[go], a[go], b[go]
    step = np.concatenate(steps)
    if not len(step):
        return 0.0, float(bleu(total))
    order = np.argsort(step, kind="stable")
    # BLEU is constant between steps; γ is the middle of an interval, or a bit outside of all
    ends = np.concatenate([[step[order[0]] - 2], step[order], [step[order[-1]] + 2]])
    sums = total + np.concatenate([np.zeros((1, 10)), np.cumsum(np.concatenate(changes)[order], 0)])
    score = np.where(np.diff(ends) > WIDTH, bleu(sums), -1)
    best = int(score.argmax())
    return float(ends[best] + ends[best + 1]) / 2, float(score[best])


def searched(features: Floats, counts: Floats, start: Floats, rng: np.random.Generator) -> tuple[Floats, float]:
    """Return weights (F,) from ``start`` uphill in BLEU along the features (S, K, F) and random directions, and that BLEU."""
    weights, rows = start / np.abs(start).sum(), np.arange(len(features))
    totals = features @ weights
    highest = float(bleu(counts[rows, totals.argmax(1)].sum(0)))
    for _ in range(ROUNDS):
        before = highest
        axes, others = np.eye(len(start)), rng.normal(size=(len(start) // 2, len(start)))
        for direction in rng.permutation(np.concatenate([axes, others])):
            slopes = features @ direction
            step, score = best_step(totals, slopes, counts)
            if score > highest:
                weights, totals, highest = weights + step * direction, totals + step * slopes, score
                size = np.abs(weights).sum()
                weights, totals = weights / size, totals / size
        if highest < before + LEAST:
            break
    return weights, highest


def scaled(lists: Lists, least: float = 0.0) -> tuple[Floats, Floats]:
    """Return centred features in standard deviations, and these: 0 for what differs in at most ``least`` of the segments."""
    entries = np.bincount(lists.segment)
    means = np.stack([np.bincount(lists.segment, column) / entries for column in lists.features.T], axis=1)
    centred = lists.features - means[lists.segment]
    scale = centred.std(0)
    differs = np.abs(centred) > TINY * np.abs(lists.features).max(0)
    # of each feature, the number of segments in which it differs
    segments = np.array([len(np.unique(lists.segment[rows])) for rows in differs.T])
    scale[segments <= least * len(entries)] = 0
    return centred / np.where(scale > 0, scale, np.inf), scale


def tuned(lists: Lists, start: Floats, restarts: int, seed: int, on_climb: Callable[[], object]) -> Floats:
    """Return the weights of the highest BLEU that climbs from ``start`` and from random ones reach: (features,), Σ|w| = 1."""
    features, scale = scaled(lists, RARE)
    places, rng = lists.places(), np.random.default_rng(seed)
    flat = torch.from_numpy(features), torch.from_numpy(lists.counts), torch.from_numpy(lists.segment)
    padded, of_padded = features[places], lists.counts[places]
    best, highest = start, -1.0
    for number in range(1 + restarts):
        weights = rng.normal(size=len(start)) if number or not (start * scale).any() else start * scale
        reached = [searched(padded, of_padded, weights, rng)]
        weights = reached[0][0]
        for sharpness in SHARPNESS:
            weights = climbed(*flat, torch.from_numpy(weights * (sharpness / np.abs(weights).sum())), STEPS).numpy()
        reached.append(searched(padded, of_padded, weights, rng))
        best, highest = max([(best, highest), *reached], key=itemgetter(1))
        on_climb()
    best = best / np.where(scale > 0, scale, np.inf)
    return np.asarray(best / np.abs(best).sum())


def start_of(lists: Lists, labels: Sequence[bytes]) -> tuple[Floats, list[bytes]]:
    """Return the weights that made the totals, (features,), and which of the features' labels these do not count; else ones."""
    features, scale = scaled(lists)
    totals = scaled(lists._replace(features=lists.totals[:, None]))[0][:, 0]
    weights = np.linalg.lstsq(features, totals, rcond=TINY)[0]
    rest = features @ weights - totals
    if not totals.any() or rest.std() > EXACT:  # of another decoder, or with features that the list does not have
        return np.ones(len(scale)), []
    weights = np.where(np.abs(weights) > EXACT, weights, 0)
    counting = {labels[i] for i in np.flatnonzero(weights).tolist()}
    differing = dict.fromkeys(labels[i] for i in np.flatnonzero(scale).tolist())
    return weights / np.where(scale > 0, scale, 1), [label for label in differing if label not in counting]


def gain_over(lists: Lists, kept: Rows, start: Floats, tune: Callable[[Lists, Floats], Floats]) -> tuple[float, float]:
    """Return the gain in BLEU of weights tuned on one half of the segments and judged on the other, and its p value.

    It is the gain over weights tuned on the features that are ``kept``, or, if these are all, over the totals.
    """
    before, after = list[Floats](), list[Floats]()
    for train, test in permutations((lists.half(0), lists.half(1))):
        places, base = test.places(), test.totals
        if len(kept) < len(start):
            base = test.features[:, kept] @ tune(train._replace(features=train.features[:, kept]), start[kept])
        before.append(test.counts[chosen(base, places)])
        after.append(test.counts[chosen(test.features @ tune(train, start), places)])
    a, b = np.concatenate(before), np.concatenate(after)
    p = randomization_p_values([a[None]], [b[None]], [lambda sums: float(bleu(np.array(sums)))], 10_000, 1)[0]
    return float(bleu(b.sum(0)) - bleu(a.sum(0))), p


def tune(options: TuneOptions, on_read: Progress | None, on_climb: Callable[[], object]) -> TuneSummary:
    """Find weights and write them. Raises InputError, with the line, for bad lists, OptionError for options that do not fit."""
    reads = [("NBEST", path) for path in options.nbest] + [("--reference", path) for path in options.references]
    check_apart([*reads, ("--weights", options.weights)], [("-o", options.out)])
    references = {path: segments_of(display_name(path), read_lines(path)) for path in options.references}
    check_lines(references)
    reader = Reader(list(references.values()), options.tokenize)
    for path in options.nbest:
        reader.read(path, on_read)
    lists, labels = reader.lists(), [label for label, n in reader.shape.items() for _ in range(n)]
    places = lists.places()
    scale = scaled(lists, RARE)[1]
    if not scale.any():
        found = "all entries of a segment have the same features"
        raise InputError(display_name(options.nbest[0]), found, "pass lists of more hypotheses")
    start, new = start_of(lists, labels)
    if options.weights is not None:
        start = given_weights(options.weights, reader.shape)
    # 0.0: no weight is -0
    values = [as_value(weight + 0.0) for weight in tuned(lists, start, options.restarts, options.seed, on_climb)]
    by_weights = lists.features @ np.array([float(value) for value in values])
    of_totals, of_weights = (float(bleu(lists.counts[chosen(totals, places)].sum(0))) for totals in (lists.totals, by_weights))
    names = [printable(label) + f" {k}" * (n > 1) for label, n in reader.shape.items() for k in range(1, n + 1)]
    constant = tuple(names[i] for i in np.flatnonzero(scale == 0).tolist())
    summary = TuneSummary(len(lists.segment), len(places), of_totals, of_weights, constant, tuple(map(printable, new)))
    if missing := len(references[options.references[0]]) - summary.segments:
        summary.warnings.append(f"no entry for {counted(missing, 'line')} of the reference; BLEU is of the others")
    if summary.segments > 1:
        tune_half = partial(tuned, restarts=options.restarts // 2, seed=options.seed, on_climb=on_climb)
        kept = np.flatnonzero([label not in new for label in labels])
        summary.gain, summary.p = gain_over(lists, kept, start, tune_half)
    _write(options, labels, values, summary.bleu)
    return summary


def _write(options: TuneOptions, labels: Sequence[bytes], values: Sequence[bytes], bleu: float) -> None:
    """Write the weights as a section of an ini, a line for each label, and in a comment where they are from."""
    command = ["phrase-rescore", "tune", *options.nbest, "--reference", ",".join(options.references)]
    with atomic_output(options.out) as stream:
        stream.write(f"# {printable(shlex.join(command), 1000)}: BLEU {bleu:.2f}\n[weight]\n".encode())
        for label, group in groupby(zip(labels, values, strict=True), key=itemgetter(0)):
            stream.write(b" ".join([label + b"=", *(value for _, value in group)]) + b"\n")
