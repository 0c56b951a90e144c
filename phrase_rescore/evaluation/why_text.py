"""A comparison of two systems laid out for the terminal."""

import math
import textwrap
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from phrase_rescore.evaluation.tables import signed
from phrase_rescore.evaluation.why import CHANGES, Choice, ComparedSegment, Comparison, Region
from phrase_rescore.messages import counted, percent, printable, share
from phrase_rescore.moses.text import readable

_WIDTH = 110

_BLEU_NOTE = (
    "BLEU of the tokens as they are. 1-grams to 4-grams: % of the output's that the reference has. length: words of the "
    "output for each of the reference; brevity: what a shorter output costs, a factor of BLEU. words of each: source words "
    "of a phrase."
)
_CHANGES_NOTE = (
    "A region is the smallest stretch of the source at whose ends both systems cut it into phrases. words: of its target; "
    "right: of these words in the reference, none more often than there; won: right words that {} has more."
)
_COLUMNS_NOTE = "Sums over the phrases used, divided by their target words; natural logarithms."
_REGIONS_NOTE = (
    "|first-last|: source words of a differing region, from 0, as moses -t writes it. Scores are natural logarithms; unknown: "
    "target words unknown to the network; pair, source: how often they were seen in training; right: words of the phrase in "
    "the reference."
)


def _count(x: float) -> str:
    return f"{x:,.0f}" if math.isfinite(x) else "-"


def _percent(part: float, whole: float) -> str:
    return percent(share(part, whole), nothing="-")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_on_hyphens=False)


def _layout(rows: Sequence[Sequence[str]], left: int = 1, indent: str = "") -> list[str]:
    """Lay out a table, heads and all: its first ``left`` columns to the left, all others to the right."""
    align = ["left"] * left + ["right"] * (len(rows[0]) - left)
    text = tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=align)
    return [f"{indent}{line}".rstrip() for line in text.splitlines()]


def _headline(found: Comparison) -> Iterator[str]:
    differing, n = found.differing, len(found.segments)
    (one, other), name = found.bleu, found.names[1]
    gains = [segment.bleu[1] - segment.bleu[0] for segment in differing]
    won, lost = [gain for gain in gains if gain > 0], [gain for gain in gains if gain < 0]
    order_only = sum(not segment.regions for segment in differing)
    order = f", {order_only:,} of them only in the order of the same phrases" if order_only else ""
    yield f"{len(differing):,} of {n:,} outputs differ ({_percent(len(differing), n)}){order}."
    yield f"BLEU {one.score:.2f} → {other.score:.2f}: {signed(other.score - one.score)}."
    if min(one.bp, other.bp) < 1:
        first, second = (share(bleu.score, bleu.bp) for bleu in found.bleu)
        yield f"Without its penalty for short outputs BLEU would be {first:.2f} → {second:.2f}: {signed(second - first)}."
    wins = f"wins {sum(won):,.0f} points in {counted(len(won), 'segment')}"
    yield f"Sentence BLEU: {name} {wins} and loses {-sum(lost):,.0f} points in {counted(len(lost), 'segment')}."
    for system, usage in zip(found.names, found.usage, strict=True):
        if times := usage.missing.total():
            yield f"{system}: {times:,} of {usage.phrases:,} phrases are not in the table."


def _systems(found: Comparison) -> list[str]:
    rows = [["system", "BLEU", *(f"{n}-grams" for n in range(1, 5)), "length", "brevity", "phrases", "words of each"]]
    source_words = sum(len(segment.source) for segment in found.segments)
    for name, bleu, usage in zip(found.names, found.bleu, found.usage, strict=True):
        precisions = [f"{precision:.1f}" for precision in bleu.precisions]
        lengths = [f"{share(bleu.sys_len, bleu.ref_len):.3f}", f"{bleu.bp:.3f}"]
        phrases = [_count(usage.phrases), f"{share(source_words, usage.phrases):.2f}"]
        rows.append([name, f"{bleu.score:.2f}", *precisions, *lengths, *phrases])
    return [*_layout(rows), "", *_wrapped(_BLEU_NOTE)]


def _changes(found: Comparison) -> list[str]:
    rows = list[list[str]]()
    for names in (*CHANGES.values(), ("all",)):
        of_kind = [name for name in names if name in found.changes]
        rows += [[""] * 7] if rows and of_kind else []
        for name in of_kind:
            regions, words, right, others, others_right = found.changes[name]
            shares = [_count(words), _percent(right, words), _count(others), _percent(others_right, others)]
            rows.append([name, _count(regions), *shares, signed(others_right - right, ",.0f")])
    if not rows:
        return []
    note = _CHANGES_NOTE.format(found.names[1])
    if recut := sum(segment.recut for segment in found.segments):
        note += f" In {counted(recut, 'more region')} the same words come from other phrases: they are left out here."
    one, other = found.names
    heads = [["", "", one, "", other, "", ""], ["", "regions", *(["words", "right"] * 2), "won"]]
    return ["", "", f"Differing regions: what {other} chooses", "", *_layout([*heads, *rows]), "", *_wrapped(note)]


