#!/usr/bin/env python3
"""A small phrase decoder, which stands in for Moses in the demo: it does what Moses does, on small texts, and slowly.

Beam search over segmentations of the source, which may be taken a few words out of order; scores of the phrase table,
a trigram model by counts, penalties of words, phrases and jumps; unknown words are copied. It writes an n-best list as
`moses -n-best-list FILE N distinct -include-segmentation-in-n-best` does. It has no lexicalized reordering, binary tables,
factors, minimum Bayes risk or threads, and keeps everything in memory: translate with Moses.
"""

import argparse
import gzip
import heapq
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count, islice, pairwise
from operator import mul
from pathlib import Path
from typing import NamedTuple

BEAM = 30  # hypotheses of a stack that are extended
BEHIND = 1.5  # how far behind the best of its stack a hypothesis may be, times the sum of all weights
OPTIONS = 12  # translations of a source phrase
LONGEST = 5  # words of a source phrase
JUMP = 3  # words that may be left for later
TRIED = 20  # derivations for each distinct entry of a list, at most

Words = tuple[str, ...]
Logs = tuple[float, ...]
Table = dict[str, list[tuple[Words, Logs]]]
START, END = ("<s>", "<s>"), "</s>"


class LanguageModel:
    """Interpolated Kneser-Ney trigrams of a text, with one discount."""

    DISCOUNT = 0.75

    def __init__(self, lines: Iterable[str]) -> None:
        grams, self._orders, self._known = Counter[Words](), [], dict[Words, float]()
        for line in lines:
            words = (*START, *line.split(), END)
            grams.update(zip(words, words[1:], words[2:], strict=False))
        for _ in range(3):
            totals, kinds = Counter[Words](), Counter[Words]()
            for gram, times in grams.items():
                totals[gram[:-1]] += times
                kinds[gram[:-1]] += 1
            self._orders.append((grams, totals, kinds))
            grams = Counter(gram[1:] for gram in grams)  # lower orders count contexts

    def log_p(self, gram: Words) -> float:
        """Return the natural logarithm of p(last word | the two before it)."""
        if (known := self._known.get(gram)) is None:
            known = self._known[gram] = math.log(self._probability(gram))
        return known

    def _probability(self, gram: Words) -> float:
        grams, totals, kinds = self._orders[3 - len(gram)]
        total, new = totals.get(gram[:-1], 0), kinds.get(gram[:-1], 0)
        lower = self._probability(gram[1:]) if len(gram) > 1 else 1 / (new + 1)
        return (max(grams.get(gram, 0) - self.DISCOUNT, 0) + self.DISCOUNT * new * lower) / total if total else lower

    def of(self, context: Words, words: Words) -> float:
        """Return the natural logarithm of p(words | the two before them)."""
        text = context + words
        return sum(self.log_p(text[i : i + 3]) for i in range(len(words)))


class Option(NamedTuple):
    """A translation of some source words: its logarithms of the table; score without, and with a guess of, the LM."""

    tgt: Words
    logs: Logs
    score: float
    estimate: float


class Arc(NamedTuple):
    """A phrase pair of a derivation, behind a hypothesis; `score` is all that it adds, weighted."""

    score: float
    before: "Hypothesis"
    first: int
    last: int
    option: Option


class Hypothesis:
    """A set of derivations that have the same future: source words covered (bits), end of the last phrase, two words."""

    __slots__ = ("arcs", "context", "covered", "end", "score")

    def __init__(self, covered: int, end: int, context: Words, score: float) -> None:
        self.covered, self.end, self.context, self.score, self.arcs = covered, end, context, score, list[Arc]()


