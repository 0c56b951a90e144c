"""The text format of NPLM (https://github.com/moses-smt/nplm, src/model.cpp), which Moses' feature NeuralLM reads.

A file has sections, each ended by an empty line: ``\\config``, the words of both sides, the matrices a row a line.

    p(w) ∝ exp(output_weights · h_2 + output_biases)
    h_2 = r(hidden_weights 2 · h_1 + hidden_biases 2)      r(x) = max(0, x)
    h_1 = r(hidden_weights 1 · (e_1, …, e_{n-1}) + hidden_biases 1), e_1 the input embedding of the oldest word

Moses pads with ``<s>`` before a sentence, and with ``<null>`` where it does not know what stands before a phrase. It takes
scores as they are, without dividing by their sum (moses/LM/NeuralLMWrapper.cpp), and as natural logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, RescoreError, shown
from phrase_rescore.files.blocks import read_rows
from phrase_rescore.files.inputs import open_plain
from phrase_rescore.files.outputs import Writable

NULL = b"<null>"
_SIZES = (
    b"ngram_size", b"input_vocab_size", b"output_vocab_size", b"input_embedding_dimension", b"num_hidden",
    b"output_embedding_dimension",
)  # fmt: skip
_WORDS = (b"\\input_vocab", b"\\output_vocab")
_MATRICES = (
    b"\\input_embeddings", b"\\hidden_weights 1", b"\\hidden_biases 1", b"\\hidden_weights 2", b"\\hidden_biases 2",
    b"\\output_weights", b"\\output_biases",
)  # fmt: skip
_SEPARATORS = b" \t\n"  # a word with one of them cannot stand in the file


@dataclass(frozen=True)
class Nplm:
    """A model in NPLM's terms: sizes V words, E input embedding, H hidden, D output embedding, n order; float32."""

    words: tuple[bytes, ...]  # (V,) of both sides
    input_embeddings: NDArray[np.float32]  # (V, E)
    hidden_weights_1: NDArray[np.float32]  # (H, (n - 1) E)
    hidden_biases_1: NDArray[np.float32]  # (H,)
    hidden_weights_2: NDArray[np.float32]  # (D, H)
    hidden_biases_2: NDArray[np.float32]  # (D,)
    output_weights: NDArray[np.float32]  # (V, D)
    output_biases: NDArray[np.float32]  # (V,)

    @property
    def order(self) -> int:
        """The order n of its n-grams."""
        return int(self.hidden_weights_1.shape[1] // self.input_embeddings.shape[1]) + 1

    @property
    def matrices(self) -> tuple[NDArray[np.float32], ...]:
        """The matrices in the order of the file."""
        return (
            self.input_embeddings, self.hidden_weights_1, self.hidden_biases_1, self.hidden_weights_2, self.hidden_biases_2,
            self.output_weights, self.output_biases,
        )  # fmt: skip


def write_nplm(stream: Writable, model: Nplm) -> None:
    """Write a model. Raises RescoreError for a word that the format cannot have: NPLM would read it as none or as two."""
    if len(set(model.words)) < len(model.words):
        raise RescoreError("a word stands twice in the vocabulary, or is spelt like a mark of NPLM; train the model again")
    for word in model.words:
        if not word or any(byte in _SEPARATORS for byte in word):
            raise RescoreError(f"the word {shown(word)} cannot stand in a file of NPLM; train without it")
    (V, E), (H, _), (D, _) = model.input_embeddings.shape, model.hidden_weights_1.shape, model.hidden_weights_2.shape
    stream.write(b"\\config\nversion 1\n")
    for size in zip(_SIZES, (model.order, V, V, E, H, D), strict=True):
        stream.write(b"%b %d\n" % size)
    stream.write(b"activation_function rectifier\n\n")
    for title in _WORDS:
        stream.write(b"%b\n%b\n\n" % (title, b"\n".join(model.words)))
    for title, matrix in zip(_MATRICES, model.matrices, strict=True):
        stream.write(title + b"\n")
        for row in matrix.reshape(len(matrix), -1):
            stream.write(b" ".join([b"%.9g" % x for x in row.tolist()]) + b"\n")  # all digits of a float32
        stream.write(b"\n")
    stream.write(b"\\end\n")


def read_order(path: str) -> int:
    """Return the order of the model in a file of NPLM. Raises InputError for another file."""
    with open_plain(path) as stream:
        rows = [row.rstrip(b"\n") for row in islice(read_rows(stream), 9)]
        for row in rows[1:]:
            name, _, value = row.partition(b" ")
            if rows[0] == b"\\config" and name == b"ngram_size" and value.isdigit() and len(value) < 4:
                return int(value)
    raise InputError(path, "not a model of NPLM", "pass the file that export-lm wrote")
