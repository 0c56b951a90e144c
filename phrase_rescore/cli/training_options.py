"""The options that all trainings have, declared with the names, ranges and presets of their settings."""

from collections.abc import Mapping
from typing import Any

from cloup import option_group

from phrase_rescore.cli.options import DURATION, MODEL, NEW_DIRECTORY, device_option, flag, option, unchecked
from phrase_rescore.training.config import Settings


class TrainingOptions:
    """Declares the options of a training. ``model``: its metavar, ``data``: what is prepared, pairs or text."""

    def __init__(self, presets: Mapping[str, Settings], model: str, data: str = "pairs") -> None:
        self._presets, self._ranges = presets, presets["default"].ranges()
        usual = presets["default"].recipe.usual_time / 60
        of_paper = "; paper: none" if "paper" in presets else ""
        time = f"Stop after this time of training: 90s, 20m, 2h, 1d.  [default, without another limit: {usual:g}m{of_paper}]"
        self.max_time = option("--max-time", DURATION, time)
        self.kept = option(
            f"--{data} {data}_dir", NEW_DIRECTORY, metavar="DIR",
            help=f"Keep the prepared {data} in DIR, for later trainings on the same input.  [default: {model}.{data}]",
        )  # fmt: skip
        self.overwrite = flag("--overwrite", "Replace the model in the directory when the new one is complete.")
        passes = "; ".join(f"{name}: {settings.recipe.usual_epochs:g}" for name, settings in presets.items())
        self.stop = option_group(
            "When to stop",
            self.setting("epochs", f"Stop after this number of passes. Without another limit:  [{passes}]"),
            self.setting("max_steps", "Stop after N minibatches."),
            self.setting("patience", "Stop after N measurements without a better one."),
            self.setting("eval_every", "Measure the held-out loss every STEPS minibatches.", "STEPS"),
        )
        resume = "Continue an interrupted training exactly where it was saved, with its inputs and options."
        self.resume = flag("--resume", f"{resume} The limits may change.")
        self.finish = flag("--finish", "Make the model from an interrupted training as it is, without inputs or options.")
        start = "Start from the weights of this model, matching words by spelling."
        self.init_from = option("--init-from", MODEL, start, metavar="MODEL")
        threads = "Cores that a process may use.  [default: all usable ones, shared among the processes of this machine]"
        precision = "The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. Weights stay float32."
        machine = device_option("auto"), self.setting("threads", threads), self.setting("precision", precision)
        self.machine = option_group("Machine", *machine)

    def setting(self, name: str, help: str, metavar: str | None = None, **more: Settings) -> Any:
        """Declare a number, or one of some words. Help that ends with a period shows the values of the presets and ``more``."""
        values: dict[str, str] = {}
        for preset, settings in {"default": self._presets["default"], **more, **self._presets}.items():
            values.setdefault(f"{settings.settings()[name]}", preset)
        if help.endswith(".") and list(values) != ["None"]:
            help += f"  [{'; '.join(f'{preset}: {value}' for value, preset in values.items())}]"
        return option(f"--{name.replace('_', '-')}", unchecked(self._ranges[name]), help, metavar)
