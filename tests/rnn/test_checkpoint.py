import json
import math
import os
import struct
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from small_models import small_checkpoint

from phrase_rescore.errors import InputError, ModelError, OptionError
from phrase_rescore.nn.storage import atomic_directory
from phrase_rescore.rnn.checkpoint import load, save


@pytest.fixture
def model_dir(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    save(small_checkpoint(), str(path))
    return path


def test_what_is_saved_is_what_is_loaded(tmp_path, model_dir):
    original, loaded = small_checkpoint(), load(str(model_dir))
    assert loaded.src_vocab == original.src_vocab
    assert loaded.tgt_vocab == original.tgt_vocab
    assert loaded.unk_shares == original.unk_shares
    save(loaded, str(tmp_path))
    assert all((tmp_path / name).read_bytes() == (model_dir / name).read_bytes() for name in os.listdir(model_dir))
    for (name, a), (other, b) in zip(original.model.named_weights(), loaded.model.named_weights(), strict=True):
        assert name == other
        assert torch.equal(a, b), name


def test_the_signature_follows_weights_and_vocabulary(tmp_path, model_dir):
    other = small_checkpoint(seed=2)
    save(other, str(tmp_path))
    assert load(str(tmp_path)).signature != load(str(model_dir)).signature
    vocabulary = model_dir / "target.vocab"
    before = load(str(model_dir)).signature
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"t3\t", b"T3\t"))
    assert load(str(model_dir)).signature != before


@pytest.mark.parametrize(("src", "tgt", "swapped"), [
    ("t0 t0 t1 t2", "s0 s1 s2 s3", True), ("t0 t1 t2", "s0 s1 s2 s3", False),
    ("t0 t1 t2 q", "s0 s1 s2 s3", True), ("t0 t1 q q", "s0 s1 s2 s3", False),
])  # fmt: skip
def test_swapped_sides_are_refused(src, tgt, swapped):
    """Four words of a side tell, if less than half of them are unknown to the other side; of a word the factor counts."""
    forms = ("{0}|{1}", src), ("{1}|{0}", tgt)
    sides = [[form.format(word, i).encode() for i, word in enumerate(side.split())] for form, side in forms]
    with pytest.raises(InputError, match="^table: ") if swapped else nullcontext():
        replace(small_checkpoint(), factors=(0, 1)).refuse_swapped("table", *sides)


def refusal(directory):
    with pytest.raises(ModelError) as raised:
        load(str(directory))
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500
    return str(raised.value)


def edited(path, **changes):
    config = json.loads((path / "config.json").read_text())
    for key, value in changes.items():
        inner, keys = config, key.split("__")
        for part in keys[:-1]:
            inner = inner[part]
        inner[keys[-1]] = value
    (path / "config.json").write_text(json.dumps(config))


HUGE = 10**12


@pytest.mark.parametrize(("changes", "message"), [
    ({"format_version": 2}, "format_version 2"),
    ({"kind": "feedforward-lm"}, "a model of text, made by train-lm; this takes a model of phrase pairs, made by train"),
    ({"encoder__cell": "lstm"}, '"cell": "lstm"'),
    ({"encoder__cell": "gru"}, "knows cell gru or lstm or rnn, layers 1 to 16, encoder forward or"),
    ({"encoder__direction": "bidirectional"}, "tensor encoder.V: config.json says ([7, 14]"),
    ({"encoder__direction": "bidirectional", "encoder__source_order": "reversed"}, '"source_order": "reversed"'),
    ({"encoder__layers": True}, '"layers": true'), ({"decoder__layers": 2}, '"layers": 2'),
    ({"inverse": "yes"}, 'inverse "yes" is not true or false'),
    ({"factors__source": -1}, 'factors {"source": -1'), ({"factors__target": 10**10}, '"target": 10000000000}'),
    ({"factors": {"source": None}}, 'factors {"source": null}'), ({"sizes__hidden": 8}, "config.json says ([8, 8]"),
    ({"sizes__depth": 1}, "'sizes' is incomplete or has unknown entries"),
    ({"format_version": True}, "format_version true, but"), ({"kind": float("nan")}, "kind NaN, but"),
    ({"sizes__hidden": 7.0}, "sizes.hidden is 7.0"), ({"sizes__hidden": True}, "sizes.hidden is true"),
    ({"sizes__hidden": HUGE}, "'sizes' need more numbers"), ({"sizes__hidden": 10**30}, "'sizes' need more numbers"),
    ({"sizes__src_vocabulary": 10**17}, "source.vocab: 12 ids where config.json says 100000000000000000; files of two"),
    ({"unk_share__source": "0.1"}, "'unk_share' is"), ({"unk_share__source": -0.1}, "'unk_share' is"),
    ({"unk_share__target": float("nan")}, "'unk_share' is"),
    ({"weights": 3}, "'weights' are"), ({"weights__dtype": "bfloat16"}, "'weights' are"),
    ({"weights__files": ["../model-00001-of-00001.safetensors"]}, "'weights' are"), ({"weights__files": []}, "'weights' are"),
])  # fmt: skip
def test_an_unknown_value_is_a_clear_error(model_dir, changes, message):
    edited(model_dir, **changes)
    assert message in refusal(model_dir)


