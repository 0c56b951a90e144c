"""Shortlists: the words of a side that the network knows, their ids, and how well they fit a text."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import open_plain, read_rows
from phrase_rescore.messages import Say, shown
from phrase_rescore.moses.table import select_factor
from phrase_rescore.moses.text import escape, unescape

EOS = 0  # ends every phrase
UNK = 1  # stands for every word outside the shortlist
FIRST_WORD = 2
SIDES = ("source", "target")
SOURCE_VOCAB, TARGET_VOCAB = "source.vocab", "target.vocab"  # the files of their words
# Share of unknown words from which sides may be swapped; words that it takes to tell, of each side and of one alone
MOSTLY, _TELLING, _TELLING_ALONE = 0.5, 4, 100


@dataclass(frozen=True)
class Vocabulary:
    """The words of one side with ids from 2 on; EOS and UNK are ids 0 and 1 by position, not by any spelling.

    A word spelt ``UNK`` or ``</s>`` is a word like any other. Words are bytes without blank, tab or newline.
    """

    words: tuple[bytes, ...]
    counts: tuple[int, ...]
    ids: Mapping[bytes, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", {word: id for id, word in enumerate(self.words, FIRST_WORD)})

    def __len__(self) -> int:
        """The number of ids: words, EOS and UNK."""
        return len(self.words) + FIRST_WORD

    def encode(self, words: Sequence[bytes]) -> NDArray[np.int32]:
        """Return the ids of words, UNK for those that the vocabulary lacks: (words,)."""
        return np.fromiter(map(self.ids.get, words, repeat(UNK)), np.int32, len(words))


Counts = tuple[Counter[bytes], Counter[bytes]]  # of words, source and target
Vocabularies = tuple[Vocabulary, Vocabulary]


def most_frequent(counts: Counter[bytes], shortlist: int, teach_unk: bool = True) -> tuple[Vocabulary, int]:
    """Return the ``shortlist`` most frequent words, ties in byte order, and how many words were left out to ``teach_unk``.

    If the shortlist would hold all types, the rarest 1 %, at least one, are left out. A side of a single type keeps it.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    left_out = 0
    if ranked and teach_unk and len(ranked) <= shortlist:
        left_out = min(math.ceil(0.01 * len(ranked)), len(ranked) - 1)
        shortlist = len(ranked) - left_out
    kept = dict(ranked[:shortlist])
    return Vocabulary(tuple(kept), tuple(kept.values())), left_out


def check_donor(own: Vocabulary, donor: Vocabulary, warn: Say, text: str = "the text") -> None:
    """Warn if a model to start from knows less than half of the running words of a text."""
    known = sum(n for word, n in zip(own.words, own.counts, strict=True) if word in donor.ids)
    share = known / max(1, sum(own.counts))
    if share < 1 - MOSTLY:
        warn(f"the model to start from knows {share:.1%} of the running words of {text}: other language or tokenization?")


def shared_rows(own: Vocabulary, other: Vocabulary) -> tuple[list[int], list[int]]:
    """Return the ids, in both vocabularies, of EOS and UNK, by position, then of the words that both have."""
    shared = [word for word in own.ids if word in other.ids]
    here, there = ([EOS, UNK, *map(vocab.ids.__getitem__, shared)] for vocab in (own, other))
    return here, there


def format_vocabulary(vocabulary: Vocabulary) -> bytes:
    """Write one word a line as raw bytes, tab, count; line i (from 1) has id i + 1."""
    return b"".join(b"%b\t%d\n" % item for item in zip(vocabulary.words, vocabulary.counts, strict=True))


def read_vocabulary(path: str) -> Vocabulary:
    """Read what ``format_vocabulary`` wrote. Raises InputError for an empty or repeated word, one with a blank, a bad count."""
    found: dict[bytes, int] = {}
    with open_plain(path) as stream:
        for line_number, line in enumerate(read_rows(stream), 1):
            word, _, count = line.removesuffix(b"\n").partition(b"\t")
            if not word or b" " in word or not (count.isdigit() and len(count) <= 18):  # of 64 bits
                found_line = shown(line.removesuffix(b"\n"))
                raise InputError(path, f"{found_line} is not a word, a tab and a count", "write these a line", line_number)
            if word in found:
                raise InputError(path, f"{shown(word)} is listed twice", "name every word once", line_number)
            found[word] = int(count)
    return Vocabulary(tuple(found), tuple(found.values()))


def read_shortlist(path: str, without: frozenset[bytes] = frozenset()) -> Vocabulary:
    """Read a network's words, as ``read_vocabulary`` does, except those of ``without``. Raises InputError if none is left."""
    listed = read_vocabulary(path)
    kept = {word: count for word, count in zip(listed.words, listed.counts, strict=True) if word not in without}
    if not kept:
        raise InputError(path, "is empty", "name the words of the shortlist, one a line")
    return Vocabulary(tuple(kept), tuple(kept.values()))


