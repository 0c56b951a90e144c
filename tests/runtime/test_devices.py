"""``--device`` and ``--precision``: names that a machine has and names that it lacks."""

import pytest
import torch

from phrase_rescore.errors import OptionError
from phrase_rescore.runtime import check_precision, resolve_device, resolve_devices


def test_a_precision_that_a_device_lacks() -> None:
    assert check_precision("float32", "cpu") == check_precision("tf32", "cuda:1") == ""
    with pytest.raises(OptionError, match="tf32 is for GPUs; on a CPU use float32"):
        check_precision("tf32", "cpu")


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_devices("auto") == ("cuda:0", "cuda:1")
    assert resolve_devices("cuda:1, cuda:1") == ("cuda:1", "cuda:1")
    assert resolve_device("auto") == "cuda"
    for names in ("cuda:2", "cpu,cuda:0", "", "gpu", "cpu,", "meta"):
        with pytest.raises(OptionError, match="--device"):
            resolve_devices(names)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert resolve_devices("auto") == ("cpu",)
    with pytest.raises(OptionError, match="no such device"):
        resolve_devices("cuda")
