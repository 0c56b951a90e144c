"""Every cell, depth and encoder: by hand, against torch's own, against the oracle; however pairs are batched."""

import math
from dataclasses import asdict, astuple

import numpy as np
import pytest
import torch
from oracle import log_prob, word_log_probs
from small_models import by_the_oracle, encoded, phrases_of, random_pairs, scores_of, small_checkpoint, structure, weights
from structures import every_structure

from phrase_rescore.data.ragged import Ragged
from phrase_rescore.nn.packed import PackedSequences, pack_pairs
from phrase_rescore.nn.shared_scoring import SharedScoring
from phrase_rescore.nn.storage import numbers_of
from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.rnn.model import Model
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.scorer import PhraseEncoder, Scorer


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
    unigram = -torch.arange(1.0, 1.0 + len(model.decoder.b_G))
    for paper in (True, False):
        initialise(model, 3, paper=paper, unigram=unigram.tolist())
        drawn = []
        for name, weight in model.named_weights():
            letter = name.rpartition(".")[2]
            if letter.startswith("U"):
                assert torch.allclose(weight @ weight.T, torch.eye(7), atol=1e-5), name
            elif letter.startswith("b"):
                expected = torch.full_like(weight, float(letter == "b_f"))
                assert torch.equal(weight, unigram if letter == "b_G" and not paper else expected), name
            else:
                drawn.append(weight.flatten() / (0.01 if paper else weight.shape[1] ** -0.5))
        assert torch.cat(drawn).std() == pytest.approx(1.0, rel=0.1)


def test_paper_preset_has_the_paper_s_sizes_and_parameter_count():
    paper = PRESETS["paper"]
    structure, sizes = ("gru", 1, "forward"), (1000, 100, 500, 100)
    assert astuple(paper.network) == (*structure, *sizes)
    assert (paper.pairs.shortlist, paper.recipe.batch_size) == (15_000, 64)
    assert (paper.recipe.optimizer, paper.recipe.objective) == ("adadelta", "sum")
    with torch.device("meta"):
        model = RNNEncoderDecoder(ModelConfig(15_002, 15_002, **asdict(paper.network)))
    assert numbers_of(model) == 18_250_600 + 24_002, "weights and biases, with 15,000 words + UNK + EOS a side"


def test_by_hand_with_all_weights_zero_every_word_is_equally_likely():
    model = RNNEncoderDecoder(ModelConfig(4, 8, 2, 2, 2, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    loss = model(*pack_pairs(encoded([([2], [3, 4])])))
    assert loss.item() == pytest.approx(3 * math.log(8))  # two words and EOS, eight symbols


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 3, 50])
def test_batches_change_nothing_beyond_rounding(batch):
    scorer, pairs = Scorer(small_checkpoint()), encoded(random_pairs(200))
    whole = scorer.log_probs(pairs)
    scorer.sharing.batch = batch
    np.testing.assert_allclose(scorer.log_probs(pairs), whole, atol=1e-5)


def test_a_batch_of_long_pairs_has_fewer(monkeypatch):
    """Memory grows with the words of a batch. One pair is scored however long it is."""
    monkeypatch.setattr("phrase_rescore.nn.shared_scoring.BATCH_WORDS", 3)
    scorer, sizes, score = Scorer(small_checkpoint()), [], SharedScoring._together
    scorer.sharing.batch = 8
    monkeypatch.setattr(SharedScoring, "_together", lambda sharing, pairs: sizes.append(pairs) or score(sharing, pairs))
    scorer.log_probs(encoded([*random_pairs(60), ([2] * 30, [3])]))
    words = [len(pairs.src.ids) + len(pairs.tgt.ids) for pairs in sizes]
    assert max(words[:-1]) <= 24 < words[-1]
    assert len(sizes[-1]) == 1


def test_next_word_probabilities_sum_to_one():
    """Over all symbols after a prefix: those of every word (UNK included), and that of ending there."""
    checkpoint = small_checkpoint()
    K, prefix = len(checkpoint.tgt_vocab), [3, 1]
    pairs = [([2, 4], [*prefix, word]) for word in range(1, K)] + [([2, 4], prefix)]
    flat, offsets = Scorer(checkpoint).word_log_probs(encoded(pairs))
    after_prefix = [flat[offsets[i] + len(prefix)] for i in range(len(pairs))]
    assert sum(np.exp(after_prefix)) == pytest.approx(1.0, abs=1e-5)


def test_scoring_phrases_as_bytes():
    checkpoint = small_checkpoint()
    got = scores_of(Scorer(checkpoint), [(b"s0 s3", b"t2 nobody knows"), (b"s1", b"t0")])
    expected = [log_prob(weights(checkpoint), *pair) for pair in (([2, 5], [4, 1, 1]), ([3], [2]))]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert scores_of(Scorer(checkpoint), []).shape == (0,)
    in_bf16 = scores_of(Scorer(checkpoint, precision="bf16"), [(b"s1", b"t0")])
    assert got[1] != in_bf16[0] == pytest.approx(Model(checkpoint, precision="bf16").score([b"s1"], [b"t0"])[0], rel=1e-6)
