"""The options that all trainings have, declared with the names, ranges and presets of their settings."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import DURATION, number, path_option
from phrase_rescore.files.paths import Role, Use, beside
from phrase_rescore.runtime import PRECISIONS
from phrase_rescore.training.config import Settings


class TrainingOptions:
    """Declares the options of a training, with the names and ranges of its settings. ``data``: its pairs or text."""

    def __init__(self, presets: Mapping[str, Settings], data: str, made_by: str) -> None:
        self._presets, self._ranges, self._data = presets, presets["default"].ranges(), data
        usual = presets["default"].recipe.usual_time / 60
        of_paper = "; paper: none" if "paper" in presets else ""
        time = f"Stop after this time of training: 90s, 20m, 2h, 1d.  [default, without another limit: {usual:g}m{of_paper}]"
        self.max_time = click.option("--max-time", type=DURATION, help=time)
        passes = "; ".join(f"{name}: {settings.recipe.usual_epochs:g}" for name, settings in presets.items())
        self.epochs = self.number("epochs", f"Stop after this number of passes. Without another limit:  [{passes}]")
        self.max_steps = self.number("max_steps", "Stop after N minibatches.")
        self.eval_every = self.number("eval_every", "Measure the held-out loss every STEPS minibatches.", "STEPS", default=500)
        overwrite = "Replace the model in the directory when the new one is complete."
        self.overwrite = options.flag("--overwrite", help=overwrite)
        resume = (
            "Continue an interrupted training exactly where it was saved, with its inputs and options. The limits may change."
        )
        self.resume = options.flag("--resume", help=resume)
        finish = "Make the model from an interrupted training as it is, without inputs or options."
        self.finish = options.flag("--finish", help=finish)
        self.init_from = path_option(
            "--init-from", role=Role.READ_DIRECTORY, may_be="-m", made_by=made_by, metavar="MODEL",
            help="Start from the weights of this model, matching words by spelling.",
        )  # fmt: skip
        threads = "Cores that a process may use.  [default: all usable ones, shared among the processes of this machine]"
        self.machine = option_group(
            "Machine",
            options.device_option("auto"),
            self.number("threads", threads),
            options.choice_option(
                "--precision", values=PRECISIONS, default="float32",
                help="The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. Weights stay float32.",
            ),
        )  # fmt: skip

    def beside(self, model_dir: str, values: Mapping[str, Any]) -> Iterator[Use]:
        """Yield the files that a training keeps beside its model."""
        yield Use("-m's state", beside(model_dir, "training"), Role.WRITE_DIRECTORY)
        if values[f"{self._data}_dir"] is None:
            yield Use(f"--{self._data}'s default", beside(model_dir, self._data), Role.CACHE_DIRECTORY)
        if values.get("on_bad_row") == "drop":
            yield Use("-m's dropped rows", beside(model_dir, "dropped"), Role.WRITE)

    def preset(self, what: str) -> Any:
        """Declare the option that chooses the preset, the settings of ``what``."""
        help = f"The settings to start from: of {what}."
        return options.choice_option("--preset", values=list(self._presets), default="default", help=help)

    def number(self, name: str, help: str, metavar: str = "N", default: int | None = None) -> Any:
        """Declare an option that is a number."""
        option, shown = f"--{name.replace('_', '-')}", default is not None
        kind = number(self._ranges[name])
        return click.option(option, type=kind, metavar=metavar, help=help, default=default, show_default=shown)

    def setting(
        self, name: str, help: str, metavar: str | None = "N", kind: click.ParamType | None = None, **more: Settings
    ) -> Any:
        """Declare an option, by default a number, whose help shows the values of the presets and of ``more``."""
        values: dict[str, str] = {}
        for preset, settings in {"default": self._presets["default"], **more, **self._presets}.items():
            values.setdefault(f"{settings.settings()[name]}", preset)
        shown = "; ".join(f"{preset}: {value}" for value, preset in values.items())
        kind = kind or number(self._ranges[name])
        return click.option(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=f"{help}  [{shown}]")

    def choice(self, name: str, help: str, *values: str, metavar: str | None = None) -> Any:
        """Declare an option that is one of some words, whose help shows the presets' values."""
        return self.setting(name, help, metavar, click.Choice(values))
