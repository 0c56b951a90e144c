"""The options that ``train`` and ``train-lm`` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from phrase_rescore.cli.options import ByteSize, Duration, number_option
from phrase_rescore.ranges import Range
from phrase_rescore.runtime import PRECISIONS
from phrase_rescore.training.config import RANGES


def number_setting(name: str, ranges: Mapping[str, Range] = RANGES, **attributes: Any) -> Any:
    """Declare an option that is a number, with the range of the setting of its name; by default a setting of ``train``."""
    return number_option(f"--{name.replace('_', '-')}", range=ranges[name], **attributes)


max_time_option = click.option("--max-time", type=Duration(), help="Stop after this time of training: 90s, 20m, 2h, 1d.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the model that is there once the new one is complete."
)
save_dtype_option = click.option(
    "--save-dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
    help="The type of saved weights.",
)  # fmt: skip
shard_size_option = click.option(
    "--shard-size", type=ByteSize(), help="The largest file of weights: 15M, 2G.  [default: one file]"
)
optimizers = click.Choice(["adam", "adadelta"])
max_steps_option = number_setting("max_steps", metavar="N", help="Stop after N minibatches.")
eval_every_option = number_setting(
    "eval_every", default=500, show_default=True, metavar="STEPS", help="Measure held-out loss after so many minibatches."
)
resume_option = click.option(
    "--resume", is_flag=True, help="Continue an interrupted training exactly from its last measurement."
)
threads_option = number_setting(
    "threads", metavar="N",
    help="Cores that a process may use.  [default: all usable ones, shared among the processes of this machine]",
)  # fmt: skip
precision_option = click.option(
    "--precision", type=click.Choice(PRECISIONS), default="float32", show_default=True,
    help="The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. Weights stay float32.",
)  # fmt: skip
