"""phrase-rescore: neural scores for Moses phrase tables (Cho et al., EMNLP 2014)."""

# ruff: noqa: F405

from typing import TYPE_CHECKING

from phrase_rescore._version import __version__

__all__ = [
    "ColumnFormat", "Hypothesis", "InputError", "Model", "ModelError", "OptionError", "RescoreError", "RowError", "Summary",
    "TextModel", "__version__", "annotate", "embed", "evaluate", "export_lm", "generate", "load", "load_lm",
    "moses_ini", "rescore", "score", "score_lm", "strip", "train", "train_lm", "train_nmt", "tune",
]  # fmt: skip

if TYPE_CHECKING:
    from phrase_rescore.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Import ``api`` when a name of it is first used, so that ``--help`` need not wait for torch."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from phrase_rescore import api

        return getattr(api, name)
