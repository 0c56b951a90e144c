import io
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nplm_reader import NplmModel
from small_models import disturb_weights

from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.errors import ModelError, RescoreError
from phrase_rescore.lm.checkpoint import LanguageModel, load, save
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes, initialise
from phrase_rescore.lm.nplm import write_nplm

WORDS = Vocabulary((b"the", b"house", "maïs".encode(), b"\xff\r", b"</S>", b"&quot;"), (9, 5, 3, 2, 1, 1))
SIZES = {"vocabulary": 8, "order": 7, "embedding": 5, "hidden": 12, "output": 9}


def small(tied: bool = False) -> LanguageModel:
    model = FeedforwardLM(LanguageModelSizes(**SIZES | ({"output": 5, "tied": True} if tied else {})))
    initialise(model, 4, paper=False, unigram=np.log(np.arange(1, 9) / 36).tolist())
    disturb_weights(model, 2, 0.3)
    return LanguageModel(model.requires_grad_(False), WORDS, 0.25, {"steps": 3})


@pytest.fixture
def lm_dir(tmp_path: Path) -> Path:
    save(small(), str(tmp_path))
    return tmp_path


def test_what_is_saved_is_what_is_loaded(lm_dir):
    original, loaded = small(), load(str(lm_dir))
    assert (loaded.vocab, loaded.unk_share, loaded.training) == (original.vocab, 0.25, {"steps": 3})
    for (name, a), (other, b) in zip(original.model.named_weights(), loaded.model.named_weights(), strict=True):
        assert name == other
        assert torch.equal(a, b), name
    assert sorted(os.listdir(lm_dir)) == ["config.json", "model-00001-of-00001.safetensors", "words.vocab"]
    assert loaded.signature.startswith("feedforward-lm|order:7|embedding:5|hidden:12|output:9|tied:False|words:6|model:")


def test_a_tied_model_is_saved_without_output_embeddings(tmp_path):
    original = small(tied=True)
    save(original, str(tmp_path))
    loaded = load(str(tmp_path))
    assert [name for name, _ in loaded.model.named_weights()] == ["embedding", "U", "b_1", "W", "b_2", "b_G"]
    assert torch.equal(loaded.model.G, original.model.embedding[:8])
    assert "output:5|tied:True|" in loaded.signature


@pytest.mark.parametrize(("entries", "message"), [
    ({"activation": "tanh"}, 'activation "tanh", but this version of phrase-rescore knows "rectifier"'),
    ({"unk_share": None}, "'unk_share' is missing or not a number from 0 to 1"),
    ({"unk_share": 1.5}, "'unk_share' is missing"),
    ({"sizes": SIZES | {"vocabulary": 9}}, "8 ids where config.json says 9"),
    ({"sizes": SIZES | {"order": 1}}, "sizes.order is 1, but an n-gram has at least 2 words"),
    ({"sizes": SIZES | {"tied": True}}, "sizes.tied, but sizes.output is not sizes.embedding"),
    ({"sizes": SIZES | {"output": 5, "tied": True}}, "tensor G: config.json says no such tensor"),
    ({"sizes": SIZES | {"tied": 1}}, "sizes.tied is 1, not true or false"),
])  # fmt: skip
def test_what_contradicts_itself_is_refused(lm_dir, entries, message):
    config = lm_dir / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | entries))
    with pytest.raises(ModelError, match=message) as raised:
        load(str(lm_dir))
    assert str(raised.value).count("the model is damaged") <= 1


def exported(lm: LanguageModel) -> NplmModel:
    stream = io.BytesIO()
    write_nplm(stream, lm)
    return NplmModel(stream.getvalue())


def logits(lm: LanguageModel, context: list[int]) -> np.ndarray:
    hidden = lm.model.hidden(torch.tensor([context]))
    return (hidden @ lm.model.G.T + lm.model.b_G)[0].numpy()


@pytest.mark.parametrize("tied", [False, True])
def test_nplm_reads_the_same_scores(tied):
    lm = small(tied=tied)
    found = exported(lm)
    assert found.order == 7
    spelt = (b"</s>", b"<unk>", *WORDS.words)
    rng = np.random.default_rng(1)
    for _ in range(1000):
        words, before = rng.integers(1, 8, 7), rng.integers(0, 6)
        context = [0] * before + words[before:6].tolist()
        word = int(rng.integers(0, 8))
        ngram = [b"<s>"] * before + [spelt[i] for i in context[before:]] + [spelt[word]]
        assert found.score(ngram) == pytest.approx(logits(lm, context)[word], abs=1e-4)


def test_shorter_contexts_are_filled_as_moses_does():
    lm = small()
    found, missing = exported(lm), lm.model.config.missing
    assert found.score([b"the", b"house"]) == pytest.approx(logits(lm, [missing] * 5 + [2])[3], abs=1e-4)
    assert found.score([b"<s>", b"the", b"house"]) == pytest.approx(logits(lm, [0] * 5 + [2])[3], abs=1e-4)
    assert found.score([b"house"]) == pytest.approx(logits(lm, [missing] * 6)[3], abs=1e-4)
    assert found.score([b"the", b"maize", b"</s>"]) == pytest.approx(logits(lm, [missing] * 4 + [2, 1])[0], abs=1e-4)


def test_a_word_that_the_format_cannot_have():
    for word in (b"", b"a b", b"a\tb", b"a\nb", b"house", b"</s>"):  # the last ones would stand there twice
        lm = replace(small(), vocab=replace(WORDS, words=(word, *WORDS.words[1:])))
        with pytest.raises(RescoreError):
            write_nplm(io.BytesIO(), lm)


def test_every_number_keeps_its_digits():
    lm = small()
    with torch.no_grad():
        lm.model.b_G.copy_(torch.tensor([1e-45, -1e-38, 3e38, 1 / 3, -0.0, 1e10, -123456.789, 16777217.0]))
    biases = exported(lm).output[1]
    assert biases[:8].astype(np.float32).tolist() == lm.model.b_G.tolist()
    assert biases[8:].tolist() == [-100.0, -100.0]  # <s> and <null> are never predicted
