"""Vectors as gensim reads them. It is imported where a test asks for it: it takes a second."""

from pathlib import Path
from typing import Any


def word2vec(path: Path) -> Any:
    from gensim.models import KeyedVectors

    return KeyedVectors.load_word2vec_format(str(path))
