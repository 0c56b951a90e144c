"""The tables of ``report``: the best targets by either, where the two disagree, words that the model does not know."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from phrase_rescore.data.coverage import MOST_UNKNOWN
from phrase_rescore.data.vocabulary import FIRST_WORD
from phrase_rescore.inference.translator import Proposal
from phrase_rescore.report.findings import disagreements, diverse, top
from phrase_rescore.report.page import Section, paragraph, table, text
from phrase_rescore.report.statistics import ENOUGH, LONG, RARE, Disagreement, SideCoverage, Source, TableStatistics
from phrase_rescore.report.summary import Findings, nats, percent, share

SHOWN_SOURCES = 8  # long frequent ones, and as many rare ones
SHOWN_ROWS = 12  # of each kind of disagreement
DRAWN, SHOWN_SAMPLES, SHOWN_TARGETS = 50, 5, 3  # of every source; the paper's tables 2 and 3
_COMMONEST = 12  # unknown words shown of a side


def choose(found: TableStatistics) -> tuple[list[Source], list[Source]]:
    """Long frequent and long rare sources to show."""
    kinds = (found.frequent, found.rare)
    frequent, rare = (diverse(items.ranked(), lambda source: source.src, SHOWN_SOURCES) for items in kinds)
    return frequent, rare


def targets(found: Findings) -> Section:
    """(b) the paper's tables 2 and 3."""
    title = "What each likes best"
    if not found.statistics.grouped:
        return Section("targets", title, [paragraph("Not shown of an inverse model.", kind="note")])
    parts = [
        paragraph(
            f"Sources of {LONG} words and more that have three targets or more: the {SHOWN_TARGETS} best of their rows "
            f"by φ and by the model, and the {SHOWN_SAMPLES} most likely of {DRAWN} phrases drawn from the model, which "
            "knows nothing of the rows. Drawn phrases that the table does not have are <span class=new>+ red</span>.",
        )
    ]
    head = ["source", "table: φ (joint count)", "model, of the same rows: log p", f"model, {DRAWN} drawn: log p (times)"]
    for name, sources in zip(("Frequent ones", f"Rare ones, seen {RARE} times at most"), found.chosen, strict=True):
        rows = [_of_source(source, found.proposals.get(source.src, [])) for source in sources]
        none = paragraph("There are none in this table.", kind="note")
        parts += [f"<h3>{name}</h3>", table(head, rows, kind="pairs") if rows else none]
    in_table, drawn = _drawn_in_table(found)
    if drawn:
        said = (
            f"Of the {drawn:,} phrases drawn for these sources {percent(in_table / drawn)} are among the rows of their source."
        )
        parts.append(paragraph(said, kind="note"))
    return Section("targets", title, parts)


def _drawn_in_table(found: Findings) -> tuple[int, int]:
    rows = {source.src: set(source.tgt) for listed in found.chosen for source in listed}
    drawn = [proposal.target in rows[src] for src, proposals in found.proposals.items() for proposal in proposals]
    return sum(drawn), len(drawn)


def _of_source(source: Source, drawn: Sequence[Proposal]) -> list[str]:
    joint = [f" ({n:,.6g})" if math.isfinite(n) else "" for n in source.joint.tolist()]
    by_phi = [
        (source.tgt[i], f"{math.exp(source.log_phi[i]):.3g}{joint[i]}", True) for i in top(source.log_phi, SHOWN_TARGETS)
    ]  # fmt: skip
    by_model = [(source.tgt[i], nats(float(source.log_p[i])), True) for i in top(source.log_p, SHOWN_TARGETS)]
    times = Counter(proposal.target for proposal in drawn)
    likely = sorted({proposal.target: proposal.log_p for proposal in drawn}.items(), key=lambda item: (-item[1], item[0]))
    sampled = [(tgt, f"{nats(log_p)} ({times[tgt]})", tgt in source.tgt) for tgt, log_p in likely[:SHOWN_SAMPLES]]
    seen = f"seen {source.count:,.6g} times, {len(source.tgt):,} targets"
    return [f"{text(source.src)}<br><span class=count>{seen}</span>", *map(_list, (by_phi, by_model, sampled))]


