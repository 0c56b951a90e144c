"""rescore on several cores gives the bytes of one."""

from pathlib import Path

import pytest
from conftest import Run
from small_models import small_lm, small_nmt

WORDS = (b"the", b"house", b"old"), (b"das", b"haus", b"alt")


@pytest.mark.parametrize("threads", [2, 3])
def test_the_same_bytes_whatever_the_threads(
    run: Run, model_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    for name, size in (("nmt.scorer.WORDS", 3), ("rnn.scorer.BATCH", 1), ("lm.scorer.CONTEXTS", 2)):
        monkeypatch.setattr(f"phrase_rescore.{name}", size)
    small_nmt(tmp_path / "nmt", *WORDS, 3.0)
    small_lm(tmp_path / "lm")
    (tmp_path / "source").write_bytes(b"the house\n" * 12)
    data = b"".join(
        b"%d ||| das %b ||| X= 1 ||| 1 ||| 0=0 1=1\n" % (i // 4, (b"haus", b"alt", b"das", b"klein")[i % 4]) for i in range(48)
    )
    models = ("-m", tmp_path / "lm", "-m", tmp_path / "nmt", "-m", model_dir)
    one, several = (
        run("rescore", "-", *models, "--source", tmp_path / "source", "--threads", n, stdin=data) for n in (1, threads)
    )
    assert one.status == 0, one.err
    assert several.out == one.out
    assert one.out.count(b"NMT0= ") == 48
