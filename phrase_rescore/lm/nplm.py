"""The text format of NPLM (https://github.com/moses-smt/nplm, src/model.cpp), which Moses' feature NeuralLM reads.

A file has sections, each ended by an empty line: ``\\config``, the words of both sides, the matrices a row a line.

    p(w) ∝ exp(output_weights · h_2 + output_biases)
    h_2 = r(hidden_weights 2 · h_1 + hidden_biases 2)      r(x) = max(0, x)
    h_1 = r(hidden_weights 1 · (e_1, …, e_{n-1}) + hidden_biases 1), e_1 the input embedding of the oldest word

Moses pads with ``<s>`` before a sentence, and with ``<null>`` where it does not know what stands before a phrase. It takes
scores as they are, without dividing by their sum (moses/LM/NeuralLMWrapper.cpp), and as natural logs.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import InputError, RescoreError, shown
from phrase_rescore.files.inputs import open_plain, read_rows
from phrase_rescore.files.outputs import Writable
from phrase_rescore.lm.arpa import END, START, UNKNOWN

if TYPE_CHECKING:
    from phrase_rescore.lm.checkpoint import LanguageModel

NULL = b"<null>"
_SEPARATORS = b" \t\n"  # a word with one of them cannot stand in the file
_NEVER = -100.0  # the score of what is never predicted: Moses' floor of log-probabilities


def write_nplm(stream: Writable, lm: LanguageModel) -> None:
    """Write a model: its words by our ids, then the start of a sentence and the missing word.

    What stands before a sentence is EOS in our contexts. NPLM has one list of words for both sides: what is never predicted
    has a score that nothing chooses. Raises RescoreError for a word that NPLM would read as none or as two.
    """
    words = (END, UNKNOWN, *lm.vocab.words, START, NULL)
    if len(set(words)) < len(words):
        raise RescoreError("a word stands twice in the vocabulary, or is spelt like a mark of NPLM; train the model again")
    for word in words:
        if not word or any(byte in _SEPARATORS for byte in word):
            raise RescoreError(f"the word {shown(word)} cannot stand in a file of NPLM; train without it")
    config, V = lm.model.config, len(words)
    sizes = {
        b"ngram_size": config.order, b"input_vocab_size": V, b"output_vocab_size": V,
        b"input_embedding_dimension": config.embedding, b"num_hidden": config.hidden,
        b"output_embedding_dimension": config.output,
    }  # fmt: skip
    weights = {name: weight.detach().float().cpu().numpy() for name, weight in lm.model.named_weights()}
    embeddings, G = weights["embedding"], lm.model.G.detach().float().cpu().numpy()
    matrices = {
        b"\\input_embeddings": np.concatenate((embeddings[:-1], embeddings[EOS : EOS + 1], embeddings[-1:])),
        b"\\hidden_weights 1": weights["U"],
        b"\\hidden_biases 1": weights["b_1"],
        b"\\hidden_weights 2": weights["W"],
        b"\\hidden_biases 2": weights["b_2"],
        b"\\output_weights": np.concatenate((G, np.zeros((2, G.shape[1]), np.float32))),
        b"\\output_biases": np.concatenate((weights["b_G"], np.full(2, _NEVER, np.float32))),
    }
    stream.write(b"\\config\nversion 1\n" + b"".join(b"%b %d\n" % size for size in sizes.items()))
    stream.write(b"activation_function rectifier\n\n")
    for title in (b"\\input_vocab", b"\\output_vocab"):
        stream.write(b"%b\n%b\n\n" % (title, b"\n".join(words)))
    for title, matrix in matrices.items():
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