class Decoder:
    """Phrases, language model and weights."""

    def __init__(self, table: Table, lm: LanguageModel, weights: dict[str, list[float]]) -> None:
        self._lm, self._w_table = lm, weights["TranslationModel0"]
        names = ("LM0", "Distortion0", "WordPenalty0", "PhrasePenalty0")
        self._w_lm, self._w_jump, self._w_word, self._w_phrase = (weights[name][0] for name in names)
        self._behind = BEHIND * sum(abs(weight) for values in weights.values() for weight in values)
        self._options = {
            src: heapq.nlargest(OPTIONS, (self._option(*row) for row in rows), key=lambda option: option.estimate)
            for src, rows in table.items()
        }

    def _option(self, tgt: Words, logs: Logs) -> Option:
        score = sum(map(mul, self._w_table, logs)) - self._w_word * len(tgt) + self._w_phrase
        inside = sum(self._lm.log_p(tgt[max(0, i - 2) : i + 1]) for i in range(len(tgt)))
        return Option(tgt, logs, score, score + self._w_lm * inside)

    def n_best(self, source: Sequence[str], n: int) -> list[tuple[float, list[Arc]]]:
        """Return the n best distinct translations, best first: total and phrase pairs in target order."""
        best, seen = [], set[Words]()
        for total, path in islice(self._derivations(self._search(source)), n * TRIED):
            tgt = tuple(word for arc in path for word in arc.option.tgt)
            if tgt not in seen:
                seen.add(tgt)
                best.append((total, path))
            if len(best) == n:
                break
        return best

    def _search(self, source: Sequence[str]) -> list[Hypothesis]:
        """Return the hypotheses that cover the source, their scores with the end of the sentence."""
        size = len(source)
        spans = [(i, j) for i in range(size) for j in range(i + 1, min(size, i + LONGEST) + 1)]
        options = {(i, j): self._options.get(" ".join(source[i:j]), []) for i, j in spans}
        for i, word in enumerate(source):
            options[i, i + 1] = options[i, i + 1] or [self._option((word,), (0.0,) * len(self._w_table))]
        future = _futures(options, size)
        stacks = [dict[tuple[int, int, Words], Hypothesis]() for _ in range(size + 1)]
        best = [-math.inf] * (size + 1)
        stacks[0][0, 0, START] = Hypothesis(0, 0, START, 0.0)
        for done, stack in enumerate(stacks[:-1]):
            for hypothesis in heapq.nlargest(BEAM, stack.values(), key=lambda one: one.score + future(one.covered)):
                gap = (~hypothesis.covered & hypothesis.covered + 1).bit_length() - 1  # the first word that is not covered
                for i in range(gap, min(size, gap + JUMP + 1)):
                    jump = self._w_jump * -abs(i - hypothesis.end)
                    for j in range(i + 1, min(size, i + LONGEST) + 1):
                        if hypothesis.covered >> j - 1 & 1:
                            break
                        covered, reached = hypothesis.covered | (1 << j) - (1 << i), done + j - i
                        rest = future(covered)
                        least = best[reached] - self._behind
                        for option in options[i, j]:
                            if hypothesis.score + jump + option.estimate + rest < least:
                                break
                            score = jump + option.score + self._w_lm * self._lm.of(hypothesis.context, option.tgt)
                            arc, total = Arc(score, hypothesis, i, j - 1, option), hypothesis.score + score
                            key = covered, j, (*hypothesis.context, *option.tgt)[-2:]
                            if (same := stacks[reached].get(key)) is None:
                                same = stacks[reached][key] = Hypothesis(*key, total)
                            same.arcs.append(arc)
                            same.score = max(same.score, total)
                            best[reached] = max(best[reached], total + rest)
        return list(stacks[-1].values())

    def _derivations(self, finals: Sequence[Hypothesis]) -> Iterator[tuple[float, list[Arc]]]:
        """Yield derivations, best first: A* backwards, where the score of a hypothesis is all that can be before it."""
        ties, heap = count(), []
        for final in finals:
            behind = self._w_lm * self._lm.of(final.context, (END,))
            heap.append((-behind - final.score, next(ties), behind, final, []))
        heapq.heapify(heap)
        while heap:
            total, _, behind, hypothesis, path = heapq.heappop(heap)
            if not hypothesis.arcs:
                yield -total, path
            for arc in hypothesis.arcs:
                longer = behind + arc.score
                heapq.heappush(heap, (-longer - arc.before.score, next(ties), longer, arc.before, [arc, *path]))

    def entries(self, segment: int, source: Sequence[str], n: int) -> Iterator[str]:
        """Yield the lines of a segment's list, as Moses writes them."""
        for total, path in self.n_best(source, n):
            tgt = tuple(word for arc in path for word in arc.option.tgt)
            ends = [0, *(arc.last + 1 for arc in path)]
            features = {
                "Distortion0": [-sum(abs(arc.first - end) for arc, end in zip(path, ends, strict=False))],
                "LM0": [self._lm.of(START, (*tgt, END))],
                "WordPenalty0": [-len(tgt)],
                "PhrasePenalty0": [len(path)],
                "TranslationModel0": [sum(values) for values in zip(*(arc.option.logs for arc in path), strict=True)],
            }
            values = " ".join(f"{name}= {' '.join(f'{value:g}' for value in values)}" for name, values in features.items())
            yield f"{segment} ||| {' '.join(tgt)}  ||| {values} ||| {total:g} ||| {_segmentation(path)} \n"


