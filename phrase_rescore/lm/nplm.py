r"""A language model in NPLM's text format (github.com/moses-smt/nplm, src/model.cpp), which Moses' feature NeuralLM reads.

Sections end with an empty line: ``\config``, the words of both sides, the matrices a row a line.

    p(w) ∝ exp(output_weights · h_2 + output_biases)
    h_2 = r(hidden_weights 2 · h_1 + hidden_biases 2)      r(x) = max(0, x)
    h_1 = r(hidden_weights 1 · (e_1, …, e_{n-1}) + hidden_biases 1), e_1 the input embedding of the oldest word

Moses pads with ``<s>`` before a sentence, and with ``<null>`` where it does not know what stands before a phrase. It takes
scores as they are, without dividing by their sum (moses/LM/NeuralLMWrapper.cpp), and as natural logs.
"""

import os
from typing import BinaryIO

import numpy as np

from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import RescoreError
from phrase_rescore.files.outputs import asks_for_gzip, atomic_output
from phrase_rescore.files.paths import Path
from phrase_rescore.lm.checkpoint import LanguageModel, load, warnings
from phrase_rescore.messages import Say, shown, silent
from phrase_rescore.moses.text import END, START

UNKNOWN, NULL = b"<unk>", b"<null>"


def export_lm(lm: Path, out: Path, *, warn: Say = silent) -> str:
    """Write a model as ``phrase-rescore export-lm`` does; return a line of the report. Raises ModelError, OptionError."""
    out = os.fspath(out)
    asks_for_gzip(out, "NPLM reads plain text", read_gzip=False)
    model = load(os.fspath(lm))
    for warning in warnings(model, lower_orders=True):
        warn(warning)
    with atomic_output(out) as output:
        write_nplm(output, model)
    return f"{out}: NeuralLM factor=0 name=CSLM0 order={model.model.config.order} path={out}"


def write_nplm(stream: BinaryIO, lm: LanguageModel) -> None:
    """Write a model: words by our ids, the start of a sentence, the missing word. Raises RescoreError for an odd word."""
    words = (END, UNKNOWN, *lm.vocab.words, START, NULL)
    if len(set(words)) < len(words):
        raise RescoreError("the vocabulary has a word twice, or one spelt like a mark of NPLM; train the model again")
    for word in words:
        if not word or any(byte in b" \t\n" for byte in word):
            raise RescoreError(f"NPLM's format cannot write the word {shown(word)}; train without it")
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
        b"\\output_biases": np.concatenate((weights["b_G"], np.full(2, -100.0, np.float32))),  # never predicted: Moses' floor
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
