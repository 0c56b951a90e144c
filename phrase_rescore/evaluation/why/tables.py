"""What was found as tables of text, which the terminal and the page lay out each in its way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from phrase_rescore.errors import counted
from phrase_rescore.evaluation.why.regions import Region
from phrase_rescore.evaluation.why.run import Comparison, Segment
from phrase_rescore.evaluation.why.totals import (
    CHANGES,
    LENGTH_BINS,
    PAIR_BINS,
    SOURCE_BINS,
    VERDICTS,
    Change,
    Tally,
    Usage,
    filled,
    share,
)
from phrase_rescore.moses.segmentation import Derivation, UsedPhrase
from phrase_rescore.moses.text import readable


@dataclass(frozen=True)
class Table:
    """A head over columns, which may be in groups, and rows whose first cell is a label."""

    title: str
    label: str
    groups: list[tuple[str, list[str]]]  # name ("" for none), names of its columns
    rows: list[list[str]]
    note: str = ""


def count(x: float) -> str:
    return f"{x:,.0f}"


def percent(x: float) -> str:
    """Write a share, or a dash if there is none.

    >>> percent(0.5), percent(math.nan)
    ('50.0%', '-')
    """
    return f"{x:.1%}" if math.isfinite(x) else "-"


def signed(x: float, form: str = ".2f") -> str:
    """Write a difference with its sign; what rounds to zero has none.

    >>> signed(0.5), signed(-0.001), signed(3, ",.0f")
    ('+0.50', '0.00', '+3')
    """
    text = f"{x:+{form}}"
    return text if any(digit in text for digit in "123456789") else f"{0:{form}}"


def systems(found: Comparison) -> Table:
    """BLEU and what it is made of."""
    columns = ["BLEU", "1-grams", "2-grams", "3-grams", "4-grams", "length", "brevity", "phrases", "words of each"]
    rows = [
        [
            name, f"{bleu.score:.2f}", *(f"{precision:.1f}" for precision in bleu.precisions),
            f"{share(bleu.sys_len, bleu.ref_len):.3f}", f"{bleu.bp:.3f}", count(usage.all.phrases),
            f"{share(sum(len(segment.source) for segment in found.segments), usage.all.phrases):.2f}",
        ]
        for name, bleu, usage in zip(found.names, found.bleu, found.usage, strict=True)
    ]  # fmt: skip
    note = (
        "BLEU of the tokens as they are. 1-grams to 4-grams: % of the output's that the reference has. length: words of the "
        "output for each of the reference; brevity: what a shorter output costs, a factor of BLEU. words of each: source words "
        "of a phrase."
    )
    return Table("", "system", [("", columns)], rows, note)


def changes(found: Comparison) -> Table:
    """How the second system's choices differ, and what each kind of change earns in right words."""
    rows = list[list[str]]()
    groups = [("", ["regions"]), *((name, ["words", "right"]) for name in found.names), ("", ["won"])]
    for names in (*CHANGES.values(), ("all",)):
        of_kind = [_change(name, found.changes[name]) for name in names if name in found.changes]
        rows += [*([[""] * 7] if rows and of_kind else []), *of_kind]
    note = (
        "A region is the smallest stretch of the source at whose ends both systems cut it into phrases. words: of its target; "
        f"right: of these words in the reference, none more often than there; won: right words that {found.names[1]} has more."
    )
    if found.recut:
        note += f" In {counted(found.recut, 'more region')} the same words come from other phrases: they are left out here."
    return Table(f"Differing regions: what {found.names[1]} chooses", "", groups, rows, note)


def _change(name: str, change: Change) -> list[str]:
    words, right = change.words, change.right
    shares = [count(words[0]), percent(share(right[0], words[0])), count(words[1]), percent(share(right[1], words[1]))]
    return [name, count(change.regions), *shares, signed(right[1] - right[0], ",.0f")]


BINS: list[tuple[str, str, Callable[[Usage], dict[str, Tally]], tuple[str, ...]]] = [
    ("By the length of the source phrase", "source words", lambda usage: usage.by_length, LENGTH_BINS),
    ("By how often the source was seen in training", "source seen", lambda usage: usage.by_source, SOURCE_BINS),
    ("By how often the phrase pair was seen", "pair seen", lambda usage: usage.by_pair, PAIR_BINS),
]


