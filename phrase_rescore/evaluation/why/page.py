"""A comparison as one page: the same tables as in the terminal, and pictures of them."""

from __future__ import annotations

import math
from dataclasses import asdict

from phrase_rescore._version import __version__
from phrase_rescore.evaluation.why import charts, tables
from phrase_rescore.evaluation.why.run import Comparison, Segment
from phrase_rescore.evaluation.why.totals import CHANGES, VERDICTS, filled, share
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.moses.text import readable
from phrase_rescore.pages import page as pages
from phrase_rescore.pages.theme import Records, Spec

_DRAWN = 2000  # segments at most, those with the greatest effects


def write_page(found: Comparison) -> int:
    """Write the page of a comparison that was asked for; return its size in bytes.

    Raises OptionError where it cannot be written.
    """
    text = page(found)
    with atomic_output(found.options.out or "-") as stream:
        stream.write(text)
    return len(text)


def page(found: Comparison) -> bytes:
    """Lay out the page."""
    names = found.names
    drawn = _charts(found)
    gained, lost = tables.most(found)
    facts = {
        "names": names, "options": asdict(found.options), "warnings": found.warnings, "headline": tables.headline(found),
        "tiles": _tiles(found), "systems": tables.systems(found), "changes": tables.changes(found),
        "phrases": list(tables.phrases(found)), "features": tables.features(found),
        "best": tables.best(found) if found.best.disagree else None, "best_sentences": list(tables.best_sentences(found)),
        "best_note": tables.best_note(found), "judged": found.lookup.columns.score is not None and bool(found.changes),
        "listed": [(title, [_segment(found, segment) for segment in listed])
                   for title, listed in (("Most gained", gained), ("Most lost", lost))],
        "region_head": tables.region_head(found), "region_note": tables.REGION_NOTE,
        "made": {"command": found.options.command, "version": __version__, "rows": found.lookup.rows},
    }  # fmt: skip
    return pages.page("evaluation.why", f"{names[1]} against {names[0]}", drawn, facts)


def _tiles(found: Comparison) -> list[tuple[str, str, str]]:
    """The figures at the head: name, figure, more."""
    one, other = (bleu.score for bleu in found.bleu)
    n, of, best = len(found.differing), len(found.segments), found.best
    gains = [segment.bleu[1] - segment.bleu[0] for segment in found.differing]
    won, lost = (sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains))
    tiles = [
        ("BLEU", tables.signed(other - one), f"{one:.2f} → {other:.2f}"),
        ("Outputs that differ", tables.percent(share(n, of)), f"{n:,} of {of:,}"),
        ("Gained", tables.percent(share(won, n)), f"of those that differ; {tables.percent(share(lost, n))} lost"),
    ]  # fmt: skip
    if best.disagree:
        only = [best.verdicts[verdict] for verdict in VERDICTS[:2]]
        more = "source phrases of which only the score’s best target is in the reference, and only φ’s"
        tiles.append(("Who knows the target", f"{only[1]:,} : {only[0]:,}", more))
    return tiles


def _segment(found: Comparison, segment: Segment) -> dict[str, object]:
    texts = [("source", b" ".join(segment.source)), ("reference", segment.reference)]
    texts += [(name, segment.text(system)) for system, name in enumerate(found.names)]
    return {
        "number": segment.number, "bleu": segment.bleu, "effect": tables.signed(segment.effect, ".3f"),
        "texts": [(name, readable(text)) for name, text in texts],
        "regions": [(tables.region_title(segment, region), list(tables.region_rows(found, segment, region)))
                    for region in segment.regions],
    }  # fmt: skip


def _charts(found: Comparison) -> dict[str, Spec]:
    drawn = {}
    if found.differing:
        drawn["outputs"] = charts.segments(_segment_records(found), found.names)
    if found.changes:
        order = [name for names in CHANGES.values() for name in names if name in found.changes]
        kinds = [(name, found.changes[name]) for name in order]
        records: Records = [
            {"change": name, "won": change.right[1] - change.right[0], "regions": change.regions} for name, change in kinds
        ]
        drawn["won-words"] = charts.changes(records, found.names)
        drawn["right-words"] = charts.phrases(_phrase_records(found), found.names)
    return drawn


def _segment_records(found: Comparison) -> Records:
    """Return the outputs whose sentence BLEU differs, those with the greatest effects first."""
    moved = [segment for segment in found.differing if segment.bleu[0] != segment.bleu[1]]
    return [
        {
            "number": segment.number, "one": round(segment.bleu[0], 2), "other": round(segment.bleu[1], 2),
            "effect": round(segment.effect, 4), "source": readable(b" ".join(segment.source)),
            "reference": readable(segment.reference), "text_one": readable(segment.text(0)),
            "text_other": readable(segment.text(1)), "won": "gained" if segment.bleu[1] > segment.bleu[0] else "lost",
        }
        for segment in sorted(moved, key=lambda segment: -abs(segment.effect))[:_DRAWN]
    ]  # fmt: skip


def _phrase_records(found: Comparison) -> Records:
    records: Records = []
    for _, label, bins, order in tables.BINS:
        for name, *tallies in filled(bins(found.usage[0]), bins(found.usage[1]), order):
            for system, tally in zip(found.names, tallies, strict=True):
                right = share(tally.right, tally.words)
                if math.isfinite(right):
                    records.append({
                        "table": label, "bin": name, "system": system, "right": right, "words": tally.words,
                        "phrases": tally.differing,
                    })  # fmt: skip
    return records
