"""The model in NumPy float64 with plain loops, written from the equations alone: the judge of every fast path."""

from __future__ import annotations

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def summary(weights, source):
    """c = tanh(V h) of a list of ids, the state being the one after EOS (id 0)."""
    w = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}

    def enc(name):
        return w[f"encoder.layer0.forward.{name}"]

    h = np.zeros(len(enc("b")))
    for word in [*source, 0]:
        e = w["encoder.embedding"][word]
        z = sigmoid(enc("W_z") @ e + enc("U_z") @ h + enc("b_z"))
        r = sigmoid(enc("W_r") @ e + enc("U_r") @ h + enc("b_r"))
        candidate = np.tanh(enc("W") @ e + enc("U") @ (r * h) + enc("b"))
        h = z * h + (1 - z) * candidate
    return np.tanh(w["encoder.V"] @ h + w["encoder.b_V"])


def word_log_probs(weights, source, target):
    """log p of each target word and of EOS (id 0) for one pair of id lists. ``weights``: name -> float64 array."""
    w = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}

    def dec(name):
        return w[f"decoder.layer0.forward.{name}"]

    c = summary(weights, source)
    h = np.tanh(dec("V") @ c + dec("b_V"))
    e = np.zeros(w["decoder.embedding"].shape[1])
    result = []
    for word in [*target, 0]:
        z = sigmoid(dec("W_z") @ e + dec("U_z") @ h + dec("C_z") @ c + dec("b_z"))
        r = sigmoid(dec("W_r") @ e + dec("U_r") @ h + dec("C_r") @ c + dec("b_r"))
        candidate = np.tanh(dec("W") @ e + dec("b") + r * (dec("U") @ h + dec("C") @ c))
        h = z * h + (1 - z) * candidate
        deep = w["output.O_h"] @ h + w["output.O_y"] @ e + w["output.O_c"] @ c + w["output.b_O"]
        s = np.array([max(deep[2 * i], deep[2 * i + 1]) for i in range(len(deep) // 2)])
        logits = w["output.G_l"] @ (w["output.G_r"] @ s) + w["output.b_G"]
        top = max(logits)
        log_z = top + np.log(sum(np.exp(logit - top) for logit in logits))
        result.append(logits[word] - log_z)
        e = w["decoder.embedding"][word]
    return np.array(result)


def log_prob(weights, source, target):
    return word_log_probs(weights, source, target).sum()
