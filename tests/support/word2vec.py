"""Vectors as gensim reads them. It is imported where a test asks for it: it takes a second."""

from pathlib import Path
from typing import Any

import pytest


def word2vec(path: Path) -> Any:
    models = pytest.importorskip("gensim.models", reason="needs gensim")
    return models.KeyedVectors.load_word2vec_format(str(path))
