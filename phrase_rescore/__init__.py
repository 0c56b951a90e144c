"""phrase-rescore: neural scores for Moses phrase tables (Cho et al., EMNLP 2014)."""

# ruff: noqa: F403

import importlib
from typing import TYPE_CHECKING

from phrase_rescore._version import __version__ as __version__

if TYPE_CHECKING:
    from phrase_rescore.api import *
else:

    def __getattr__(name: str) -> object:
        """Return a name of ``api``, which is imported when one is first used: ``--help`` need not wait for it."""
        api = importlib.import_module("phrase_rescore.api")
        offered = getattr(api, "__all__", ())  # none while it is being imported itself
        if name == "__all__":
            return offered
        if name not in offered:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(api, name)
