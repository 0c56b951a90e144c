"""Two sides of pairs: one text twice, lines that are shifted or of another text."""

import numpy as np
import pytest

from phrase_rescore.errors import InputError
from phrase_rescore.moses.parallel import Sides

LENGTHS = np.random.default_rng(1).integers(4, 40, 2000)
SOURCE = [b" ".join([b"s"] * n) for n in LENGTHS]
TARGET = [b" ".join([b"t"] * n) for n in LENGTHS + np.random.default_rng(2).integers(-3, 4, 2000)]
OTHER = [b" ".join([b"t"] * n) for n in np.random.default_rng(3).integers(4, 40, 2000)]
ALIKE = [b"t t"] * 2000
KHMER = [b"s " * k + b"k" * n * 9 for n, k in zip(LENGTHS, np.random.default_rng(4).integers(2, 9, 2000), strict=True)]


def warnings(src: list[bytes], tgt: list[bytes], line_by_line: bool = True) -> list[str]:
    sides, warned, n = Sides(line_by_line), list[str](), min(len(src), len(tgt))
    for i in range(0, n, 700):
        sides.add(src[i : min(n, i + 700)], tgt[i : min(n, i + 700)])
    sides.check("s and t", warned.append)
    return warned


@pytest.mark.parametrize(("src", "tgt", "found"), [
    (SOURCE, TARGET, ""), (SOURCE, ALIKE, ""), (ALIKE, [*ALIKE[1:], b"t"], "equal in 100%"),
    (SOURCE[:499], OTHER[:499], ""), (SOURCE[:500], OTHER[:500], "in 100%"),
    (SOURCE[:1], TARGET[:1], ""), (SOURCE[1:], TARGET, "line N-1 of"), (SOURCE, TARGET[3:], "line N+3 of"),
    (SOURCE, OTHER, "in 100% of the pairs, the first near pair 1;"), (SOURCE[9:], TARGET, "in 100% of the pairs"),
    (SOURCE, TARGET[:1000] + OTHER[1000:], "in 50% of the pairs, the first near pair 1,001;"),
    ([b"a", b"a a"] * 1000, [b"a a", b"a", b"a", b"a a"] * 500, ""), (sorted(SOURCE, key=len), sorted(TARGET, key=len), ""),
    (KHMER, TARGET, ""), ([b"", *SOURCE[1:]], [*TARGET[:-1], b""], ""), (KHMER, OTHER, "in 100%"),
    (SOURCE, TARGET[:900] + SOURCE[900:], "equal in 55%"), (SOURCE, TARGET[:1100] + SOURCE[1100:], ""),
])  # fmt: skip
def test_lines_that_do_not_belong_together(src: list[bytes], tgt: list[bytes], found: str) -> None:
    warned = warnings(src, tgt)
    assert len(warned) == bool(found)
    assert all(found in line for line in warned)
    assert not (found and "equal" not in found and warnings(src, tgt, line_by_line=False)), "rows have their sides"


@pytest.mark.parametrize("text", [SOURCE, SOURCE[:1], ALIKE])
def test_one_text_on_both_sides_is_refused(text: list[bytes]) -> None:
    with pytest.raises(InputError, match="^s and t: source and target are the same text; "):
        warnings(text, list(text), line_by_line=False)


def test_nothing_is_not_one_text() -> None:
    assert warnings([], []) == []


def test_one_file_of_several_may_have_one_text() -> None:
    """Such as names, which are copied."""
    sides, warned = Sides(line_by_line=False), list[str]()
    sides.add(SOURCE, SOURCE)
    sides.check("names", warned.append, all_there_is=False)
    assert len(warned) == 1