def phrases(found: Comparison) -> Iterator[Table]:
    """The phrases used, in bins."""
    one, other = found.usage
    groups = [(name, ["used", "differing", "words", "right", "whole"]) for name in found.names]
    note = (
        "used: phrases of the output; differing: of these in differing regions; words: target words of the differing ones; "
        "right: of these words in the reference; whole: differing phrases of right words that stand in the reference as they "
        "do here. The systems' phrases in a row are not those of the same places: who uses fewer long ones may keep surer ones."
    )
    for title, label, bins, order in BINS:
        tallies = [*filled(bins(one), bins(other), order), ("all", one.all, other.all)]
        rows = [[name, *_tally(first), *_tally(second)] for name, first, second in tallies]
        yield Table(title, label, groups, rows, note)
        note = ""


def _tally(tally: Tally) -> list[str]:
    right, whole = share(tally.right, tally.words), share(tally.whole, tally.differing)
    return [count(tally.phrases), count(tally.differing), count(tally.words), percent(right), percent(whole)]


def features(found: Comparison) -> Table:
    """What the phrases used are worth by every column, and words that somebody does not know."""
    rows = []
    for column in found.lookup.columns.all.columns:
        if column.feature != "unknown_words":
            means = [share(column.of(usage.logs), usage.in_table) if usage.logs else math.nan for usage in found.usage]
            difference = signed(means[1] - means[0], ".3f") if all(map(math.isfinite, means)) else "-"
            rows.append([f"log {column.name}", *(f"{mean:.3f}" if math.isfinite(mean) else "-" for mean in means), difference])
    if found.lookup.columns.unknown is not None:
        shares = [share(usage.unknown, usage.in_table) for usage in found.usage]
        rows.append(["unknown to the network", *map(percent, shares), ""])
    copied = [percent(share(usage.copied, usage.target_words)) for usage in found.usage]
    rows.append(["copied, unknown to the table", *copied, ""])
    note = "Sums over the phrases used, divided by their target words; natural logarithms."
    return Table("Columns of the table, for each target word", "column", [("", [*found.names, "difference"])], rows, note)


def best(found: Comparison) -> Table:
    """Where φ and the score like different targets best: whose is in the reference, and what the systems chose."""
    rows = []
    for verdict in VERDICTS:
        chosen = found.best.chosen[verdict]
        cells = [count(counter[what]) for counter in chosen for what in ("phi", "score", "other")]
        rows.append([verdict, count(found.best.verdicts[verdict]), *cells])
    totals = [sum(c[what] for v in VERDICTS for c in [found.best.chosen[v][system]])
              for system in (0, 1) for what in ("phi", "score", "other")]  # fmt: skip
    rows.append(["all", count(found.best.disagree), *map(count, totals)])
    groups = [("", ["sources"]), *((f"{name} chose", ["φ's", "the score's", "another"]) for name in found.names)]
    return Table("", "in the reference", groups, rows)


def best_sentences(found: Comparison) -> Iterator[str]:
    """Say how often φ and the score agree on the best target."""
    b, columns = found.best, found.lookup.columns
    phi, score = columns.phi.name, columns.score.name if columns.score else ""
    n = b.alone + b.agree + b.disagree + b.tied
    yield (
        f"Of {n:,} source phrases used in differing regions {b.alone:,} have one target in the table. φ is column {phi}, the "
        f"score column {score}."
    )
    if b.tied:
        yield (
            f"In {b.tied:,} several targets share the best φ: the score's best is in the reference {b.tied_right:,} "
            f"times; one of φ's best at random would be {b.tied_chance:,.1f} times."
        )
    yield (
        f"In the other {b.agree + b.disagree:,} they agree on the best target {b.agree:,} times "
        f"({percent(share(b.agree, b.agree + b.disagree))}) and disagree {b.disagree:,} times:"
    )


def best_note(found: Comparison) -> str:
    """Say how the verdicts are to be read."""
    b = found.best
    means = " and ".join(f"{share(words, b.disagree):.2f}" for words in b.words)
    return (
        "In the reference: the whole phrase stands in it, of words that the phrases outside of the regions have left over. A "
        "system that cut the source elsewhere chose nothing. "
        f"φ's best and the score's have {means} words on average: shorter phrases are found more easily."
    )


