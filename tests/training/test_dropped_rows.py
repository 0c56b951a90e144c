"""Rows that a training leaves out are kept whenever their pairs are."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_trainings import Stopped, Training, write_language

from phrase_rescore.training import prepare


@pytest.mark.parametrize("prepared", [False, True], ids=["before the pairs have their name", "after it"])
def test_dropped_rows_are_there_when_a_later_run_finds_the_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    """Stopped around the moment in which the pairs appear: the next run reads no row again, and so drops none."""
    write_language(tmp_path / "pairs.tsv", pairs=300)
    with open(tmp_path / "pairs.tsv", "ab") as stream:
        stream.write(b"oops\n")
    training = Training((str(tmp_path / "pairs.tsv"),), str(tmp_path / "model"))
    training = training.but(hidden=4, embedding=4, maxout=2, rank=2, max_steps=2, drop_bad_rows=True)
    really = prepare.prepare_store

    def stopped(*args, **options):
        if prepared:
            really(*args, **options)
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(prepare, "prepare_store", stopped)
        training.run()
    training.run()
    assert (tmp_path / "model.dropped").read_bytes() == b"oops\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.dropped", "model.pairs", "pairs.tsv"]
