"""Reads NPLM's text format and computes what Moses takes from it, in NumPy, float64. Written from NPLM's source.

src/model.cpp (read, readConfig), src/util.h (readMatrix), src/util.cpp (splitBySpace), src/vocabulary.h, src/neuralLM.h
(lookup_ngram) and src/neuralNetwork.h (lookup_ngram without normalization).
"""

from itertools import takewhile

import numpy as np


class NplmModel:
    def __init__(self, data: bytes) -> None:
        lines = iter(data.split(b"\n"))
        self.sections: dict[bytes, list[bytes]] = {}
        for line in lines:
            if line == b"\\end":
                break
            if line:
                self.sections[line] = list(takewhile(bool, lines))
        config = dict(line.split(b" ") for line in self.sections[b"\\config"])
        assert config.pop(b"version") == b"1"
        assert config.pop(b"activation_function") == b"rectifier"
        sizes = {name: int(value) for name, value in config.items()}
        self.order = sizes.pop(b"ngram_size")
        V, E, D = (
            sizes.pop(b"input_vocab_size"),
            sizes.pop(b"input_embedding_dimension"),
            sizes.pop(b"output_embedding_dimension"),
        )
        U, H = sizes.pop(b"output_vocab_size"), sizes.pop(b"num_hidden")
        assert not sizes
        self.words = self.sections[b"\\input_vocab"]
        assert self.sections[b"\\output_vocab"] == self.words  # ids of one side are looked up in the other
        assert U == V == len(self.words) == len(set(self.words))
        assert not any(set(word) & set(b" \t") for word in self.words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.embeddings = self.matrix(b"\\input_embeddings", V, E)
        self.hidden = [
            (self.matrix(b"\\hidden_weights 1", H, (self.order - 1) * E), self.matrix(b"\\hidden_biases 1", H, 1)[:, 0]),
            (self.matrix(b"\\hidden_weights 2", D, H), self.matrix(b"\\hidden_biases 2", D, 1)[:, 0]),
        ]
        self.output = self.matrix(b"\\output_weights", V, D), self.matrix(b"\\output_biases", V, 1)[:, 0]

    def matrix(self, title: bytes, rows: int, columns: int) -> np.ndarray:
        found = np.array([[np.float32(number) for number in line.split()] for line in self.sections[title]], np.float64)
        assert found.shape == (rows, columns), title
        return found

    def id(self, word: bytes) -> int:
        return self.ids.get(word, self.ids[b"<unk>"])

    def score(self, ngram: list[bytes]) -> float:
        """Return the score of an n-gram's last word; a shorter one is filled up as lookup_ngram does."""
        ids = [self.id(word) for word in ngram]
        fill = ids[0] if ngram[0] == b"<s>" else self.ids[b"<null>"]
        ids = [fill] * (self.order - len(ids)) + ids
        x = np.concatenate([self.embeddings[i] for i in ids[:-1]])
        for weights, biases in self.hidden:
            x = np.maximum(weights @ x + biases, 0.0)
        return float(self.output[0][ids[-1]] @ x + self.output[1][ids[-1]])
