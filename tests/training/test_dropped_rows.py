"""Rows that a training leaves out are kept whenever their pairs are."""

import pytest
from small_trainings import Stopped, small_training

from phrase_rescore.errors import InputError
from phrase_rescore.training import pairs as pair_source


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
