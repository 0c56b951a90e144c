"""Which devices to compute on and in what precision: ``--device`` and ``--precision``, checked against what is there."""

from __future__ import annotations

from phrase_rescore.errors import OptionError

PRECISIONS = ("float32", "tf32", "bf16", "int8")
TRAINING_PRECISIONS = PRECISIONS[:3]


def resolve_device(name: str) -> str:
    """``auto`` to what there is: ``cuda`` if there is any GPU, else ``cpu``.

    Raises OptionError for a device that is not there.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise OptionError(f"--device {name}: write auto, cpu, cuda or cuda:0") from None
    if device.type not in ("cpu", "cuda"):
        raise OptionError(f"--device {name}: write auto, cpu, cuda or cuda:0")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise OptionError(f"--device {name}: torch sees no such device here; write auto or cpu")
    return name


def resolve_devices(names: str) -> tuple[str, ...]:
    """``auto`` to every GPU there is, or ``cpu``; else a list with commas, ``cuda:0,cuda:2``.

    Blocks go to the devices in turn, so one named twice takes two shares.

    Raises OptionError for a device that is not there, and for CPU and GPU together: their scores differ in the last digits.
    """
    import torch

    if names == "auto":
        return tuple(f"cuda:{n}" for n in range(torch.cuda.device_count())) or ("cpu",)
    devices = tuple(resolve_device(name.strip()) for name in names.split(","))
    if len({torch.device(device).type for device in devices}) > 1:
        raise OptionError(f"--device {names}: CPU and GPU differ in the last digits; name devices of one type")
    return devices


def check_precision(precision: str, device: str) -> str:
    """A warning if the precision is slower than float32 on this machine's ``device``, else nothing.

    Raises OptionError if the device does not have it.
    """
    import torch

    cpu = torch.device(device).type == "cpu"
    if precision == "tf32" and cpu:
        raise OptionError("--precision tf32 is for GPUs; on a CPU use float32 (or, to annotate, int8)")
    if precision == "int8" and not cpu:
        raise OptionError("--precision int8 is for CPUs; on a GPU use tf32 or bf16")
    if precision == "int8" and not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_prepack")):
        raise OptionError("--precision int8 needs a torch with oneDNN, which this one lacks; use float32")
    if precision == "bf16" and cpu and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this CPU has no bf16 arithmetic: --precision bf16 is slower than float32 here"
    if precision == "bf16" and not cpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "this GPU has no bf16 arithmetic: --precision bf16 is slower than float32 here"
    return ""


def set_tf32(precision: str, device: str) -> None:
    """Whether GPUs multiply float32 matrices in TF32 from now on: with every precision but ``float32``."""
    import torch

    if torch.device(device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision in ("tf32", "bf16")
