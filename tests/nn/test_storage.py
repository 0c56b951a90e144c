"""A model directory while it is read."""

import os
from pathlib import Path

import pytest

from phrase_rescore.errors import ModelError
from phrase_rescore.nn.storage import unchanged


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_is_replaced_while_it_is_read_is_refused(tmp_path: Path, fails: bool) -> None:
    """Though the size of its file stays, and the time of one that is moved there may be the same."""
    config, other = tmp_path / "config.json", tmp_path / "other"
    for path in (config, other):
        path.write_text("{}")
        os.utime(path, (1, 1))
    with unchanged(str(tmp_path)):
        pass
    with pytest.raises(ModelError, match="changed while it was read"), unchanged(str(tmp_path)):
        if fails:
            config.write_text("[]")
            raise ModelError("half of another model")
        other.replace(config)