def _segmentation(path: Iterable[Arc]) -> str:
    spans, end = [], 0
    for arc in path:
        begin, end = end, end + len(arc.option.tgt)
        spans += ["=".join(str(i) if i == j else f"{i}-{j}" for i, j in ((arc.first, arc.last), (begin, end - 1)))]
    return " ".join(spans)


def _futures(options: dict[tuple[int, int], list[Option]], size: int) -> Callable[[int], float]:
    """Return a function of the covered words (bits): the best guess of what the others add."""
    best = {span: max((option.estimate for option in found), default=-math.inf) for span, found in options.items()}
    for width in range(2, size + 1):
        for i in range(size - width + 1):
            j = i + width
            best[i, j] = max([best.get((i, j), -math.inf), *(best[i, k] + best[k, j] for k in range(i + 1, j))])

    @cache
    def future(covered: int) -> float:
        taken = [-1, *(i for i in range(size) if covered >> i & 1), size]
        return sum(best[i + 1, j] for i, j in pairwise(taken) if i + 1 < j)

    return future


def read_table(path: Path, sources: Iterable[Sequence[str]]) -> Table:
    """Read the rows of phrases that the sources have: target words and the logarithms of all scores."""
    needed = {" ".join(src[i:j]) for src in sources for i in range(len(src)) for j in range(i + 1, i + LONGEST + 1)}
    table = Table()
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as rows:
        for row in rows:
            src, tgt, scores = row.split(" ||| ")[:3]
            if src in needed:
                logs = tuple(math.log(float(score)) for score in scores.split())
                table.setdefault(src, []).append((tuple(tgt.split()), logs))
    return table


def read_weights(path: Path) -> dict[str, list[float]]:
    """Read the lines of a section [weight]."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines() if "= " in line)
    return {name.rstrip("="): [float(value) for value in values] for name, *values in lines}


def _decoded(job: tuple[int, list[str], int]) -> list[str]:
    return list(_decoder.entries(*job))


def main() -> None:
    """Run the command line."""
    global _decoder
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("source", type=Path, help="the text to translate, tokenized, a segment a line")
    parser.add_argument("--table", type=Path, required=True, help="phrase table, gzip")
    parser.add_argument("--text", type=Path, required=True, help="text of the target language, for the trigrams")
    parser.add_argument("--weights", type=Path, required=True, help="ini with a section [weight]")
    parser.add_argument("-n", type=int, default=100, help="entries of a segment [100]")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the n-best list, gzip")
    options = parser.parse_args()
    with options.source.open(encoding="utf-8") as source, options.text.open(encoding="utf-8") as text:
        sources, lm = [line.split() for line in source], LanguageModel(text)
    _decoder = Decoder(read_table(options.table, sources), lm, read_weights(options.weights))
    unfinished = options.output.with_name(options.output.name + ".unfinished")
    jobs = [(segment, source, options.n) for segment, source in enumerate(sources)]
    # A process a core. Forked, since all of them need what was read.
    with multiprocessing.get_context("fork").Pool() as pool, gzip.open(unfinished, "wt", 6, "utf-8", newline="\n") as stream:
        for lines in pool.imap(_decoded, jobs, chunksize=4):
            stream.writelines(lines)
    unfinished.replace(options.output)


_decoder: Decoder

if __name__ == "__main__":
    main()
