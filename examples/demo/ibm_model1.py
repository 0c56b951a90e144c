"""IBM Model 1 with numpy: word translation probabilities by EM, and the word alignments they make likely.

The arithmetic is sums in a fixed order, products and quotients, so the same input gives the same numbers everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Link = tuple[int, int]

_NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


@dataclass(frozen=True)
class WordProbabilities:
    """For each phrase pair the matrix w(target word | source word), its last row for the NULL source word."""

    matrices: list[NDArray[np.float64]]

    def viterbi(self, pair: int) -> set[Link]:
        """The likeliest (source, target) links: one for each target word that NULL does not explain better.

        Among equally likely source words the one nearest the diagonal is taken.
        """
        matrix = self.matrices[pair]
        rows, columns = matrix.shape[0] - 1, matrix.shape[1]
        links = set()
        for column in range(columns):
            best = min(range(rows), key=lambda row: _preference(matrix, row, column))
            if matrix[best, column] >= matrix[rows, column]:
                links.add((best, column))
        return links

    def likeliest_link(self, pair: int) -> Link:
        """The one likeliest link between two words."""
        matrix = self.matrices[pair]
        cells = [(row, column) for row in range(matrix.shape[0] - 1) for column in range(matrix.shape[1])]
        return min(cells, key=lambda cell: _preference(matrix, *cell))

    def lexical_weight(self, pair: int, links: set[Link]) -> float:
        """The lexical weight of Moses: over the target words, the product of the mean w of the words linked to each.

        A target word without a link is explained by NULL.
        """
        matrix = self.matrices[pair]
        weight = 1.0
        for column in range(matrix.shape[1]):
            linked = [float(matrix[row, column]) for row, to in sorted(links) if to == column]
            weight *= sum(linked) / len(linked) if linked else float(matrix[-1, column])
        return weight


def _preference(matrix: NDArray[np.float64], row: int, column: int) -> tuple[float, float]:
    rows, columns = matrix.shape[0] - 1, matrix.shape[1]
    off_diagonal = abs((row + 0.5) / rows - (column + 0.5) / columns)
    return -round(float(matrix[row, column]), 9), round(off_diagonal, 9)


def train(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], counts: Sequence[int], iterations: int = 5
) -> WordProbabilities:
    """Train w(target word | source word) on phrase pairs, each seen so many times, from uniform probabilities."""
    source_ids, target_ids = _numbered(sources, first=1), _numbered(targets, first=0)  # source word 0 is NULL
    target_words = 1 + max(int(ids.max()) for ids in target_ids)
    # One cell for each word of a source phrase (its words, then NULL) against each word of the target phrase.
    words, contexts, weights = [], [], []
    context = 0  # a target position, over whose cells the word's responsibilities sum to one
    for source, target, count in zip(source_ids, target_ids, counts, strict=True):
        with_null = np.append(source, 0)
        words.append((with_null[:, None] * target_words + target[None, :]).ravel())
        contexts.append(np.tile(np.arange(context, context + len(target)), len(with_null)))
        weights.append(np.full(len(with_null) * len(target), float(count)))
        context += len(target)
    pairs, pair_of_cell = np.unique(np.concatenate(words), return_inverse=True)
    source_of_pair = pairs // target_words
    context_of_cell, weight_of_cell = np.concatenate(contexts), np.concatenate(weights)

    probability = np.full(len(pairs), 1.0 / target_words)
    for _ in range(iterations):
        likelihood = probability[pair_of_cell]
        share = likelihood / np.bincount(context_of_cell, likelihood)[context_of_cell]
        expected = np.bincount(pair_of_cell, share * weight_of_cell)
        probability = expected / np.bincount(source_of_pair, expected)[source_of_pair]

    ends = np.cumsum([len(cells) for cells in words])
    cells_of_pairs = np.split(probability[pair_of_cell], ends[:-1])
    shapes = [(len(source) + 1, len(target)) for source, target in zip(source_ids, target_ids, strict=True)]
    return WordProbabilities([cells.reshape(shape) for cells, shape in zip(cells_of_pairs, shapes, strict=True)])


def _numbered(phrases: Sequence[Sequence[str]], first: int) -> list[NDArray[np.int64]]:
    numbers: dict[str, int] = {}
    return [np.array([numbers.setdefault(word, len(numbers) + first) for word in phrase], dtype=np.int64) for phrase in phrases]


def symmetrize(forward: set[Link], backward: set[Link]) -> set[Link]:
    """Join two directions' alignments by grow-diag-final-and."""
    links, union = forward & backward, forward | backward
    grown = True
    while grown:
        grown = False
        for row, column in sorted(links):
            for down, right in _NEIGHBOURS:
                link = row + down, column + right
                if link in union and link not in links and (_row_free(links, link) or _column_free(links, link)):
                    links.add(link)
                    grown = True
    for direction in (forward, backward):
        for link in sorted(direction):
            if _row_free(links, link) and _column_free(links, link):
                links.add(link)
    return links


def _row_free(links: set[Link], link: Link) -> bool:
    return all(row != link[0] for row, _ in links)


def _column_free(links: set[Link], link: Link) -> bool:
    return all(column != link[1] for _, column in links)
