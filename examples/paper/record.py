"""Gather what is needed to repeat an experiment and to read its results, as JSON on standard output: no text of the sets.

usage: record.py WORK MODEL SRC TGT SYSTEMS NAME=SETTING...    (experiment.mk calls it; MODEL is WORK or that of MODEL_OF)
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phrase_rescore.files.inputs import open_input, read_rows
from phrase_rescore.moses.columns import read_sidecar
from phrase_rescore.moses.ini import read_weights

SETS = ("dev", "test")
_PREDICTS = re.compile(r"p\([^)]*\)")  # within a model's signature
PACKAGES = ("phrase-rescore", "torch", "numpy", "sacrebleu")


def count_rows(path: str) -> int:
    """A last row without a newline counts."""
    with open_input(path) as stream:
        return sum(1 for _ in read_rows(stream))


def digest(path: Path) -> dict[str, Any]:
    return {"segments": count_rows(str(path)), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def commit(folder: str) -> str:
    """Name the commit that programs were built from, or else the digest of the program that matters."""
    try:
        git = ["git", "-C", folder, "rev-parse", "HEAD"]
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        program = next(path for name in ("moses", "fast_align") if (path := Path(folder, name)).is_file())
        return f"sha256 of {program.name}: {hashlib.sha256(program.read_bytes()).hexdigest()}"


def weights(ini: Path) -> dict[str, list[float]]:
    return {name.decode(): numbers for name, numbers in read_weights(str(ini)).items()}


def runs(work: Path, system: str) -> Iterator[tuple[str, dict[str, Any]]]:
    folders = sorted(work.glob(f"tuning/{system}.*"), key=lambda folder: int(folder.suffix[1:]))
    for folder in folders:
        if all((work / "evaluation" / f"{folder.name}.{name}.out").exists() for name in SETS):
            found = {"start": weights(folder / "start.ini"), "tuned": weights(folder / "moses.ini")}
            yield folder.suffix[1:], found


def columns(table: Path) -> list[str]:
    """Name the columns that annotate appended to a system's table."""
    found = read_sidecar(str(table)) or []
    return [f"{column.kind}, {''.join(_PREDICTS.findall(column.model))}" for column in found]


def bounds(path: Path) -> dict[str, Any]:
    """Read a bound of headroom.py, or the BLEU of every search limit as evaluate writes it, without its paths."""
    found: dict[str, Any] = json.loads(path.read_text())
    if "sets" not in found:
        return found
    of_set = found["sets"][0]
    bleu = {system["name"]: system["scores"]["BLEU"]["mean"] for system in of_set["systems"]}
    return {"segments": of_set["segments"], **bleu}


def networks(model: Path) -> dict[str, Any]:
    return {config.parent.name: json.loads(config.read_text())["training"] for config in sorted(model.glob("*/config.json"))}


def main() -> None:
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    work, model, (src, tgt), systems = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:5], sys.argv[5].split()
    stems = [model / "corpus/train", *(work / "corpus" / name for name in SETS)]
    logs = [(folder / "logs/seconds.tsv").read_text() for folder in dict.fromkeys((model, work))]
    record = {
        "name": work.name,
        "source": src,
        "target": tgt,
        "settings": dict(word.split("=", 1) for word in sys.argv[6:]),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
            "moses": commit(os.environ["MOSES_BIN"]),
            "fast_align": commit(os.environ["FAST_ALIGN"]),
        },
        "data": {f"{stem.name}.{end}": digest(Path(f"{stem}.{end}")) for stem in stems for end in (src, tgt)},
        "rows": {
            "phrase-table": count_rows(str(model / "model/phrase-table.gz")),
            "filtered to dev and test": count_rows(str(work / "filtered/plain.gz")),
        },
        "networks": networks(model),
        "columns": {system: columns(work / f"systems/{system}/phrase-table.gz") for system in systems},
        "runs": {system: dict(runs(work, system)) for system in systems},
        "headroom": {path.stem: bounds(path) for path in sorted(work.glob("headroom/*.json"))},
        "seconds": {name: int(n) for log in logs for name, n in (line.split("\t") for line in log.splitlines())},
    }
    print(json.dumps(record, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
