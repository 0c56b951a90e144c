"""The sidecar of a table: any bytes are refused in one line, or name columns that the table has.

An input's first byte says how many scores the rows have; the rest is the sidecar.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import InputError, OptionError
    from phrase_rescore.moses.columns import TableColumns, read_sidecar, sidecar_path

from harness import ODD_VALUES, fuzz, mutate_json, told, workplace

ROWS = 2
NAMES = (("log_prob", "natural log p(target | source), EOS included"), ("unknown_words", "number of unknown words"))
ODD = (*ODD_VALUES, 4, 5, 6, "5", "log_prob", "unknown_words")


def sidecar(first: int, models: int) -> bytes:
    """What annotate wrote before the sidecar named its table, which is still read."""
    columns = [
        {"column": first + i, "feature": NAMES[i % 2][0], "model": f"rnn|{i // 2}", "unit": NAMES[i % 2][1]}
        for i in range(2 * models)
    ]
    return json.dumps({"format_version": 1, "columns": columns}, indent=2).encode() + b"\n"


def mutate(data: bytes, largest: int, seed: int) -> bytes:
    chance = random.Random(seed)
    if chance.random() < 0.6:
        try:
            return data[:1] + mutate_json(data[1:], chance, ODD)[: largest - 1]
        except (ValueError, RecursionError, OverflowError):
            pass
    return atheris.Mutate(data, largest)


def main() -> None:
    table = os.path.join(workplace(), "table")

    def check(data: bytes) -> None:
        n = 1 + (data[0] % 8 if data else 0)
        scores = b" ".join(([b"0.5", b"2.718282"] * n)[:n])
        rows = b"".join(b"a%d ||| b ||| %b\n" % (i, scores) for i in range(ROWS))
        Path(table).write_bytes(rows)
        Path(sidecar_path(table)).write_bytes(data[1:])
        try:
            own = read_sidecar(table)
            columns = TableColumns.read(table)
        except (InputError, OptionError) as error:
            told(error, 1000)
            return
        for column in own or ():
            assert 1 <= column.column <= len(columns)
            for text in (column.feature, column.model, column.unit):
                assert text.isprintable(), text

    fuzz(check, [bytes([n]) + sidecar(n, models) for n, models in ((0, 1), (5, 1), (3, 2))], 4096, mutate=mutate)


if __name__ == "__main__":
    main()
