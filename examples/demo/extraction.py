"""A phrase table as Moses extracts it: the phrase pairs that agree with the word alignments, and their four scores."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ibm_model1 import Link

MAX_PHRASE = 5  # words a side
NULL = ""  # what a word without a link is linked to

Words = Sequence[str]
Box = tuple[int, int, int, int]
Pair = tuple[str, str]
Links = set[Link] | tuple[Link, ...]


def table_rows(sources: Sequence[Words], targets: Sequence[Words], alignments: Sequence[set[Link]]) -> Iterator[str]:
    """Yield the rows, in no particular order: p(s|t), lex(s|t), p(t|s), lex(t|s); word alignment; counts."""
    joint, links_of = Counter[Pair](), defaultdict[Pair, Counter[tuple[Link, ...]]](Counter)
    for src, tgt, links in zip(sources, targets, alignments, strict=True):
        for i, i_end, j, j_end in boxes(len(src), len(tgt), links):
            pair = " ".join(src[i:i_end]), " ".join(tgt[j:j_end])
            joint[pair] += 1
            links_of[pair][tuple(sorted((a - i, b - j) for a, b in links if i <= a < i_end and j <= b < j_end))] += 1
    totals: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for pair, count in joint.items():
        for side in (0, 1):
            totals[side][pair[side]] += count
    to_target = word_probabilities(sources, targets, alignments)
    to_source = word_probabilities(targets, sources, [turned(links) for links in alignments])
    for (src, tgt), count in joint.items():
        links = max(links_of[src, tgt].items(), key=lambda item: (item[1], item[0]))[0]
        src_count, tgt_count = totals[0][src], totals[1][tgt]
        scores = (
            count / tgt_count, lexical_weight(tgt.split(" "), src.split(" "), turned(links), to_source),
            count / src_count, lexical_weight(src.split(" "), tgt.split(" "), links, to_target),
        )  # fmt: skip
        points = " ".join(f"{i}-{j}" for i, j in links)
        numbers = " ".join(f"{score:g}" for score in scores)
        yield f"{src} ||| {tgt} ||| {numbers} ||| {points} ||| {tgt_count} {src_count} {count} ||| |||"


def boxes(rows: int, columns: int, links: set[Link]) -> Iterator[Box]:
    """Yield (first source word, end, first target word, end) of all phrase pairs whose links stay within them."""
    linked = {j for _, j in links}
    for i in range(rows):
        for i_end in range(i + 1, min(rows, i + MAX_PHRASE) + 1):
            inside = [j for a, j in links if i <= a < i_end]
            if not inside:
                continue
            low, high = min(inside), max(inside) + 1
            if high - low > MAX_PHRASE or any(low <= j < high and not i <= a < i_end for a, j in links):
                continue
            j = low
            while j >= 0 and (j == low or j not in linked):  # words without links go with either neighbour
                j_end = high
                while j_end <= min(columns, j + MAX_PHRASE) and (j_end == high or j_end - 1 not in linked):
                    yield i, i_end, j, j_end
                    j_end += 1
                j -= 1


def turned(links: Links) -> set[Link]:
    """The links from the other side."""
    return {(j, i) for i, j in links}


def word_probabilities(sources: Sequence[Words], targets: Sequence[Words], alignments: Sequence[Links]) -> dict[Pair, float]:
    """Return w(target word | source word) by counts of links."""
    joint, totals = Counter[Pair](), Counter[str]()
    for src, tgt, links in zip(sources, targets, alignments, strict=True):
        linked = {j for _, j in links}
        joint.update((src[i], tgt[j]) for i, j in links)
        joint.update((NULL, tgt[j]) for j in range(len(tgt)) if j not in linked)
    for (src_word, _), count in joint.items():
        totals[src_word] += count
    return {pair: count / totals[pair[0]] for pair, count in joint.items()}


def lexical_weight(src: Words, tgt: Words, links: Links, of_words: dict[Pair, float]) -> float:
    """Moses' lexical weight: over the target words, the product of the mean w(word | a source word linked to it)."""
    weight = 1.0
    for j, word in enumerate(tgt):
        linked = [of_words[src[i], word] for i, to in links if to == j] or [of_words[NULL, word]]
        weight *= sum(linked) / len(linked)
    return weight
