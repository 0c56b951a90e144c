"""log p(target | source) of phrase-table rows by nothing but NumPy and the files of a model directory (docs/model.md).

Usage: python docs/score_by_hand.py MODEL_DIR < rows
Prints for every row of standard input: log p (natural logarithm, EOS included), TAB, number of unknown words predicted.
Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder …", EMNLP 2014 (arXiv 1406.1078), appendix A."""

import json
import sys
from pathlib import Path

import numpy as np

EOS, UNK, FIRST_WORD = 0, 1, 2  # ids; line i (from 1) of a vocabulary file has id i + 1


def read_tensors(path):
    """A safetensors file: length of the header (8 bytes, little-endian), header (JSON), numbers (row-major)."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in entry["data_offsets"])  # counted from the end of the header
            yield name, np.frombuffer(data[begin:end], "<f4").astype(np.float64).reshape(entry["shape"])


def read_vocabulary(path):
    """word -> id; a line is a word as raw bytes, a tab and a count."""
    return {line.split(b"\t")[0]: id for id, line in enumerate(path.read_bytes().split(b"\n")[:-1], FIRST_WORD)}


def sigmoid(x):
    return (1 + np.tanh(x / 2)) / 2  # = 1 / (1 + exp(-x)), without overflow


def log_prob(enc, dec, src, tgt):
    """log p(tgt | src) of two lists of ids. ``enc`` and ``dec`` have the weights by the names of the paper."""
    h = np.zeros(len(enc["U"]))  # h_0 = 0
    for word in [*src, EOS]:
        e = enc["embedding"][word]
        z = sigmoid(enc["W_z"] @ e + enc["U_z"] @ h + enc["b_z"])  # update gate, eq. 6
        r = sigmoid(enc["W_r"] @ e + enc["U_r"] @ h + enc["b_r"])  # reset gate, eq. 5
        new = np.tanh(enc["W"] @ e + enc["U"] @ (r * h) + enc["b"])  # candidate, eq. 8: r before the product
        h = z * h + (1 - z) * new  # eq. 7
    c = np.tanh(enc["V"] @ h + enc["b_V"])  # the summary of the source
    h = np.tanh(dec["V"] @ c + dec["b_V"])  # h'_0
    e = np.zeros(dec["embedding"].shape[1])  # e(y_0) = 0
    total = 0.0
    for word in [*tgt, EOS]:
        z = sigmoid(dec["W_z"] @ e + dec["U_z"] @ h + dec["C_z"] @ c + dec["b_z"])
        r = sigmoid(dec["W_r"] @ e + dec["U_r"] @ h + dec["C_r"] @ c + dec["b_r"])
        new = np.tanh(dec["W"] @ e + dec["b"] + r * (dec["U"] @ h + dec["C"] @ c))  # r after the product, on C c too
        h = z * h + (1 - z) * new  # h'_t
        s = dec["O_h"] @ h + dec["O_y"] @ e + dec["O_c"] @ c + dec["b_O"]  # s', 2 M numbers
        s = np.maximum(s[0::2], s[1::2])  # maxout: a unit takes the larger of two neighbours
        logits = dec["G_l"] @ (dec["G_r"] @ s) + dec["b_G"]
        total += logits[word] - logits.max() - np.log(np.exp(logits - logits.max()).sum())  # log softmax
        e = dec["embedding"][word]
    return total


def main(model_dir, rows):
    config = json.loads((model_dir / "config.json").read_bytes())
    kind = config["format_version"], *config["encoder"].values(), *config["decoder"].values()
    assert kind == (1, "cho-gru-reset-before", 1, "forward", "forward", "cho-gru-reset-after", 1), f"another kind: {kind}"
    tensors = dict(t for file in config["weights"]["files"] for t in read_tensors(model_dir / file))
    enc = {name.split(".")[-1]: weight for name, weight in tensors.items() if name.startswith("encoder.")}
    dec = {name.split(".")[-1]: weight for name, weight in tensors.items() if not name.startswith("encoder.")}
    order = -1 if config["inverse"] else 1  # the side read comes first
    names = enumerate(("source", "target")[::order])
    sides = [(i, read_vocabulary(model_dir / f"{side}.vocab"), config["factors"][side]) for i, side in names]
    for row in rows:
        fields = [field.replace(b"\t", b" ").strip(b" \r\n").split(b" ") for field in row.split(b"|||")[:2][::order]]
        src, tgt = ([ids.get(w if k is None else w.split(b"|")[k], UNK) for w in fields[i] if w] for i, ids, k in sides)
        print(f"{log_prob(enc, dec, src, tgt):.12g}\t{tgt.count(UNK)}")


main(Path(sys.argv[1]), sys.stdin.buffer)
