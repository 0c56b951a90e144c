"""The sidecar of a table: any bytes are refused in one line, or name columns that the table has.

An input is the table and its sidecar.
"""

import json
import os
import random

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import RescoreError
    from phrase_rescore.moses.columns import TableColumns, read_sidecar, sidecar_path

from harness import ODD_VALUES, SEPARATOR, fuzz_files, mutate_json, told, workplace

VERSIONS = {  # of the sidecar: what it says of a score and of a count
    1: (
        {"feature": "log_prob", "unit": "natural log p(target | source), EOS included"},
        {"feature": "unknown_words", "unit": "number of unknown words"},
    ),
    2: ({"kind": "score", "scale": "log", "predicts": "target"}, {"kind": "count", "scale": "log", "side": "both"}),
}
ODD = (*ODD_VALUES, 4, 5, 6, "5", "log_prob", "unknown_words", "score", "count", "given", "source")


def annotated(own: int, models: int, version: int) -> bytes:
    """A table and what annotate wrote beside it, without the digest of the table."""
    columns = [{"column": own + 1 + i, "model": f"rnn|{i // 2}", **VERSIONS[version][i % 2]} for i in range(2 * models)]
    row = b"a ||| b |||" + b" 0.5" * own + b" 0.5 2.718282" * models + b"\n"
    return row * 2 + SEPARATOR + json.dumps({"format_version": version, "columns": columns}, indent=2).encode() + b"\n"


def mutate_sidecar(data: bytes, chance: random.Random) -> bytes:
    return mutate_json(data, chance, ODD)


def main() -> None:
    folder = os.path.join(workplace(), "folder")
    table = os.path.join(folder, "table")

    def check() -> None:
        try:
            own, columns = read_sidecar(table), TableColumns.read(table)
        except RescoreError as error:
            told(error, 1000)
            return
        for column in own or ():
            assert 1 <= column.column <= len(columns)
            for text in (column.kind, column.model):
                assert text.isprintable(), text

    seeds = [annotated(own, models, version) for own, models in ((0, 1), (4, 1), (2, 2)) for version in VERSIONS]
    fuzz_files(folder, ("table", sidecar_path("table")), check, seeds, 4096, ((1, mutate_sidecar),))


if __name__ == "__main__":
    main()
