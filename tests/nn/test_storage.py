"""A model directory while it is read."""

from pathlib import Path

import pytest

from phrase_rescore.errors import ModelError
from phrase_rescore.nn.storage import unchanged


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_is_replaced_while_it_is_read_is_refused(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "config.json").write_text("{}")
    with unchanged(str(tmp_path)):
        pass
    with pytest.raises(ModelError, match="changed while it was read"), unchanged(str(tmp_path)):
        (tmp_path / "config.json").write_text("{ }")
        if fails:
            raise ModelError("half of another model")
