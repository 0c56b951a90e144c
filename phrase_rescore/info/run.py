"""Describe a table, a model or an ini, whatever a path leads to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.paths import Path
from phrase_rescore.info.ini import IniInfo
from phrase_rescore.info.table import TableInfo
from phrase_rescore.messages import Progress
from phrase_rescore.moses.file_kinds import kind_of_folder
from phrase_rescore.moses.ini import is_ini

if TYPE_CHECKING:
    from phrase_rescore.info.model import ModelInfo


def info(path: Path, model_dir: Path | None = None, *, on_read: Progress | None = None) -> TableInfo | ModelInfo | IniInfo:
    """Describe a phrase table, a model directory or an ini, as ``phrase-rescore info`` does: ``lines()`` or ``as_object()``.

    ``model_dir`` is a model of phrase pairs, whose share of the table's words is counted. ``check()`` of what is returned
    raises RescoreError if some Moses program would mishandle a row. Raises InputError for what is not a phrase table,
    ModelError for a bad model.
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        from phrase_rescore.info.model import ModelInfo  # imports torch

        if not os.path.exists(os.path.join(name, "config.json")) and (kind := kind_of_folder(name)):
            raise InputError(name, f"looks like {kind[0]}", kind[1])
        if model_dir is not None:
            raise OptionError(f"{name} is a model directory; -m is for tables")
        return ModelInfo.read(name)
    if is_ini(name):
        if model_dir is not None:
            raise OptionError(f"{name} is a moses.ini; -m is for tables")
        return IniInfo.read(name)
    return TableInfo.read(name, None if model_dir is None else os.fspath(model_dir), on_read)