def _folded(word: bytes) -> bytes:
    return word.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def _described(unknown: Counter[bytes], vocab: Vocabulary, seen: Counter[bytes], other: Vocabulary) -> str:
    """Name the commonest unknown words, and the change that makes most of them known."""
    ranked = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:10]
    commonest = "commonest: " + ", ".join(f"{shown(word)} {n}" for word, n in ranked)
    total = unknown.total()
    here, there = "the table", "the model's text"

    def share(known: Callable[[bytes], bool]) -> float:
        return sum(n for word, n in unknown.items() if known(word)) / total

    folded = {_folded(word) for word in vocab.words}
    factored = {word.partition(b"|")[0] for word in vocab.words if b"|" in word}
    causes = {
        "they differ from known words in letter case only": share(lambda word: _folded(word) in folded),
        f"{here} escapes special characters (&apos;) and {there} did not": share(lambda word: unescape(word) in vocab.ids),
        f"{there} escaped special characters (&apos;) and {here} does not": share(lambda word: escape(word) in vocab.ids),
        f"{here} has factors and {there} had none": share(lambda word: b"|" in word and word.partition(b"|")[0] in vocab.ids),
        f"{there} had factors and {here} has none": share(lambda word: word in factored),
    }
    likeliest = max(causes, key=lambda cause: causes[cause])
    if causes[likeliest] >= 0.5:
        return f"{commonest}; likely cause: {likeliest} ({causes[likeliest]:.0%} of them)"
    if sum(n for word, n in seen.items() if word not in other.ids) >= total / 2:
        return commonest
    return f"{commonest}; likely cause: source and target are swapped (most are words of the model's other side)"


def _unknown(counts: Counter[bytes], vocab: Vocabulary) -> Counter[bytes]:
    return Counter({word: n for word, n in counts.items() if word not in vocab.ids})


def untrained_unk(shares: Mapping[str, float], consequence: str) -> list[str]:
    """Return a warning for each side, or '', that had no unknown word in training, by UNK's share of its words there."""
    untrained = [side for side, share in shares.items() if share == 0]
    return [f"no {side} word was unknown in training: {consequence}".replace("  ", " ") for side in untrained]


def too_many_unknown(share: float, in_training: float) -> bool:
    """Return whether a share of unknown words exceeds 5 % and twice their share in training."""
    return share > max(0.05, 2 * in_training)


def misfits(unknown: int, words: int, in_training: float) -> list[str]:
    """Return a line if ``too_many_unknown`` of the words of a text are."""
    share = unknown / max(1, words)
    found = f"{share:.1%} of the words are unknown to the model, {in_training:.1%} in its training"
    return [f"{found}: other language, tokenization, or too little text"] * too_many_unknown(share, in_training)


def factor_counts(counts: Counter[bytes], factor: int | None, side: str) -> Counter[bytes]:
    """Count what a model reads of words: this factor of each. Raises RowError if a word lacks it."""
    if factor is None:
        return counts
    read = Counter[bytes]()
    for part, n in zip(select_factor(list(counts), factor, side), counts.values(), strict=True):
        read[part] += n
    return read


def fit_warnings(seen: Counts, vocabs: Vocabularies, unk_shares: tuple[float, float]) -> Iterator[str]:
    """Yield a line for each side with ``too_many_unknown`` among the words ``seen`` in a table, the source first."""
    sides = zip(SIDES, seen, vocabs, vocabs[::-1], unk_shares, strict=True)
    for side, counts, vocab, other, in_training in sides:
        unknown = _unknown(counts, vocab)
        share = unknown.total() / max(counts.total(), 1)
        if too_many_unknown(share, in_training):
            found = f"{share:.1%} of the {side} words are unknown to the model, {in_training:.1%} in its training"
            yield f"{found}; {_described(unknown, vocab, counts, other)}"


def refuse_swapped(name: str, seen: Counts, vocabs: Vocabularies, model: str = "the model") -> None:
    """Raise InputError if most words ``seen`` in source and target are unknown, and far fewer with the sides swapped."""
    sides = [_of_other_side(counts, known, _TELLING) for counts, known in zip(seen, (vocabs, vocabs[::-1]), strict=True)]
    if all(sides):
        (src, src_other), (tgt, tgt_other) = filter(None, sides)
        unknown = f"{src:.0%} of the source and {tgt:.0%} of the target words are unknown to {model}"
        found = f"source and target seem swapped: {unknown}, with the sides swapped {src_other:.0%} and {tgt_other:.0%}"
        raise InputError(name, found, "swap them, or name a model of this direction")


def refuse_target(name: str, seen: Counter[bytes], vocabs: Vocabularies) -> None:
    """Raise InputError if most words ``seen`` in a source are unknown, and far fewer of them as words of the target."""
    if shares := _of_other_side(seen, vocabs, _TELLING_ALONE):
        unknown = "{:.0%} are unknown to the model as source words, {:.0%} as target words".format(*shares)
        found = f"seems to be text of the target: of its words, without those that both sides know, {unknown}"
        raise InputError(name, found, "give the text that was decoded")


def _of_other_side(counts: Counter[bytes], vocabs: Vocabularies, telling: int) -> tuple[float, float] | None:
    """Return the shares that the first vocabulary and the other lack, if those are mostly words of the other, else None.

    Sorted tables begin with numbers and marks: words without a letter do not count, nor words that both sides know.
    """
    known, words = [vocab.ids for vocab in vocabs], dict[bytes, int]()
    for word, n in counts.items():
        if not (word in known[0] and word in known[1]) and any(map(str.isalpha, word.decode("utf-8", "ignore"))):
            words[word] = n
    total = sum(words.values())
    own, other = (sum(n for word, n in words.items() if word not in of_side) for of_side in known)
    if total < telling or own <= MOSTLY * total or other >= own / 2:
        return None
    return own / total, other / total


def coverage(counts: Counter[bytes], vocab: Vocabulary, factor: int | None) -> dict[str, int]:
    """Count the words of one side of a table, and those that a model knows. ``factor``: which part of a word is read."""
    if factor is not None:
        whole, counts = counts, Counter()
        for word, n in whole.items():
            counts[b"".join(word.split(b"|")[factor : factor + 1])] += n
    known = [n for word, n in counts.items() if word in vocab.ids]
    return {"tokens": counts.total(), "known_tokens": sum(known), "types": len(counts), "known_types": len(known)}
