"""Weights with which n-best lists of a tuning set yield the best BLEU, the whole of ``phrase-rescore tune``.

BLEU of the entries that weights choose is a step function of them. Och's line search (2003) climbs it: along a line w + γ d the
total of an entry is linear in γ, and all BLEUs along the line follow from the points where the choice changes. Where no line
leads upwards, L-BFGS climbs BLEU of the expected counts, which is smooth (Rosti et al. 2011): exp(total) / Σ exp(total) is the
probability of an entry in its list. It does so again with larger weights; then come the lines again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, permutations
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.errors import InputError
from phrase_rescore.evaluation.corpora import Segments, read_lines, reference_of
from phrase_rescore.evaluation.significance import LEVEL, randomization_p_values
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import check_apart
from phrase_rescore.messages import Progress, Shares, counted, printable
from phrase_rescore.moses.hypotheses import as_value
from phrase_rescore.moses.parallel import Doubts, check_bleu, check_lines, check_segments, check_texts
from phrase_rescore.moses.text import marks
from phrase_rescore.ranges import RESTARTS, SEEDS, Checked, ranged
from phrase_rescore.rescoring.lists import Floats, Lists, Reader, Rows, best_by, chosen, given_weights, scaled

SHARPNESS, STEPS = (30.0, 90.0), 30  # Σ|w| where each climb starts; its steps
ROUNDS, LEAST = 30, 0.002  # of line searches along all directions: at most so many, while BLEU rises by so much
WIDTH = 1e-6  # of the interval of γ in which the best choice does not change, at least
FROM_NOTHING = "none"
RARE = 0.01  # of the segments: a weight that fewer decide on would be learnt by heart


@dataclass(frozen=True)
class TuneOptions(Checked):
    """The options."""

    nbest: tuple[str, ...]
    references: tuple[str, ...]
    out: str = "-"
    weights: str | None = None  # an ini to start from, or FROM_NOTHING
    force: bool = False  # go on with a reference that hardly can be that of the lists
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
    new: tuple[str, ...] = ()  # labels that the weights before do not count: the gain is over weights tuned without them
    gain: float | None = None  # in BLEU
    p: float = 1.0
    why_no_gain: str = ""
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the lines of the report, without the ``warnings``."""
        lines = [
            f"{self.entries:,} entries of {counted(self.segments, 'segment')}",
            f"BLEU {self.bleu_of_totals:.2f} by the totals of the lists, {self.bleu:.2f} by the new weights",
        ]
        if self.gain is None:
            lines.append(f"no gain can be told: {self.why_no_gain}")
        else:
            verdict = "within noise" if self.p >= LEVEL else "beyond noise" if self.gain > 0 else "a loss"
            over = f"weights tuned without {', '.join(self.new)}, judged on the halves that the weights were not tuned on"
            lines.append(f"gain {self.gain:+.2f} BLEU over {over} (p = {self.p:.4f}): {verdict}")
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
    precisions = counts[2:6].clamp(min=1e-9) / counts[6:10].clamp(min=1e-9)
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


def tuned(lists: Lists, start: Floats, restarts: int, seed: int, on_climb: Progress) -> Floats:
    """Return the weights of the highest BLEU that climbs from ``start`` and from random ones reach: (features,), Σ|w| = 1.

    ``on_climb`` hears of every climb on how many entries it was.
    """
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
        on_climb(len(lists.segment))
    best = best / np.where(scale > 0, scale, np.inf)
    return np.asarray(best / (np.abs(best).sum() or 1.0))


def decides(lists: Lists) -> bool:
    """Tell whether a feature differs in enough segments to be tuned."""
    return len(lists.segment) > 0 and bool(scaled(lists, RARE)[1].any())


def gain_over(lists: Lists, kept: Rows, start: Floats, tune: Callable[[Lists, Floats], Floats]) -> tuple[float, float]:
    """Return the gain in BLEU of weights tuned on one half of the segments and judged on the other, and its p value.

    It is the gain over weights tuned likewise on the features that are ``kept``.
    """
    before, after = list[Floats](), list[Floats]()
    for train, test in permutations((lists.half(0), lists.half(1))):
        without = tune(train._replace(features=train.features[:, kept]), start[kept])
        before.append(test.counts[chosen(test.features[:, kept], without, test.places())])
        after.append(test.counts[chosen(test.features, tune(train, start), test.places())])
    a, b = np.concatenate(before), np.concatenate(after)
    p = randomization_p_values([a[None]], [b[None]], [lambda sums: float(bleu(np.array(sums)))], 10_000, 1)[0]
    return float(bleu(b.sum(0)) - bleu(a.sum(0))), p


def _start(reader: Reader, given: str | None, labels: Sequence[bytes]) -> tuple[Floats, set[bytes]]:
    """Return the weights to start from, (features,), and the labels of features that are not new; none if nothing says so.

    The weights are those of an ini, else those that made the totals of the last list, else ones. Not new are features of an
    ini that lacks others, else those that the totals count.
    """
    made = reader.weights()
    counting = {labels[i] for weights in made for i in np.flatnonzero(weights).tolist()}
    if given == FROM_NOTHING:
        return np.zeros(len(labels)), counting
    if given is None:
        return made[-1] if made else np.ones(len(labels)), counting
    start, of_ini = given_weights(given, reader.shape)
    return start, counting if of_ini == reader.shape.keys() else of_ini


