"""Vectors to places on a map, and which labels stand there without touching each other."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = 6  # of zoom, each twice as near as the one before
_FEWEST = 30  # vectors that have neighbourhoods worth drawing
_CHARACTER, _LINE, _GAP = 6.6, 14.0, 6.0  # pixels of a label
_MARGIN = 0.04

Floats = NDArray[Any]


def method_for(vectors: int) -> str:
    """Name what lays out so many vectors here.

    >>> method_for(10)
    'PCA'
    """
    return "t-SNE" if vectors >= _FEWEST and importlib.util.find_spec("openTSNE") else "PCA"


def project(vectors: Floats, seed: int = 1) -> Floats:
    """Places (n, 2) of vectors (n, d), near ones near, by cosine distance (PCA: of unit vectors)."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.asarray(vectors / np.where(norms > 0, norms, 1.0), np.float64)
    if method_for(len(unit)) == "PCA":
        return _pca(unit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numba and scipy, which concern nobody here
        from openTSNE import TSNE

        perplexity = min(30.0, (len(unit) - 1) / 3)
        tsne = TSNE(
            perplexity=perplexity, initialization="pca", neighbors="exact", negative_gradient_method="bh", random_state=seed,
            n_jobs=1,  # two threads are slower where other programs run, and its results depend on their number
        )  # fmt: skip
        return np.asarray(tsne.fit(unit))


def _pca(vectors: Floats) -> Floats:
    centred = vectors - vectors.mean(axis=0) if len(vectors) else vectors
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    places[:, : min(2, len(s))] = (u * s)[:, :2]
    return places


def room_for(labels: Sequence[str]) -> float:
    """Pixels that the longest label takes."""
    return _GAP + _CHARACTER * max(map(len, labels), default=0)


def fitted(places: Floats, width: float, height: float) -> Floats:
    """Places stretched to a picture of this size, in pixels, with a margin."""
    low, high = places.min(axis=0), places.max(axis=0)
    share = (places - low) / np.where(high > low, high - low, 1.0)
    within: Floats = (_MARGIN + (1 - 2 * _MARGIN) * share) * np.array([width, height])
    return within


def label_levels(places: Floats, labels: Sequence[str]) -> NDArray[np.int64]:
    """From which zoom on each label has room, beside its point in ``places`` (n, 2), in pixels: 0, 1, … LEVELS.

    0 is the whole map, 1 twice as near. The first labels come first. One that never has room gets LEVELS.
    """
    levels = np.full(len(labels), LEVELS, np.int64)
    widths = np.array([_CHARACTER * len(label) + _GAP for label in labels])
    for level in range(LEVELS):
        scale = 0.5**level
        left, right = places[:, 0], places[:, 0] + (widths + _GAP) * scale
        for i in np.flatnonzero(levels == LEVELS).tolist():
            there = levels <= level
            apart = (left[there] > right[i]) | (right[there] < left[i])
            if (apart | (np.abs(places[there, 1] - places[i, 1]) > _LINE * scale)).all():
                levels[i] = level
    return levels
