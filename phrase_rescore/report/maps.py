"""Maps of words and phrases: their vectors, places on a map, and which labels stand there without touching each other."""

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary
from phrase_rescore.moses.text import readable
from phrase_rescore.report.charts import MAP_HEIGHT
from phrase_rescore.report.theme import FULL, Records
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.scorer import PhraseEncoder, Side, word_embeddings

MAPPED_WORDS, MAPPED_PHRASES = 1000, 700
LEVELS = 6  # of zoom, each twice as near as the one before
_FEWEST = 3  # vectors of a map
_FEWEST_TSNE = 30  # vectors that have neighbourhoods worth drawing
_CHARACTER, _LINE, _GAP = 6.6, 14.0, 6.0  # pixels of a label
_MARGIN = 0.04
_SEED = 1

Floats = NDArray[Any]


@dataclass(frozen=True)
class WordMap:
    """A map as it is drawn: ``records`` are those of ``charts.words_map``."""

    name: str
    title: str
    records: Records
    method: str  # t-SNE or PCA


def draw_maps(checkpoint: Checkpoint, long_sources: Mapping[bytes, float]) -> Iterator[WordMap]:
    """Map the words of both sides and, of a model that reads sources, the most frequent of its ``long_sources``."""
    sides: tuple[tuple[Side, Vocabulary], ...] = ("source", checkpoint.src_vocab), ("target", checkpoint.tgt_vocab)
    for side, vocabulary in sides:
        words, counts = vocabulary.words[:MAPPED_WORDS], vocabulary.counts[:MAPPED_WORDS]
        vectors = word_embeddings(checkpoint, side)[FIRST_WORD : FIRST_WORD + len(words)]
        yield from _drawn(f"{side}-words", f"{side.capitalize()} words", words, counts, vectors)
    if not checkpoint.inverse:
        kept = within(long_sources, MAPPED_PHRASES)
        vectors = PhraseEncoder(checkpoint).vectors(kept)
        yield from _drawn("phrases", "Phrases", kept, [long_sources[phrase] for phrase in kept], vectors)


def _drawn(name: str, title: str, phrases: Sequence[bytes], counts: Sequence[float], vectors: Floats) -> Iterator[WordMap]:
    """Yield the map, if there is enough to draw."""
    if len(phrases) < _FEWEST:
        return
    labels = [readable(phrase) for phrase in phrases]
    places = project(vectors, _SEED)
    low, high = places.min(axis=0), places.max(axis=0)
    share = (places - low) / np.where(high > low, high - low, 1.0)
    room = min(_GAP + _CHARACTER * max(map(len, labels)), FULL / 4)  # for labels, right of the last points
    places = (_MARGIN + (1 - 2 * _MARGIN) * share) * np.array([FULL - room, MAP_HEIGHT])
    levels = label_levels(places, labels)
    records = [
        {"x": round(float(x), 2), "y": round(float(y), 2), "label": label, "level": int(level), "count": float(count),
         "words": phrase.count(b" ") + 1}
        for (x, y), label, level, count, phrase in zip(places, labels, levels, counts, phrases, strict=True)
    ]  # fmt: skip
    yield WordMap(name, title, records, method_for(len(phrases)))


def within(counts: Mapping[bytes, float], most: int) -> list[bytes]:
    """The ``most`` most frequent phrases; of two of which one is part of the other only the more frequent one.

    >>> within({b"a b c d": 9, b"a b c d e": 8, b"x y z w": 7}, 5)
    [b'a b c d', b'x y z w']
    """
    chosen = list[bytes]()
    for phrase, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        padded = b" " + phrase + b" "
        if not any(padded in other or other in padded for other in chosen):
            chosen.append(padded)
        if len(chosen) == most:
            break
    return [padded[1:-1] for padded in chosen]


def method_for(vectors: int) -> str:
    """Name what lays out so many vectors here.

    >>> method_for(10)
    'PCA'
    """
    return "t-SNE" if vectors >= _FEWEST_TSNE and importlib.util.find_spec("openTSNE") else "PCA"


def project(vectors: Floats, seed: int = 1) -> Floats:
    """Lay out vectors (n, d): places (n, 2) where near ones are near, by cosine distance (PCA: of unit vectors)."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.asarray(vectors / np.where(norms > 0, norms, 1.0), np.float64)
    if method_for(len(unit)) == "PCA":
        u, s, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
        places = np.zeros((len(unit), 2))
        places[:, : min(2, len(s))] = (u * s)[:, :2]
        return places
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's, which concern nobody here
        from openTSNE import TSNE

        perplexity = min(30.0, (len(unit) - 1) / 3)
        tsne = TSNE(
            perplexity=perplexity, initialization="pca", neighbors="exact", negative_gradient_method="bh", random_state=seed,
            n_jobs=1,  # two threads are slower where other programs run, and its results depend on their number
        )  # fmt: skip
        return np.asarray(tsne.fit(unit))


def label_levels(places: Floats, labels: Sequence[str]) -> NDArray[np.int64]:
    """Find the zoom (0, 1, …) from which on each label has room beside its point in ``places`` (n, 2), in pixels.

    0 is the whole map, 1 twice as near. The first labels come first. A label that never has room gets LEVELS.
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