@pytest.mark.parametrize(("text", "message"), [
    ("[" * 100_000, "not JSON ("),  # too deep for the parser, as this version of Python says it
    ("[" * 500 + "]" * 500, "not JSON (nested more than 32 deep)"),
    ('{"format_version": ' + '{"a":' * 900 + "1" + "}" * 901, "not JSON (nested more than 32 deep)"),
    ('{"format_version": ' + "9" * 5000 + "}", "not JSON (Exceeds the limit"),
    ("\xff", "not JSON ("), ("", "not JSON (Expecting value"), ("[]", "has no format_version; name"),
])  # fmt: skip
def test_a_config_that_cannot_be_read_is_refused(model_dir, text, message):
    (model_dir / "config.json").write_bytes(text.encode("latin-1"))
    assert message in refusal(model_dir)


def rewritten(path, change):
    """Passes a file of weights through ``change``: (header, numbers) to the same."""
    weights = next(path.glob("*.safetensors"))
    data = weights.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, numbers = change(json.loads(data[8 : 8 + length]), data[8 + length :])
    text = json.dumps(header).encode()
    weights.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


def with_entry(name, **entry):
    return lambda header, numbers: ({**header, name: {**header.get(name, {}), **entry}}, numbers)


@pytest.mark.parametrize(("change", "message"), [
    (with_entry("encoder.V", dtype="I32"), "the weights ([7, 7], torch.int32)"),
    (with_entry("encoder.V", shape=[49]), "the weights ([49], torch.float32)"),
    (with_entry("encoder.V", shape=[HUGE, HUGE]), "the model is damaged"),
    (with_entry("encoder.V", shape=[0, 2**63], data_offsets=[0, 0]), "the model is damaged"),
    (with_entry("\x1b[31m", dtype="F32", shape=[0], data_offsets=[0, 0]), r"tensor \x1b[31m: config.json says no such tensor"),
    (lambda header, numbers: (header, numbers[:-1]), "the model is damaged, train or copy it again"),
    (lambda header, numbers: (header, numbers + b"abcd"), "the model is damaged, train or copy it again"),
    (lambda header, numbers: ([], numbers), "the model is damaged, train or copy it again"),
])  # fmt: skip
def test_malformed_weights_are_refused(model_dir, change, message):
    rewritten(model_dir, change)
    assert message in refusal(model_dir)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, number):
    made = small_checkpoint()
    made.model.decoder.G_l[3, 1] = number
    save(made, str(tmp_path))
    assert refusal(tmp_path).startswith(f"{tmp_path}: tensor output.G_l has NaN or infinite numbers")


@pytest.mark.parametrize("name", ["config.json", "target.vocab", "model-00001-of-00001.safetensors"])
def test_pipes_and_devices_are_not_read(model_dir, name):
    """A reader of a pipe that nobody writes to waits for ever."""
    path = model_dir / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ModelError, match=f"{name} is not a regular file"):
        load(str(model_dir))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ModelError, match=f"{name} is not a regular file"):
        load(str(model_dir))


def test_a_model_on_its_way_to_be_replaced_is_told(model_dir):
    """A kill between two renames leaves it under another name, until the same training is run again."""
    model_dir.rename(model_dir.parent / ".model.old")
    found = f"a run that replaced it was killed; run it again, or give {model_dir.parent}/.model.old its name back"
    with pytest.raises(ModelError, match=f"{model_dir}: no such model directory; {found}"):
        load(str(model_dir))


def test_an_interrupted_training_in_the_place_of_a_model_is_named(tmp_path):
    for there in (False, True):
        with pytest.raises(ModelError, match="no such model directory") as caught:
            load(f"{tmp_path}/m")
        assert ("--resume" in str(caught.value)) == there
        (tmp_path / "m.training").mkdir(exist_ok=True)


def test_a_model_is_replaced_only_when_asked(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    save(small_checkpoint(), str(target))
    with pytest.raises(OptionError, match="holds a model already; .*--overwrite"), atomic_directory(str(target)):
        pass
    with atomic_directory(str(target), overwrite=True) as directory:
        save(small_checkpoint(seed=2), directory)
    assert os.listdir(tmp_path) == ["model"]