def tune(options: TuneOptions, on_read: Progress | None, on_share: Callable[[float], object]) -> TuneSummary:
    """Find weights and write them. ``on_share`` hears which share is done, from 0, when all is read, to 1.

    Raises InputError, with the line, for bad lists, OptionError for options that do not fit. Also
    InputError if the totals count all features, unless weights to start from are given: nothing new is there to be tuned.
    """
    reads = [("NBEST", path) for path in options.nbest] + [("--reference", path) for path in options.references]
    starts = None if options.weights == FROM_NOTHING else options.weights
    check_apart([*reads, ("--weights", starts)], [("-o", options.out)])
    summary = TuneSummary()
    doubts = Doubts(options.force, summary.warnings.append)
    references = {path: reference_of(path, read_lines(path), doubts) for path in options.references}
    reader = _read(options, references, doubts, on_read)
    lists, labels = reader.lists(), [label for label, n in reader.shape.items() for _ in range(n)]
    names = [printable(label) + f" {k}" * (n > 1) for label, n in reader.shape.items() for k in range(1, n + 1)]
    places, scale = lists.places(), scaled(lists, RARE)[1]
    first = display_name(options.nbest[0])
    if not scale.any():
        raise InputError(first, "all entries of a segment have the same features", "pass lists of more hypotheses")
    by_totals = best_by(lists.totals, places)
    if len(options.nbest) > 1 and (made := reader.weights()):  # their totals may be of several scales
        by_totals = chosen(lists.features, made[-1], places)
    of_totals = lists.counts[by_totals].sum(0)
    summary.bleu_of_totals = float(bleu(of_totals))
    _check_reference(options, references, reader.texts(), of_totals, doubts)
    start, counting = _start(reader, options.weights, labels)
    differing = dict.fromkeys(labels[i] for i in np.flatnonzero(scaled(lists)[1]).tolist())
    new = [label for label in differing if label not in counting] if counting else []
    if counting and not new and options.weights is None:
        hint = "add features with rescore first, or tune these from nothing with --weights none"
        raise InputError(first, "the totals count every feature that differs", hint)
    is_new = np.array([label in new for label in labels])
    summary.why_no_gain = _why_no_gain(lists, is_new)
    climbs = 1 + options.restarts + (0 if summary.why_no_gain else 2 * (1 + options.restarts // 2))  # each on all entries
    on_share(0.0)
    shares = Shares(climbs * len(lists.segment), on_share)
    values, best = as_written(tuned(lists, start, options.restarts, options.seed, shares.add), lists.features, places)
    summary.entries, summary.segments = len(lists.segment), len(places)
    summary.bleu = float(bleu(lists.counts[best].sum(0)))
    summary.constant = tuple(names[i] for i in np.flatnonzero(scale == 0).tolist())
    summary.new = tuple(map(printable, new))
    if missing := reader.segments - summary.segments:
        summary.warnings.append(f"no entry for {counted(missing, 'line')} of the reference; BLEU is of the others")
    if not summary.why_no_gain:
        tune_half = partial(tuned, restarts=options.restarts // 2, seed=options.seed, on_climb=shares.add)
        summary.gain, summary.p = gain_over(lists, np.flatnonzero(~is_new), start, tune_half)
    _write(options, labels, values, summary.bleu)
    return summary


def _why_no_gain(lists: Lists, new: NDArray[np.bool_]) -> str:
    """Return why no gain by the features that are ``new``, (features,), can be told; empty if one can."""
    if not new.any():
        return "nothing says which features are new; give the weights from before them with --weights INI"
    if not (decides(lists.half(0)) and decides(lists.half(1))):
        return "half of the segments has nothing to be tuned on; pass lists of more segments"
    return ""


def _check_reference(
    options: TuneOptions, references: Mapping[str, Segments], texts: Sequence[str], counts: Floats, doubts: Doubts
) -> None:
    """Doubt references that are not those of the ``texts``, the best of each segment, with the sum of their ``counts``, (10,).

    Marks in either are warned of; such text is not judged.
    """
    given = {options.nbest[0]: texts, **references}
    marked = [f"{display_name(path)}: {mark}" for path, text in given.items() for mark in marks(text)]
    for warning in marked:
        doubts.warn(warning)
    if marked:
        return
    check_texts({options.nbest[0]: texts}, references, doubts)
    pairs = [(texts, reference) for reference in references.values()]
    check_bleu(options.references[0], [float(bleu(counts))], float(counts[1]), doubts, pairs)


def _read(options: TuneOptions, references: Mapping[str, Segments], doubts: Doubts, on_read: Progress | None) -> Reader:
    """Read the lists. Raises InputError."""
    check_lines(references)
    first = options.references[0]
    check_segments(options.nbest, first, references[first], doubts)
    reader = Reader(list(references.values()), options.tokenize)
    for path in options.nbest:
        reader.read(path, on_read)
    return reader


def as_written(weights: Floats, features: Floats, places: Rows) -> tuple[list[bytes], Rows]:
    """Write weights with as many digits, six or more, as choose what all digits choose. Return also what these choose: (S,)."""
    wanted = chosen(features, weights, places)
    for digits in (6, 9, 12, 17):
        values = [as_value(weight + 0.0, digits) for weight in weights.tolist()]  # 0.0: no weight is -0
        best = chosen(features, np.array(values, float), places)
        if (best == wanted).all():
            break
    return values, best


def _write(options: TuneOptions, labels: Sequence[bytes], values: Sequence[bytes], bleu: float) -> None:
    """Write the weights as a section of an ini, a line for each label, and in a comment where they are from."""
    command = ["phrase-rescore", "tune", *options.nbest, "--reference", ",".join(options.references)]
    with atomic_output(options.out) as stream:
        stream.write(f"# {printable(shlex.join(command), 1000)}: BLEU {bleu:.2f}\n[weight]\n".encode())
        for label, group in groupby(zip(labels, values, strict=True), key=itemgetter(0)):
            stream.write(b" ".join([label + b"=", *(value for _, value in group)]) + b"\n")
