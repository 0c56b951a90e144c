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

NAMES = (("log_prob", "natural log p(target | source), EOS included"), ("unknown_words", "number of unknown words"))
ODD = (*ODD_VALUES, 4, 5, 6, "5", "log_prob", "unknown_words")


def annotated(own: int, models: int) -> bytes:
    """A table and what annotate wrote before the sidecar named its table, which is still read."""
    columns = [
        {"column": own + 1 + i, "feature": NAMES[i % 2][0], "model": f"rnn|{i // 2}", "unit": NAMES[i % 2][1]}
        for i in range(2 * models)
    ]
    row = b"a ||| b |||" + b" 0.5" * own + b" 0.5 2.718282" * models + b"\n"
    return row * 2 + SEPARATOR + json.dumps({"format_version": 1, "columns": columns}, indent=2).encode() + b"\n"


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
            for text in (column.feature, column.model, column.unit):
                assert text.isprintable(), text

    seeds = [annotated(own, models) for own, models in ((0, 1), (4, 1), (2, 2))]
    fuzz_files(folder, ("table", sidecar_path("table")), check, seeds, 4096, ((1, mutate_sidecar),))


if __name__ == "__main__":
    main()
