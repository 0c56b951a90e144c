"""Do a model and a table go together? Told by words of the table that the model does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from phrase_rescore.data.vocabulary import UNK, Vocabulary
from phrase_rescore.errors import shown

MOST_UNKNOWN = 0.05  # a side with a larger share of unknown words, and more than twice that of training, is suspicious
EXPLAINS = 0.5  # a cause is named if it accounts for at least this share of the unknown words

# scripts/tokenizer/escape-special-chars.perl; & first, and undone last
_ESCAPES = ((b"&", b"&amp;"), (b"|", b"&#124;"), (b"<", b"&lt;"), (b">", b"&gt;"), (b"'", b"&apos;"), (b'"', b"&quot;"),
            (b"[", b"&#91;"), (b"]", b"&#93;"))  # fmt: skip


def escape(word: bytes) -> bytes:
    """As Moses escapes: ``l'`` becomes ``l&apos;``."""
    for char, entity in _ESCAPES:
        word = word.replace(char, entity)
    return word


def unescape(word: bytes) -> bytes:
    """The inverse of ``escape``."""
    for char, entity in reversed(_ESCAPES):
        word = word.replace(entity, char)
    return word


def _folded(word: bytes) -> bytes:
    return word.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def _likely_cause(unknown: Counter[bytes], vocab: Vocabulary, seen: Counter[bytes], other: Vocabulary) -> str:
    """What would make most of the unknown words known, tested on the words themselves; empty if nothing does."""
    total = unknown.total()

    def share(known: Callable[[bytes], bool]) -> float:
        return sum(n for word, n in unknown.items() if known(word)) / total

    folded = {_folded(word) for word in vocab.words}
    causes = [
        (share(lambda word: _folded(word) in folded), "they differ from known words in letter case only"),
        (
            share(lambda word: unescape(word) in vocab.ids),
            "the table escapes special characters (&apos;) and the model's text did not",
        ),
        (
            share(lambda word: escape(word) in vocab.ids),
            "the model's text escaped special characters (&apos;) and the table does not",
        ),
    ]
    best = max(causes, key=lambda cause: cause[0])
    if best[0] >= EXPLAINS:
        return f"{best[1]} ({best[0]:.0%} of them)"
    elsewhere = sum(n for word, n in seen.items() if word not in other.ids)
    if elsewhere < total / 2:
        return "the model's vocabulary of the other side fits better: is the table, or the model, the inverse one?"
    return ""


def fit_warnings(
    seen: tuple[bytes, bytes], vocabs: tuple[Vocabulary, Vocabulary], unk_shares: tuple[float, float]
) -> list[str]:
    """One line for each side whose unknown words exceed 5 % and twice their share in training. Source first.

    ``seen``: the words of each side, one blank behind each.
    """
    warnings = []
    for i, side in enumerate(("source", "target")):
        vocab, other = vocabs[i], vocabs[1 - i]
        ids, _ = vocab.word_table.look_up(seen[i])
        share = float((ids == UNK).mean()) if len(ids) else 0.0
        if share <= max(MOST_UNKNOWN, 2 * unk_shares[i]):
            continue
        counts = Counter(seen[i][:-1].split(b" "))
        unknown: Counter[bytes] = Counter({word: n for word, n in counts.items() if word not in vocab.ids})
        ranked = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:10]
        commonest = ", ".join(f"{shown(word)} {n}" for word, n in ranked)
        cause = _likely_cause(unknown, vocab, counts, other)
        warnings.append(
            f"{share:.1%} of the {side} words are unknown to the model, {unk_shares[i]:.1%} in its training; "
            f"commonest: {commonest}" + (f"; likely cause: {cause}" if cause else "")
        )
    return warnings


@dataclass(frozen=True)
class Coverage:
    """How many words of one side of a table a model knows."""

    tokens: int
    known_tokens: int
    types: int
    known_types: int


def coverage(counts: Counter[bytes], vocab: Vocabulary, factor: int | None = None) -> Coverage:
    """Of words and how often each stands; ``factor``: which part of a word between bars is read, None: all of it."""
    if factor is not None:
        whole, counts = counts, Counter()
        for word, n in whole.items():
            counts[b"".join(word.split(b"|")[factor : factor + 1])] += n
    known = [n for word, n in counts.items() if word in vocab.ids]
    return Coverage(counts.total(), sum(known), len(counts), len(known))
