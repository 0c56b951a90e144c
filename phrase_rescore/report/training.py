"""The losses of a training, read from its log and drawn, in a picture or in the page of ``report``."""

import json
import math
import os

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.nn.storage import LOG
from phrase_rescore.report.charts import Records, Spec, losses, schema_version


def training_chart(directory: str) -> Spec:
    """Draw the log of a model directory, or of the .training beside it, whose last line may be half there.

    Raises InputError for a log that is missing or empty, and for a line that is no measurement.
    """
    path, points, item = os.path.join(directory, LOG), Records(), "pair"
    hint = "name a model directory with its log, or the .training beside it once a loss was measured"
    try:
        with open(path, "rb") as stream:
            lines = [line for line in stream if line.endswith(b"\n")]
    except OSError as error:
        raise InputError(path, error.strerror or str(error), hint) from None
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            when = {"step": int(record["step"]), "seconds": float(record["seconds"])}
            held_out = record.get("held_out", {})
            for kind, loss in (("training", record.get("train_loss")), ("held-out", held_out.get("loss"))):
                points += [when | {"of": kind, "loss": float(loss)}] if loss is not None else []
            if held_out and math.isclose(math.log(held_out["perplexity"]), held_out["loss"]):  # perplexity is always of a word
                item = "word"
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            raise InputError(path, "not a measurement of a training", "delete the line", number) from None
    if not points:
        raise InputError(path, "no loss in it", hint)
    return losses(points, item)


def draw_training(directory: str, out: str) -> int:
    """Write the picture of a training to ``out``, .png or .svg; return its size in bytes.

    Raises OptionError for another name, and as ``training_chart``.
    """
    name = os.path.splitext(out)[1].lower()
    if name not in (".png", ".svg"):
        raise OptionError(f"-o {out}: a training is drawn as .png or .svg; give -o loss.png, or name an ANNOTATED_TABLE")
    spec, version = training_chart(directory), schema_version()
    import vl_convert

    if name == ".svg":
        picture = vl_convert.vegalite_to_svg(spec, version).encode()
    else:
        picture = vl_convert.vegalite_to_png(spec, version, scale=2)  # for sharp screens
    with atomic_output(out) as stream:
        stream.write(picture)
    return len(picture)
