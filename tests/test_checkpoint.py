import json
import os
import stat

import pytest
import torch
from models import encoded, random_pairs, small_checkpoint

from phrase_rescore.checkpoint import atomic_directory, load, save
from phrase_rescore.errors import ModelError, OptionError
from phrase_rescore.scoring import Scorer


@pytest.fixture
def model_dir(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    save(small_checkpoint(), str(path))
    return path


def test_what_is_saved_is_what_is_loaded(model_dir):
    original, loaded = small_checkpoint(), load(str(model_dir))
    assert loaded.src_vocab == original.src_vocab
    assert loaded.tgt_vocab == original.tgt_vocab
    assert loaded.unk_shares == original.unk_shares
    for (name, a), (other, b) in zip(original.model.named_weights(), loaded.model.named_weights(), strict=True):
        assert name == other
        assert torch.equal(a, b), name


def test_shards_hold_the_same_model(tmp_path, model_dir):
    save(small_checkpoint(), str(tmp_path), shard_size=400)
    files = sorted(name for name in os.listdir(tmp_path) if name.endswith(".safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert load(str(tmp_path)).signature == load(str(model_dir)).signature


def test_bfloat16_rounds_every_weight_to_eight_bits(tmp_path, model_dir):
    save(small_checkpoint(), str(tmp_path), dtype="bfloat16")
    loaded, original = load(str(tmp_path)), load(str(model_dir))
    for (_, a), (_, b) in zip(original.model.named_weights(), loaded.model.named_weights(), strict=True):
        assert torch.equal(a.bfloat16().float(), b)
    pairs = encoded(random_pairs(50))
    difference = abs(Scorer(loaded).log_probs(pairs) - Scorer(original).log_probs(pairs)).max()
    assert 0 < difference < 0.5


def test_the_same_model_gives_the_same_bytes(tmp_path, model_dir):
    save(small_checkpoint(), str(tmp_path))
    for name in os.listdir(model_dir):
        assert (tmp_path / name).read_bytes() == (model_dir / name).read_bytes(), name


def test_the_signature_follows_weights_and_vocabulary(tmp_path, model_dir):
    other = small_checkpoint(seed=2)
    save(other, str(tmp_path))
    assert load(str(tmp_path)).signature != load(str(model_dir)).signature
    vocabulary = model_dir / "target.vocab"
    before = load(str(model_dir)).signature
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"t3\t", b"T3\t"))
    assert load(str(model_dir)).signature != before


def edited(path, **changes):
    config = json.loads((path / "config.json").read_text())
    for key, value in changes.items():
        inner, keys = config, key.split("__")
        for part in keys[:-1]:
            inner = inner[part]
        inner[keys[-1]] = value
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format_version 2"),
        ({"kind": "language-model"}, 'kind "language-model"'),
        ({"encoder__cell": "lstm"}, '"cell": "lstm"'),
        ({"encoder__direction": "bidirectional"}, "bidirectional"),
        ({"decoder__layers": 2}, '"layers": 2'),
        ({"inverse": "yes"}, 'inverse "yes" is neither true nor false'),
        ({"factors__source": -1}, "factor -1 is no whole number from 0"),
        ({"factors__source": True}, "factor true is no whole number from 0"),
        ({"factors": {"source": None}}, "have no source and target"),
        ({"sizes__hidden": 8}, "shape"),
        ({"sizes__hidden": -1}, "sizes.hidden is -1"),
        ({"sizes__depth": 1}, "'sizes' is incomplete or has unknown entries"),
        ({"sizes__src_vocabulary": 99}, "source.vocab: 12 ids where config.json says 99"),
        ({"weights__dtype": "int8"}, "weights of type 'int8'"),
        ({"unk_share": {}}, "unk_share"),
    ],
)
def test_an_unknown_value_is_a_clear_error(model_dir, changes, message):
    edited(model_dir, **changes)
    with pytest.raises(ModelError) as raised:
        load(str(model_dir))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_and_damaged_files(model_dir):
    with pytest.raises(ModelError, match="no such model directory; make one with"):
        load(str(model_dir / "nothing"))
    weights = next(model_dir.glob("*.safetensors"))
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="model-00001-of-00001.safetensors: .*damaged"):
        load(str(model_dir))
    (model_dir / "config.json").write_text("{")
    with pytest.raises(ModelError, match="no JSON"):
        load(str(model_dir))
    (model_dir / "config.json").unlink()
    with pytest.raises(ModelError, match="is .* a model directory"):
        load(str(model_dir))


def test_a_model_directory_appears_complete_or_not_at_all(tmp_path):
    target = tmp_path / "model"
    with pytest.raises(RuntimeError), atomic_directory(str(target)) as directory:
        save(small_checkpoint(), directory)
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with atomic_directory(str(target)) as directory:
        save(small_checkpoint(), directory)
        assert not target.exists()
    assert os.listdir(tmp_path) == ["model"]
    load(str(target))
    assert stat.S_IMODE(os.stat(target / "config.json").st_mode) == stat.S_IMODE(
        os.stat(next(target.glob("*.safetensors"))).st_mode
    )


def test_a_model_is_replaced_only_when_asked(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    save(small_checkpoint(), str(target))
    with pytest.raises(OptionError, match="holds a model already; .*--overwrite"), atomic_directory(str(target)):
        pass
    with atomic_directory(str(target), overwrite=True) as directory:
        save(small_checkpoint(seed=2), directory)
    assert os.listdir(tmp_path) == ["model"]
    other = tmp_path / "other"
    other.mkdir()
    save(small_checkpoint(seed=2), str(other))
    assert load(str(target)).signature == load(str(other)).signature


def test_a_directory_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OptionError, match="is no model directory"), atomic_directory(str(tmp_path), overwrite=True):
        pass
    assert (tmp_path / "thesis.tex").exists()
