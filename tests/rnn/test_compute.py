"""Where ``annotate`` computes: devices, processes, threads and precision share one stream; the bytes are the same."""

import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SOURCE_WORDS, TARGET_WORDS, Run
from small_models import encoded, random_pairs, small_checkpoint
from structures import every_structure

from phrase_rescore.annotation import annotator, pipeline
from phrase_rescore.annotation.annotator import scorer_of
from phrase_rescore.nn.shared_scoring import SharedScoring
from phrase_rescore.rnn import scorer
from phrase_rescore.rnn.scorer import PhraseEncoder, Scorer


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw = random.Random(5)

    def phrase(words: list[bytes]) -> bytes:
        return b" ".join(draw.choices(words, k=draw.randint(1, 4)))

    sources = sorted(phrase(SOURCE_WORDS) for _ in range(40))
    rows = [b"%b ||| %b ||| 0.5 0.25 1 1 ||| 0-0 ||| 1 1 1 ||| |||\n" % (src, phrase(TARGET_WORDS)) for src in sources * 3]
    path = tmp_path / "table"
    path.write_bytes(b"".join(rows))
    return path


def test_devices_share_the_blocks_in_turn(run: Run, model_dir: str, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two CPUs stand in for two GPUs: each block's scores come from the device whose turn it is, rows keep their order."""
    arguments = ("annotate", table, "-m", model_dir, "--block-size", 10)
    alone = run(*arguments, "--device", "cpu")
    assert alone.status == 0
    asked: list[str] = []

    def scorer(model_dir: str, device: str = "cpu", precision: str = "float32") -> Scorer:
        asked.append(device)
        return scorer_of(model_dir, device, precision)

    monkeypatch.setattr(annotator, "scorer_of", scorer)
    monkeypatch.setattr(pipeline, "resolve_devices", lambda names: ("cpu", "cpu:0"))
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 2)
    shared = run(*arguments, "--device", "cuda:0,cuda:1", "--jobs", 2)
    assert shared.out == alone.out
    assert sorted(asked) == ["cpu"] * 6 + ["cpu:0"] * 6
    assert "scored on cpu, cpu:0 in float32, 2 x 1 threads" in shared.err


class SmallDevice:
    """``SharedScoring._together`` on a device whose memory holds ``room`` pairs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.sizes: list[int] = []
        original = SharedScoring._together

        def limited(sharing: SharedScoring, pairs: object) -> np.ndarray:
            self.sizes.append(len(pairs))  # type: ignore[arg-type]
            if len(pairs) > room:  # type: ignore[arg-type]
                raise torch.OutOfMemoryError("CUDA out of memory")
            return original(sharing, pairs)  # type: ignore[arg-type]

        monkeypatch.setattr(SharedScoring, "_together", limited)


def test_out_of_memory_halves_the_batch_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = encoded(random_pairs(100))
    whole = Scorer(small_checkpoint()).log_probs(pairs)
    monkeypatch.setattr(scorer, "BATCH", 64)
    careful, device = Scorer(small_checkpoint()), SmallDevice(monkeypatch, 20)
    np.testing.assert_allclose(careful.log_probs(pairs), whole, atol=1e-5)
    assert device.sizes == [64, 32, 16, 16, 16, 16, 16, 16, 4], "halved twice, then every pair once"
    assert careful.sharing.batch == 16


def test_long_pairs_come_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 words here, unless a single pair has more."""
    words = [64, 64, 66, 64, 200, 2, 2, 2]
    careful, device = Scorer(small_checkpoint()), SmallDevice(monkeypatch, 2)
    careful.sharing.batch = 2
    careful.log_probs(encoded([([2] * (n // 2), [3] * (n // 2)) for n in words]))
    assert device.sizes == [2, 1, 1, 1, 2, 1]


def test_a_device_too_small_for_one_pair(run: Run, make_model, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()  # its scorer, kept by the process, ends with batches of one pair
    SmallDevice(monkeypatch, 0)
    result = run("annotate", table, "-m", model, "-o", table.parent / "out")
    assert result.status == 1
    assert result.err.splitlines()[-1].endswith("cpu: out of memory for a single pair; name another --device")
    assert "Traceback" not in result.err
    assert not (table.parent / "out").exists()


def test_cores_are_never_shared_by_more_threads(run: Run, model_dir: str, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)))
    result = run("annotate", table, "-m", model_dir, "--jobs", 3, "--threads", 2)
    assert result.status == 2
    assert "--jobs 3 with --threads 2 needs 6 cores; this process may use 4" in result.err
    alone, wide = (run("annotate", table, "-m", model_dir, "--threads", threads) for threads in (1, 2))
    assert "4 x 1 threads" in alone.err
    assert "2 x 2 threads" in wide.err
    ps = [[float(row.split(b"|||")[2].split()[4]) for row in result.out.splitlines()] for result in (alone, wide)]
    np.testing.assert_allclose(np.log(ps[1]), np.log(ps[0]), atol=1e-4)


def test_precision_from_the_command_line(run: Run, model_dir: str, table: Path) -> None:
    """Near the exact scores and not equal to them; counts and all else are the same."""

    def columns(precision: str) -> list[list[bytes]]:
        result = run("annotate", table, "-m", model_dir, "--precision", precision, "--scale", "log", "--jobs", 1)
        assert result.status == 0, result.err
        assert f"in {precision}, 1 x 1" in result.err
        return [row.split(b"|||")[2].split() for row in result.out.splitlines()]

    exact, reduced = columns("float32"), columns("bf16")
    assert [row[:4] + row[5:] for row in exact] == [row[:4] + row[5:] for row in reduced]
    differences = [abs(float(a[4]) - float(b[4])) for a, b in zip(exact, reduced, strict=True)]
    assert 1e-4 < math.fsum(differences) / len(differences) < 0.3
    refused = run("annotate", table, "-m", model_dir, "--precision", "tf32", "--device", "cpu")
    assert refused.status == 2
    assert "for GPUs; on a CPU use float32" in refused.err


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_gpu_scores_as_the_cpu_does(precision: str) -> None:
    pairs = encoded(random_pairs(300))
    exact, found = (Scorer(small_checkpoint(), *how).log_probs(pairs) for how in ((), ("cuda", precision)))
    np.testing.assert_allclose(found, exact, atol=1e-4 if precision == "float32" else 1.0)


@pytest.mark.gpu
@every_structure
def test_a_gpu_scores_every_structure_as_the_cpu_does(chosen: dict) -> None:
    checkpoint, pairs = small_checkpoint(spread=0.3, **chosen), encoded(random_pairs(300))
    exact, found = (Scorer(checkpoint, device).log_probs(pairs) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(found, exact, atol=1e-4)
    exact, found = (PhraseEncoder(checkpoint, device).vectors([b"s1 s2", b"s3"]) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(found, exact, atol=1e-5)
