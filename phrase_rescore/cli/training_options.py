"""The options that ``train`` and ``train-lm`` share, and those that are made of the settings of their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli.options import Duration, Number, device_option
from phrase_rescore.runtime import PRECISIONS
from phrase_rescore.training.config import Settings


class SettingOptions:
    """Declares options that override settings of presets, with their names and ranges."""

    def __init__(self, presets: Mapping[str, Settings]) -> None:
        self._presets, self._ranges = presets, presets["default"].ranges()

    def preset(self, what: str) -> Any:
        """Declare the option that chooses the preset: the settings of ``what``."""
        help = f"The settings to start from: of {what}."
        return click.option("--preset", type=click.Choice(list(self._presets)), default="default", show_default=True, help=help)

    def number(self, name: str, help: str, metavar: str = "N", default: int | None = None) -> Any:
        """Declare an option that is a number."""
        kind = Number(self._ranges[name])
        option, shown = f"--{name.replace('_', '-')}", default is not None
        return click.option(option, type=kind, metavar=metavar, help=help, default=default, show_default=shown)

    def setting(
        self, name: str, help: str, metavar: str | None = "N", kind: click.ParamType | None = None, **more: Settings
    ) -> Any:
        """Declare an option, by default a number, whose help shows the values of the presets and of ``more``."""
        values: dict[str, str] = {}
        presets = {**self._presets, **more}
        for preset in sorted(presets, key=["default", *more, *presets].index):
            values.setdefault(f"{presets[preset].settings()[name]}", preset)
        shown = "; ".join(f"{preset}: {value}" for value, preset in values.items())
        kind = kind or Number(self._ranges[name])
        return click.option(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=f"{help}  [{shown}]")

    def choice(self, name: str, help: str, *values: str, metavar: str | None = None) -> Any:
        """Declare an option that is one of some words, whose help shows the presets' values."""
        return self.setting(name, help, metavar, click.Choice(values))


_shared = SettingOptions({"default": Settings()})
max_time_option = click.option("--max-time", type=Duration(), help="Stop after this time of training: 90s, 20m, 2h, 1d.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the model that is there once the new one is complete."
)
max_steps_option = _shared.number("max_steps", "Stop after N minibatches.")
eval_every_option = _shared.number("eval_every", "Measure held-out loss after so many minibatches.", "STEPS", default=500)
resume_option = click.option(
    "--resume", is_flag=True, help="Continue an interrupted training exactly from its last measurement."
)
machine_options = option_group(
    "Machine",
    device_option("auto"),
    _shared.number(
        "threads", "Cores that a process may use.  [default: all usable ones, shared among the processes of this machine]"
    ),
    click.option(
        "--precision", type=click.Choice(PRECISIONS), default="float32", show_default=True,
        help="The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. Weights stay float32.",
    ),
)  # fmt: skip
