"""Append columns of numbers to the scores of a phrase table: features of any origin, to be tuned like the others.

usage: append_column.py TABLE COLUMN... > NEW_TABLE

A COLUMN has a number above 0 for every row of TABLE, of which Moses will take the logarithm. Any may be compressed.
"""

import itertools
import sys
from contextlib import ExitStack

from phrase_rescore.errors import RescoreError
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.table import cut_after_scores, parse_row


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with ExitStack() as files:
        lines = [files.enter_context(open_input(name)) for name in sys.argv[1:]]
        for line, (row, *numbers) in enumerate(itertools.zip_longest(*lines), 1):
            for name, found in zip(sys.argv[1:], (row, *numbers), strict=True):
                if found is None:
                    sys.exit(f"append_column.py: {name}: ends before line {line:,} of another file")
            for name, number in zip(sys.argv[2:], numbers, strict=True):
                if not float(number) > 0:
                    sys.exit(
                        f"append_column.py: {name}:{line}: {number.strip().decode()} is not above 0; Moses takes its logarithm"
                    )
            head, tail = cut_after_scores(parse_row(row.removesuffix(b"\n")).fields)
            new = b"".join(b" " + number.strip() for number in numbers)
            sys.stdout.buffer.write(head + new + tail + b"\n")


if __name__ == "__main__":
    try:
        main()
    except RescoreError as error:
        sys.exit(f"append_column.py: {error}")
