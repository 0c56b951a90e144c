"""Columns of ours that a table has already, told by their looks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from phrase_rescore.fields import words
from phrase_rescore.phrase_table import TableRow


def looks_annotated(rows: Sequence[TableRow]) -> bool:
    """Whether the last two columns of all rows are a probability and exp(a count), or their logarithms."""
    pairs = [tuple(map(float, words(row.fields[2].strip())[-2:])) for row in rows if row.n_scores > 2]

    def is_count(x: float) -> bool:
        n = round(math.log(x)) if 1 <= x < 1e39 else -1
        return n >= 0 and math.isclose(x, math.exp(n), rel_tol=1e-5)  # 2.718, Moses' own constant, is none of ours

    as_exp = all(0 < p <= 1 and is_count(n) for p, n in pairs)
    as_log = all(p <= 0 and n >= 0 and n.is_integer() for p, n in pairs)
    telling = rows[0].n_scores > 4 or any(n not in (0.0, 1.0) for _, n in pairs)  # four plain scores may all be 1
    return len(pairs) == len(rows) > 0 and (as_exp or as_log) and telling
