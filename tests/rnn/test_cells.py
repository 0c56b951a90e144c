"""Every cell, depth and encoder: by hand, against torch's own, against the oracle."""

import numpy as np
import pytest
import torch
from oracle import log_prob, word_log_probs
from small_models import by_the_oracle, encoded, phrases_of, random_pairs, small_checkpoint, structure, weights
from structures import every_structure

from phrase_rescore.cli.training import train
from phrase_rescore.data.ragged import Ragged
from phrase_rescore.errors import OptionError
from phrase_rescore.nn.cells import LSTM, RNN, ResetAfter, Stack
from phrase_rescore.nn.packed import PackedSequences, pack_pairs
from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.config import ENCODERS, TrainingConfig
from phrase_rescore.rnn.network import CELLS, initialise
from phrase_rescore.rnn.scorer import PhraseEncoder, Scorer


def filled(stack: Stack, seed: int = 0) -> Stack:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return stack.double()


# Where torch has the same thing: the order of its gates, as indices of ours
TORCHS = {LSTM: (torch.nn.LSTM, (0, 1, 3, 2)), RNN: (torch.nn.RNN, (0,)), ResetAfter: (torch.nn.GRU, (1, 0, 2))}


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("cell", TORCHS)
def test_stacks_are_torch_s_where_the_definitions_agree(cell: type, layers: int) -> None:
    """``ResetAfter`` without a summary is ``torch.nn.GRU`` whose bias within the reset gate is 0."""
    E, H, steps = 3, 5, 6
    stack = filled(Stack(cell, layers, E, H))
    make, order = TORCHS[cell]
    theirs = make(E, H, layers, batch_first=True).double()

    def turned(weight: torch.Tensor) -> torch.Tensor:
        return torch.cat([weight.split(H)[gate] for gate in order])

    with torch.no_grad():
        for n, layer in enumerate(stack.cells):
            getattr(theirs, f"weight_ih_l{n}").copy_(turned(layer.W))
            getattr(theirs, f"weight_hh_l{n}").copy_(turned(layer.U))
            getattr(theirs, f"bias_ih_l{n}").copy_(turned(layer.b))
            getattr(theirs, f"bias_hh_l{n}").zero_()
        x = torch.randn(2, steps, E, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        expected = theirs(x)[0]
        state = stack.empty(2)
        for t in range(steps):
            state = stack.step(stack.project(state), state, stack.word_rows(x[:, t]))
            torch.testing.assert_close(state[0], expected[:, t], atol=1e-12, rtol=0)


def test_a_bidirectional_encoder_is_torch_s() -> None:
    model = small_checkpoint(dtype=torch.float64, cell="lstm", encoder="bidirectional").model
    E, H, words = 5, 7, [2, 4, 3]
    theirs = torch.nn.LSTM(E, H, bidirectional=True).double()
    with torch.no_grad():
        for suffix, stack in zip(("", "_reverse"), model.encoder.stacks, strict=True):
            (cell,) = stack.cells
            for name, weight in (("weight_ih", cell.W), ("weight_hh", cell.U), ("bias_ih", cell.b)):
                i, f, o, g = weight.split(H)
                getattr(theirs, f"{name}_l0{suffix}").copy_(torch.cat((i, f, g, o)))
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
        e = model.encoder.embedding
        forth = theirs(e[[*words, 0]])[0][-1, :H]
        back = theirs(e[[0, *words]])[0][0, H:]  # torch reads this from its end: 3, 4, 2, EOS
        expected = torch.tanh(model.encoder.V @ torch.cat((forth, back)) + model.encoder.b_V)
        found = model.encoder(PackedSequences.of(Ragged.of([words]).with_eos()))
    torch.testing.assert_close(found[0], expected, atol=1e-12, rtol=0)


@every_structure
def test_scores_and_summaries_are_the_oracle_s(chosen: dict) -> None:
    """Prefixes and suffixes are shared, pairs repeat; in float32, and the scores of every word."""
    checkpoint, pairs = small_checkpoint(words=8, **chosen), random_pairs(60)
    given = structure(checkpoint)
    assert given == chosen
    flat, offsets = Scorer(checkpoint).word_log_probs(encoded(pairs))
    expected = [word_log_probs(weights(checkpoint), src, tgt, **given) for src, tgt in pairs]
    np.testing.assert_allclose(flat, np.concatenate(expected), atol=1e-4)
    assert len(offsets) == len(pairs) + 1
    phrases = [src for src, _ in phrases_of(checkpoint)]
    np.testing.assert_allclose(PhraseEncoder(checkpoint).vectors(phrases), by_the_oracle(checkpoint, phrases), atol=1e-4)


@every_structure
def test_the_training_loss_is_the_oracle_s_and_its_gradient_that_of_finite_differences(chosen: dict) -> None:
    checkpoint, pairs = small_checkpoint(dtype=torch.float64, **chosen), random_pairs(12)
    model, batch = checkpoint.model, pack_pairs(encoded(pairs))
    expected = -sum(log_prob(weights(checkpoint), src, tgt, **chosen) for src, tgt in pairs)
    assert model(*batch).item() == pytest.approx(expected, rel=1e-12)
    model.requires_grad_(True)
    model(*batch).backward()
    rng = np.random.default_rng(0)
    for name, parameter in model.named_parameters():
        place = tuple(int(rng.integers(n)) for n in parameter.shape)
        if name.endswith("embedding"):
            place = (3, place[1])  # a word that the batch has
        with torch.no_grad():
            values = []
            for step in (1e-5, -1e-5):
                kept = parameter[place].item()
                parameter[place] = kept + step
                values.append(model(*batch).item())
                parameter[place] = kept
        assert parameter.grad[place].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-6), name


@every_structure
def test_parameters_files_and_initial_weights(chosen: dict, tmp_path) -> None:
    checkpoint = small_checkpoint(**chosen)
    model = checkpoint.model
    assert sum(p.numel() for p in model.parameters()) == sum(weight.numel() for _, weight in model.named_weights())
    save(checkpoint, str(tmp_path))
    again = load(str(tmp_path))
    assert again.model.config == model.config
    for (name, weight), (other, loaded) in zip(model.named_weights(), again.model.named_weights(), strict=True):
        assert name == other
        assert torch.equal(weight, loaded)
    for paper in (True, False):
        initialise(model, 3, paper=paper)
        for name, weight in model.named_weights():
            letter = name.rpartition(".")[2]
            if letter.startswith("U"):
                assert torch.allclose(weight @ weight.T, torch.eye(7), atol=1e-5), name
            elif letter.startswith("b"):
                assert torch.equal(weight, torch.full_like(weight, float(letter == "b_f"))), name


@pytest.mark.parametrize(
    ("chosen", "says"),
    [({"cell": "elman"}, "--cell elman: no such cell; known are gru, lstm, rnn"),
     ({"encoder": "sideways"}, "--encoder sideways: no such encoder; known are forward, reversed, bidirectional")],
)  # fmt: skip
def test_unknown_structures(chosen: dict, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        TrainingConfig().override(**chosen)


def test_the_command_line_offers_all_of_them() -> None:
    offered = {option.name: list(option.type.choices) for option in train.params if option.name in ("cell", "encoder")}
    assert offered == {"cell": list(CELLS), "encoder": list(ENCODERS)}
