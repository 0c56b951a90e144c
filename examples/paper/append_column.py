"""Append a column of numbers to the scores of a phrase table: a feature of any origin, to be tuned like the others.

usage: append_column.py TABLE COLUMN > NEW_TABLE

COLUMN has a number above 0 for every row of TABLE, of which Moses will take the logarithm. Either may be compressed.
"""

import itertools
import sys

from phrase_rescore.errors import RescoreError
from phrase_rescore.files.streams import open_input
from phrase_rescore.moses.phrase_table import parse_row, with_scores


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    table, column = sys.argv[1:]
    with open_input(table) as rows, open_input(column) as numbers:
        for line, (row, number) in enumerate(itertools.zip_longest(rows, numbers), 1):
            if row is None or number is None:
                sys.exit(f"append_column.py: {table if row is None else column}: ends before line {line:,} of the other file")
            if not float(number) > 0:
                sys.exit(
                    f"append_column.py: {column}:{line}: {number.strip().decode()} is not above 0; Moses takes its logarithm"
                )
            fields = parse_row(row.removesuffix(b"\n")).fields
            sys.stdout.buffer.write(with_scores(fields, 0, b" " + number.strip()) + b"\n")


if __name__ == "__main__":
    try:
        main()
    except RescoreError as error:
        sys.exit(f"append_column.py: {error}")