def headline(found: Comparison) -> list[str]:
    """Say how much is won and lost, and in how many segments."""
    differing, n = found.differing, len(found.segments)
    gains = [segment.bleu[1] - segment.bleu[0] for segment in differing]
    won, lost = [gain for gain in gains if gain > 0], [gain for gain in gains if gain < 0]
    name, many = found.names[1], counted(len(won), "segment")
    lines = [
        f"{len(differing):,} of {n:,} outputs differ ({percent(share(len(differing), n))})"
        + (f", {found.order_only:,} of them only in the order of the same phrases" if found.order_only else "") + ".",
        f"BLEU {found.bleu[0].score:.2f} → {found.bleu[1].score:.2f}: {signed(found.bleu[1].score - found.bleu[0].score)}.",
        f"Sentence BLEU: {name} wins {sum(won):,.0f} points in {many} and loses {-sum(lost):,.0f} points in "
        f"{counted(len(lost), 'segment')}.",
    ]  # fmt: skip
    if min(bleu.bp for bleu in found.bleu) < 1:
        one, other = (share(bleu.score, bleu.bp) for bleu in found.bleu)
        lines.insert(2, f"Without its penalty for short outputs BLEU would be {one:.2f} → {other:.2f}: {signed(other - one)}.")
    for system, usage in zip(found.names, found.usage, strict=True):
        if times := usage.missing.total():
            lines.append(f"{system}: {times:,} of {usage.all.phrases:,} phrases are not in the table.")
    return lines


def region_head(found: Comparison) -> list[str]:
    """Name the columns of ``region_rows``."""
    return ["", "phrase pair", "right", *(column.name for column in found.lookup.columns.all.columns), "pair", "source"]


def region_title(segment: Segment, region: Region) -> str:
    """Name a region by its source words, as Moses counts them."""
    return f"|{region.first}-{region.last}| {readable(b' '.join(segment.source[region.first : region.last + 1]))}"


def region_rows(found: Comparison, segment: Segment, region: Region) -> Iterator[list[str]]:
    """Yield the phrases of both choices for a region, with their columns, and the sums of each choice."""
    for system, name in enumerate(found.names):
        used = region.phrases[system]
        for i, phrase in enumerate(used):
            yield [name if i == 0 else "", *_phrase(found, segment, system, phrase)]
        if len(used) > 1:
            yield ["", "together", "", *_together(found, segment, used), "", ""]


REGION_NOTE = (
    "|first-last|: source words of a differing region, from 0, as moses -t writes it. Scores are natural logarithms; unknown: "
    "target words unknown to the network; pair, source: how often they were seen in training; right: words of the phrase in "
    "the reference."
)


def _source(segment: Segment, phrase: UsedPhrase) -> bytes:
    return b" ".join(segment.source[phrase.first : phrase.last + 1])


def _phrase(found: Comparison, segment: Segment, system: int, phrase: UsedPhrase) -> list[str]:
    src = _source(segment, phrase)
    text = f"{readable(src)} → {readable(phrase.tgt)}"
    right = f"{segment.right[system][phrase]}/{len(phrase.tgt.split())}"
    pair = found.lookup.pairs.get((src, phrase.tgt))
    if pair is None:
        what = "not in the table" if src in found.lookup.sources or b" " in src else "copied"
        return [text, right, *[""] * len(found.lookup.columns.all), what, ""]
    seen = [count(x) if math.isfinite(x) else "-" for x in (pair.joint, pair.source)]
    return [text, right, *_values(found, pair.logs), *seen]


def _values(found: Comparison, logs: tuple[float, ...] | list[float]) -> list[str]:
    return [f"{x:.0f}" if column.feature == "unknown_words" else signed(x).lstrip("+")
            for x, column in zip(logs, found.lookup.columns.all.columns, strict=True)]  # fmt: skip


def _together(found: Comparison, segment: Segment, used: Derivation) -> list[str]:
    pairs = [found.lookup.pairs.get((_source(segment, phrase), phrase.tgt)) for phrase in used]
    logs = [pair.logs for pair in pairs if pair]
    return _values(found, [sum(column) for column in zip(*logs, strict=True)]) if logs else [""] * len(found.lookup.columns.all)


def most(found: Comparison) -> tuple[list[Segment], list[Segment]]:
    """Return the segments that gained most and those that lost most, in this order, by their effect on BLEU."""
    ranked = sorted(found.differing, key=lambda segment: (-segment.effect, segment.number))
    gained = [segment for segment in ranked if segment.effect > 0][: found.options.segments]
    lost = [segment for segment in reversed(ranked) if segment.effect < 0][: found.options.segments]
    return gained, lost
