"""A comparison laid out for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import chain

from phrase_rescore.errors import counted, printable
from phrase_rescore.evaluation.why import tables
from phrase_rescore.evaluation.why.run import Comparison, Segment
from phrase_rescore.evaluation.why.tables import Table, signed
from phrase_rescore.moses.text import readable

_WIDTH = 110
_LABEL = 11  # characters before a segment's text


def layout(table: Table, indent: str = "", left: int = 1) -> list[str]:
    """Lay out a table: its first ``left`` columns to the left, all others to the right, groups wider apart than columns."""
    heads = [table.label, *(name for _, names in table.groups for name in names)]
    widths = [max(map(len, cells)) for cells in zip(heads, *table.rows, strict=True)]
    firsts, place = list[int](), 1
    for name, names in table.groups:
        firsts.append(place)
        widths[place] += max(0, len(name) - sum(widths[place : place + len(names)]) - 2 * (len(names) - 1))
        place += len(names)

    def line(cells: list[str]) -> str:
        parts = [
            ("    " if i in firsts else "  " if i else "") + (cell.ljust(width) if i < left else cell.rjust(width))
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return (indent + "".join(parts)).rstrip()

    lines = [line(heads), *map(line, table.rows)]
    if any(name for name, _ in table.groups):
        above = " " * widths[0]
        for first, (name, names) in zip(firsts, table.groups, strict=True):
            above += "    " + name.center(sum(widths[first : first + len(names)]) + 2 * (len(names) - 1))
        lines.insert(0, (indent + above).rstrip())
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_on_hyphens=False)


def _with_note(table: Table) -> list[str]:
    return [*([table.title, ""] if table.title else []), *layout(table), *(["", *_wrapped(table.note)] if table.note else [])]


def _segment(found: Comparison, segment: Segment) -> Iterator[str]:
    one, other = segment.bleu
    alone = signed(segment.effect, ".3f")
    yield f"segment {segment.number}: sentence BLEU {one:.1f} → {other:.1f}; alone it changes BLEU by {alone}"
    texts = [("source", b" ".join(segment.source)), ("reference", segment.reference)]
    texts += [(name, segment.text(system)) for system, name in enumerate(found.names)]
    width = max(_LABEL, max(map(len, found.names)) + 2)
    for name, text in texts:
        rest = " " * (width + 2)
        yield from textwrap.wrap(
            readable(text), _WIDTH, initial_indent=f"  {name:{width}}", subsequent_indent=rest, break_on_hyphens=False
        ) or [f"  {name}"]
    if not segment.regions:
        yield "  the same phrases in another order"
    if segment.regions:
        parts = [list(tables.region_rows(found, segment, region)) for region in segment.regions]
        head, *names = tables.region_head(found)
        rows = layout(Table("", head, [("", names)], list(chain.from_iterable(parts))), "    ", left=2)
        yield rows.pop(0)
        for region, part in zip(segment.regions, parts, strict=True):
            yield f"  {tables.region_title(segment, region)}"
            yield from rows[: len(part)]
            del rows[: len(part)]


def report(found: Comparison) -> list[str]:
    """Report a comparison line by line."""
    options = found.options
    lines = [
        f"{found.names[1]} against {found.names[0]}: {len(found.segments):,} segments of {printable(options.source, 1000)}",
        "",
        *tables.headline(found),
        "",
        *_with_note(tables.systems(found)),
    ]
    parts = [tables.changes(found), *tables.phrases(found), tables.features(found)]
    for table in parts:
        if table.rows:
            lines += ["", "", *_with_note(table)]
    if found.lookup.columns.score is not None and found.changes:
        lines += ["", "", "The score and φ: who knows the right target", ""]
        for sentence in tables.best_sentences(found):
            lines += _wrapped(sentence)
        if found.best.disagree:
            lines += ["", *layout(tables.best(found)), "", *_wrapped(tables.best_note(found))]
    gained, lost = tables.most(found)
    for name, listed in (("Most gained", gained), ("Most lost", lost)):
        if listed:
            lines += ["", "", f"{name}: {counted(len(listed), 'segment')}, by what each alone does to BLEU"]
            lines += ["", *_wrapped(tables.REGION_NOTE)] if name == "Most gained" or not gained else []
            for segment in listed:
                lines += ["", *_segment(found, segment)]
    return lines
