"""What is wrong with paths, files and settings is found before hours of reading: nothing is read, made or changed."""

import gzip
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from permissions import like_anybody
from small_trainings import Stopped, Training, small_training, write_language

from phrase_rescore.data import sorting
from phrase_rescore.errors import InputError, RescoreError
from phrase_rescore.training import pairs as pair_source
from phrase_rescore.training.config import Observer


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("donor")
    write_language(folder / "pairs.tsv", pairs=100)
    Training((str(folder / "pairs.tsv"),), str(folder / "model")).but(max_steps=1, hidden=8).run()
    return str(folder / "model")


Change = Callable[[Path, str], dict[str, Any]]
WRONG: dict[str, tuple[Change, str]] = {  # the paths themselves are checked by the command line: tests/cli/test_options.py
    "second input missing": (lambda at, _: {"inputs": (f"{at}/pairs.tsv", f"{at}/none.gz")}, "none.gz: No such file"),
    "scratch missing": (lambda at, _: {"scratch": f"{at}/none"}, "cannot write in .*none: No such file"),
    "no model to start from": (lambda at, _: {"init_from": f"{at}/none"}, "none: no such model directory"),
    "second input no table": (lambda at, _: {"inputs": (f"{at}/pairs.tsv", f"{at}/junk")}, "junk: looks like text"),
    "second input cut off": (lambda at, _: {"inputs": (f"{at}/pairs.tsv", f"{at}/cut.gz")}, "cut.gz: the compressed file"),
    "second input empty": (lambda at, _: {"inputs": (f"{at}/pairs.tsv", f"{at}/empty")}, "empty: is empty; pass"),
    "second input by its name": (lambda at, _: {"inputs": (f"{at}/pairs.tsv", f"{at}/x.half.f2e")}, "name of a half table"),
    "vocabulary empty": (lambda at, _: {"target_vocab": f"{at}/empty"}, "empty: is empty; name the words"),
    "pairs of others": (lambda at, _: {"pairs_dir": f"{at}/thesis"}, "thesis holds other files, such as thesis.tex"),
    "model of others": (lambda at, _: {"model_dir": f"{at}/thesis"}, "thesis exists and is not a model directory"),
    "model at the end of a link": (lambda at, _: {"model_dir": f"{at}/link"}, "link exists and is not a model directory"),
    "a start of other cells": (lambda at, donor: {"init_from": donor, "cell": "lstm", "layers": 2}, "gru --layers 1 --hidden"),
    "a start of other sizes": (lambda at, donor: {"init_from": donor}, "train with --hidden 8 --maxout 4"),
    "a start of the other direction": (lambda at, donor: {"init_from": donor, "hidden": 8, "inverse": True}, "other direction"),
    "patience without held-out pairs": (lambda at, _: {"patience": 3, "held_out": 0}, "--patience 3 needs held-out data"),
    "no such optimizer": (lambda at, _: {"optimizer": "sgd"}, "sgd"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_is_found_before_anything_is_read(tmp_path: Path, donor: str, fault: str) -> None:
    change, said = WRONG[fault]
    write_language(tmp_path / "pairs.tsv", pairs=100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "junk").write_bytes(b"no pair here\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress((tmp_path / "pairs.tsv").read_bytes())[:100])
    (tmp_path / "x.half.f2e").write_bytes(b"")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_bytes(b"years of work")
    (tmp_path / "link").symlink_to("none")
    before = sorted(tmp_path.rglob("*"))
    read: list[int] = []
    training = Training((f"{tmp_path}/pairs.tsv",), f"{tmp_path}/model").but(max_steps=1)
    with pytest.raises(RescoreError, match=said) as caught:
        training.but(**change(tmp_path, donor)).run(Observer(on_read=read.append))
    assert "\n" not in str(caught.value)
    assert not read
    assert sorted(tmp_path.rglob("*")) == before


def test_prepared_pairs_serve_where_one_may_only_read(tmp_path: Path) -> None:
    write_language(tmp_path / "pairs.tsv", pairs=100)
    (tmp_path / "theirs").mkdir()
    training = Training((f"{tmp_path}/pairs.tsv",), f"{tmp_path}/model").but(max_steps=1, pairs_dir=f"{tmp_path}/theirs/pairs")
    training.but(drop_bad_rows=True).run()  # there are none
    (tmp_path / "theirs").chmod(0o555)
    with like_anybody():
        training.but(overwrite=True).run()
        with pytest.raises(RescoreError, match="/theirs/pairs.*: Permission denied"):
            training.but(overwrite=True, min_count=2).run()


def test_scratch_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    """Whether the pairs were complete or not; the name in scratch is always the same for the same pairs."""
    write_language(tmp_path / "pairs.tsv", pairs=100)
    training = Training((f"{tmp_path}/pairs.tsv",), f"{tmp_path}/model").but(max_steps=1, scratch=str(tmp_path))
    training.run()
    for complete in (True, False):
        left = Path(sorting.scratch_name(str(tmp_path), f"{tmp_path}/model.pairs"))
        left.mkdir()
        (left / "sortXYZ").write_bytes(random.Random(1).randbytes(10))
        (tmp_path / "model.pairs.lock").write_bytes(b"")
        for name in (".model.pairs.partial", ".model.pairs.old"):
            (tmp_path / name).mkdir()
        if not complete:
            (tmp_path / "model.pairs" / "pairs.json").unlink()
        training.but(overwrite=True).run()
        assert sorted(os.listdir(tmp_path)) == ["model", "model.pairs", "pairs.tsv"]


@pytest.mark.parametrize("prepared", [False, True], ids=["before the pairs have their name", "after it"])
def test_dropped_rows_are_there_when_a_later_run_finds_the_pairs(tmp_path, monkeypatch, prepared) -> None:
    """Stopped around the moment in which the pairs appear: the next run reads no row again, and so drops none."""
    training = small_training(tmp_path, hidden=4, embedding=4, maxout=2, rank=2, max_steps=2, drop_bad_rows=True)
    with open(tmp_path / "pairs.tsv", "ab") as stream:
        stream.write(b"s1\tt1\n" * 5000 + b"oops\n")  # not among the first rows, which are looked at before all else
    really = pair_source.prepare_store

    def stopped(*args, **options):
        if prepared:
            really(*args, **options)
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(pair_source, "prepare_store", stopped)
        training.run()
    training.run()
    assert (tmp_path / "model.dropped").read_bytes() == b"oops\n"
    with pytest.raises(InputError, match="pairs.tsv:5242"):  # its pairs do not serve where no row may be bad
        training.but(drop_bad_rows=False, overwrite=True).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.dropped", "model.pairs", "pairs.tsv"]