def _list(targets: Sequence[tuple[bytes, str, bool]]) -> str:
    """Of targets, a figure of each, and whether the table has it."""
    items = (
        f"<li><b>{text(tgt)}</b><span>{figure}</span></li>"
        if known
        else f"<li class=new><b>+ {text(tgt)}</b><span>{figure}</span></li>"
        for tgt, figure, known in targets
    )
    return f'<ol class="targets">{"".join(items)}</ol>'


def differences(found: Findings) -> Section:
    """(d) where the two would decide otherwise."""
    s, title = found.statistics, "Where they disagree most"
    if not s.grouped:
        return Section("disagreements", title, [paragraph("Not shown of an inverse model.", kind="note")])
    parts = [
        paragraph(
            "A plain difference of the two logarithms would list long phrases and nothing else. So both scores are made "
            f"to sum to 1 over the targets of a source, of sources seen {ENOUGH} times or more, and rows are ranked by "
            "what they add to the divergence of the two: the share that one gives, times the log of the quotient of "
            "both. These are decisions that the feature would change. Read them: are the model’s choices better "
            "translations, or worse ones?",
        )
    ]
    for name, items, other in (
        ("The model gives more", s.model_more, "the table’s best"),
        ("The table gives more", s.table_more, "the model’s best"),
    ):
        rows = [_difference(item) for item in disagreements(items.ranked(), SHOWN_ROWS)]
        head = ["source", "target", "joint count", "by φ", "by the model", "log p", other, "by φ", "by the model"]
        none = paragraph("No source has been seen often enough to tell.", kind="note")
        parts += [f"<h3>{name}</h3>", table(head, rows, (2, 3, 4, 5, 7, 8), kind="rows") if rows else none]
    return Section("disagreements", title, parts)


def _difference(item: Disagreement) -> list[str]:
    row, (other, phi, p) = item.row, item.others
    joint = f"{row.joint:,.6g} of {row.src_count:,.6g}" if math.isfinite(row.joint) else "–"
    shares = percent(item.share_phi), percent(item.share_p)
    return [text(row.src), text(row.tgt), joint, *shares, nats(row.log_p), text(other), percent(phi), percent(p)]


def coverage(found: Findings) -> Section:
    """(e) words that the model does not know."""
    trained, sides = found.model.checkpoint.unk_shares, found.statistics.coverage
    rows, commonest = [], []
    for name, side, of_training in zip(("source", "target"), sides, trained, strict=True):
        known = f"{int(side.seen[FIRST_WORD:].sum()):,} of {len(side.vocabulary.words):,}"
        shares = percent(share(side.unknown, side.words)), percent(of_training)
        of_rows = f"{side.rows:,}", percent(share(side.rows, found.statistics.rows))
        rows.append([name, f"{side.words:,}", f"{side.unknown:,}", *shares, *of_rows, known])
        commonest.append(_commonest(name, side))
    fits = all(
        not side.words or side.unknown / side.words <= max(MOST_UNKNOWN, 2 * b) for side, b in zip(sides, trained, strict=True)
    )
    judged = (
        "The shares are not much above those of training: model and table go together."
        if fits
        else "<b>There are many more than in training: is the table tokenized, escaped or lower-cased otherwise?</b>"
    )
    said = (
        "Every unknown word is the same to the model and has the probability of all of them together: such scores are too high."
    )
    head = ["side", "words", "unknown", "share", "in training", "rows with one", "share of rows", "of its shortlist seen here"]
    return Section("coverage", "Unknown words", [paragraph(said, judged), table(head, rows, range(1, 8)), *commonest])


def _commonest(name: str, side: SideCoverage) -> str:
    ranked = sorted(side.unknown_words.items(), key=lambda item: (-item[1], item[0]))
    if not ranked:
        return paragraph(f"No {name} word is unknown.")
    listed = ", ".join(f"{text(word)} ({n:,})" for word, n in ranked[:_COMMONEST])
    return paragraph(f"{len(ranked):,} distinct {name} words are unknown; the commonest: {listed}.")
