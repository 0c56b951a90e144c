"""The model in NumPy float64 with plain loops, written from the equations alone: the judge of every fast path.

``weights``: name -> array. Ids are lists; EOS is id 0. A state is (h, m), whose m only an LSTM has.
"""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def encoder_gru(w, x, state):
    h, _ = state
    z = sigmoid(w("W_z") @ x + w("U_z") @ h + w("b_z"))
    r = sigmoid(w("W_r") @ x + w("U_r") @ h + w("b_r"))
    candidate = np.tanh(w("W") @ x + w("U") @ (r * h) + w("b"))
    return z * h + (1 - z) * candidate, None


def decoder_gru(w, x, state, c):
    h, _ = state
    z = sigmoid(w("W_z") @ x + w("U_z") @ h + w("C_z") @ c + w("b_z"))
    r = sigmoid(w("W_r") @ x + w("U_r") @ h + w("C_r") @ c + w("b_r"))
    candidate = np.tanh(w("W") @ x + w("b") + r * (w("U") @ h + w("C") @ c))
    return z * h + (1 - z) * candidate, None


def lstm(w, x, state, c=None):
    h, m = state

    def gate(name):
        from_summary = 0.0 if c is None else w(f"C_{name}") @ c
        return w(f"W_{name}") @ x + w(f"U_{name}") @ h + from_summary + w(f"b_{name}")

    m = sigmoid(gate("f")) * m + sigmoid(gate("i")) * np.tanh(gate("g"))
    return sigmoid(gate("o")) * np.tanh(m), m


def tanh_rnn(w, x, state, c=None):
    h, _ = state
    from_summary = 0.0 if c is None else w("C") @ c
    return np.tanh(w("W") @ x + w("U") @ h + from_summary + w("b")), None


ENCODER_CELLS = {"gru": encoder_gru, "lstm": lstm, "rnn": tanh_rnn}
DECODER_CELLS = {"gru": decoder_gru, "lstm": lstm, "rnn": tanh_rnn}


def last_output(w, words, cell, layers, direction):
    """The uppermost h after the last of the words."""
    H = len(w["encoder.V"])
    states = [(np.zeros(H), np.zeros(H)) for _ in range(layers)]
    for word in words:
        x = w["encoder.embedding"][word]
        for n in range(layers):
            states[n] = ENCODER_CELLS[cell](lambda name, n=n: w[f"encoder.layer{n}.{direction}.{name}"], x, states[n])
            x = states[n][0]
    return x


def summary(weights, source, cell="gru", layers=1, encoder="forward"):
    """c = tanh(V h), h being the state after EOS: of the source read forwards, from its end, or both."""
    w = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    forwards, backwards = [*source, 0], [*source[::-1], 0]
    if encoder == "bidirectional":
        forth, back = (forwards, "forward"), (backwards, "backward")
        h = np.concatenate([last_output(w, words, cell, layers, direction) for words, direction in (forth, back)])
    else:
        h = last_output(w, forwards if encoder == "forward" else backwards, cell, layers, "forward")
    return np.tanh(w["encoder.V"] @ h + w["encoder.b_V"])


def word_log_probs(weights, source, target, cell="gru", layers=1, encoder="forward"):
    """log p of each target word and of EOS (id 0) for one pair of id lists."""
    w = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    c = summary(weights, source, cell, layers, encoder)
    states = []
    for n in range(layers):
        m = w[f"decoder.layer{n}.forward.V"] @ c + w[f"decoder.layer{n}.forward.b_V"]
        states.append((np.tanh(m), m))
    e = np.zeros(w["decoder.embedding"].shape[1])
    result = []
    for word in [*target, 0]:
        x = e
        for n in range(layers):
            states[n] = DECODER_CELLS[cell](lambda name, n=n: w[f"decoder.layer{n}.forward.{name}"], x, states[n], c)
            x = states[n][0]
        deep = w["output.O_h"] @ x + w["output.O_y"] @ e + w["output.O_c"] @ c + w["output.b_O"]
        s = np.array([max(deep[2 * i], deep[2 * i + 1]) for i in range(len(deep) // 2)])
        logits = w["output.G_l"] @ (w["output.G_r"] @ s) + w["output.b_G"]
        top = max(logits)
        log_z = top + np.log(sum(np.exp(logit - top) for logit in logits))
        result.append(logits[word] - log_z)
        e = w["decoder.embedding"][word]
    return np.array(result)


def log_prob(weights, source, target, cell="gru", layers=1, encoder="forward"):
    return word_log_probs(weights, source, target, cell, layers, encoder).sum()