def _columns(found: Comparison) -> list[str]:
    rows, usages = [["column", *found.names, "difference"]], found.usage
    for column in found.table.columns.columns:
        if column.feature != "unknown_words":
            one, other = (share(column.of(usage.logs), usage.in_table) for usage in usages)
            figures = (one, f"{one:.3f}"), (other, f"{other:.3f}"), (other - one, signed(other - one, ".3f"))
            rows.append([f"log {column.name}", *(text if math.isfinite(x) else "-" for x, text in figures)])
    if (unknown := found.table.unknown) is not None:
        rows.append(["unknown to the network", *(_percent(unknown.of(usage.logs), usage.in_table) for usage in usages), ""])
    rows.append(["copied, unknown to the table", *(_percent(usage.copied, usage.target_words) for usage in usages), ""])
    return ["", "", "Columns of the table, for each target word", "", *_layout(rows), "", *_wrapped(_COLUMNS_NOTE)]


def most(found: Comparison) -> tuple[list[ComparedSegment], list[ComparedSegment]]:
    """Return the segments that gained most and those that lost most, in this order, by their effect on BLEU."""
    ranked = sorted(found.differing, key=lambda segment: (-segment.effect, segment.number))
    gained = [segment for segment in ranked if segment.effect > 0][: found.shown]
    lost = [segment for segment in reversed(ranked) if segment.effect < 0][: found.shown]
    return gained, lost


def _segment(found: Comparison, segment: ComparedSegment) -> Iterator[str]:
    one, other = segment.bleu
    alone = signed(segment.effect, ".3f")
    yield f"segment {segment.number}: sentence BLEU {one:.1f} → {other:.1f}; alone it changes BLEU by {alone}"
    texts = [("source", b" ".join(segment.source)), ("reference", segment.reference)]
    texts += [(name, segment.text(system)) for system, name in enumerate(found.names)]
    width = max(11, max(map(len, found.names)) + 2)
    for name, text in texts:
        first, rest = f"  {name:{width}}", " " * (width + 2)
        wrapped = textwrap.wrap(readable(text), _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
        yield from wrapped or [f"  {name}"]
    if not segment.regions:
        yield "  the same phrases in another order"
        return
    parts = [list(_region(found, segment, region)) for region in segment.regions]
    heads = ["", "phrase pair", "right", *(column.name for column in found.table.columns.columns), "pair", "source"]
    head, *rows = _layout([heads, *(row for part in parts for row in part)], 2, "    ")
    yield head
    for region, part in zip(segment.regions, parts, strict=True):
        yield f"  |{region.first}-{region.last}| {readable(b' '.join(segment.source[region.first : region.last + 1]))}"
        yield from rows[: len(part)]
        del rows[: len(part)]


def _region(found: Comparison, segment: ComparedSegment, region: Region) -> Iterator[list[str]]:
    columns = found.table.columns.columns

    def values(logs: Sequence[float]) -> list[str]:
        is_count = [column.feature == "unknown_words" for column in columns]
        return [f"{x:.0f}" if count else signed(x).lstrip("+") for x, count in zip(logs, is_count, strict=True)]

    def row(choice: Choice) -> list[str]:
        src, pair = choice.src, choice.pair
        cells = [f"{readable(src)} → {readable(choice.tgt)}", f"{choice.right}/{choice.words}"]
        if pair is None:
            what = "not in the table" if src in found.table.sources or b" " in src else "copied"
            return [*cells, *[""] * len(columns), what, ""]
        return [*cells, *values(pair.logs), _count(pair.joint), _count(pair.source)]

    for system, name in enumerate(found.names):
        choices = segment.chosen(region, system)
        for i, choice in enumerate(choices):
            yield [name if i == 0 else "", *row(choice)]
        if len(choices) > 1:
            logs = [choice.pair.logs for choice in choices if choice.pair]
            sums = values([sum(column) for column in zip(*logs, strict=True)]) if logs else [""] * len(columns)
            yield ["", "together", "", *sums, "", ""]


def lines(found: Comparison) -> Iterator[str]:
    """Report a comparison line by line."""
    (one, other), source = found.names, printable(found.source, 1000)
    yield f"{other} against {one}: {len(found.segments):,} segments of {source}"
    yield from ["", *_headline(found), "", *_systems(found)]
    yield from [*_changes(found), *_columns(found)]
    gained, lost = most(found)
    for name, listed in (("Most gained", gained), ("Most lost", lost)):
        if listed:
            yield from ["", "", f"{name}: {counted(len(listed), 'segment')}, by what each alone does to BLEU"]
            yield from ["", *_wrapped(_REGIONS_NOTE)] if name == "Most gained" or not gained else []
        for segment in listed:
            yield from ["", *_segment(found, segment)]
