"""IBM Model 1 with numpy, with a preference for the diagonal; the word alignments that it makes likely.

The arithmetic is sums in a fixed order, products and quotients, so the same input gives the same numbers everywhere.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Link = tuple[int, int]

NULL_SHARE = 0.08  # of the target words, those that no source word explains
_NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def align(sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], iterations: int = 5) -> list[set[Link]]:
    """Return the (source, target) links of every sentence pair: both directions, joined by grow-diag-final-and."""
    forward = (_likeliest(matrix) for matrix in _train(sources, targets, iterations))
    backward = (_likeliest(matrix) for matrix in _train(targets, sources, iterations))
    return [_symmetrized(links, {(j, i) for i, j in turned}) for links, turned in zip(forward, backward, strict=True)]


def _train(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], iterations: int
) -> Iterator[NDArray[np.float64]]:
    """Train w(target word | source word) by EM; yield a matrix a pair, prior · w, with a last row for the NULL word."""
    source_ids, target_ids = _numbered(sources, first=1), _numbered(targets, first=0)  # source word 0 is NULL
    target_words = 1 + max(int(ids.max()) for ids in target_ids)
    # One cell for each word of a source (its words, then NULL) against each word of the target
    words, contexts, priors = [], [], []
    context = 0  # a target position, over whose cells the word's responsibilities sum to one
    for source, target in zip(source_ids, target_ids, strict=True):
        with_null = np.append(source, 0)
        words.append((with_null[:, None] * target_words + target[None, :]).ravel())
        contexts.append(np.tile(np.arange(context, context + len(target)), len(with_null)))
        priors.append(_prior(len(source), len(target)).ravel())
        context += len(target)
    pairs, pair_of_cell = np.unique(np.concatenate(words), return_inverse=True)
    source_of_pair = pairs // target_words
    context_of_cell, prior_of_cell = np.concatenate(contexts), np.concatenate(priors)

    probability = np.full(len(pairs), 1.0 / target_words)
    for _ in range(iterations):
        likelihood = prior_of_cell * probability[pair_of_cell]
        share = likelihood / np.bincount(context_of_cell, likelihood)[context_of_cell]
        expected = np.bincount(pair_of_cell, share)
        probability = expected / np.bincount(source_of_pair, expected)[source_of_pair]

    ends = np.cumsum([len(cells) for cells in words])
    cells_of_pairs = np.split(prior_of_cell * probability[pair_of_cell], ends[:-1])
    for cells, source, target in zip(cells_of_pairs, sources, targets, strict=True):
        yield cells.reshape(len(source) + 1, len(target))


def _prior(rows: int, columns: int) -> NDArray[np.float64]:
    """How likely a target word is to come from each source word by their places alone; the last row is NULL's."""
    row, column = (np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns
    near = (1 + 4 * np.abs(row[:, None] - column[None, :])) ** -2.0
    return np.vstack([(1 - NULL_SHARE) * near / near.sum(0), np.full(columns, NULL_SHARE)])


def _numbered(texts: Sequence[Sequence[str]], first: int) -> list[NDArray[np.int64]]:
    numbers: dict[str, int] = {}
    return [np.array([numbers.setdefault(word, len(numbers) + first) for word in text], dtype=np.int64) for text in texts]


def _likeliest(matrix: NDArray[np.float64]) -> set[Link]:
    """The likeliest (source, target) links: one for each target word that NULL does not explain better."""
    best = matrix.argmax(0).tolist()
    return {(row, column) for column, row in enumerate(best) if row < len(matrix) - 1}


def _symmetrized(forward: set[Link], backward: set[Link]) -> set[Link]:
    links, union = forward & backward, forward | backward
    rows, columns = {row for row, _ in links}, {column for _, column in links}

    def add(link: Link) -> None:
        links.add(link)
        rows.add(link[0])
        columns.add(link[1])

    grown = True
    while grown:
        grown = False
        for row, column in sorted(links):
            for down, right in _NEIGHBOURS:
                link = row + down, column + right
                if link in union and link not in links and (link[0] not in rows or link[1] not in columns):
                    add(link)
                    grown = True
    for direction in (forward, backward):
        for link in sorted(direction):
            if link[0] not in rows and link[1] not in columns:
                add(link)
    return links
