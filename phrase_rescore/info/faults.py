"""Faults of rows: those that annotate refuses, and of the others those that some Moses program mishandles.

Names of programs: ``PhraseDictionaryMemory`` is the decoder's text table (``TM/RuleTable/LoaderStandard.cpp``), ``moses2`` the
other decoder's (``moses2/TranslationModel/Memory``), ``processPhraseTableMin`` makes CompactPT (``TM/CompactPT``),
``CreateOnDiskPt`` PhraseDictionaryOnDisk (``OnDiskPt``), ``CreateProbingPT`` ProbingPT (``probingpt``). ``TM/`` is
``moses/TranslationModel/``.
"""

import functools
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.moses.table import SEPARATOR, WORD, split_fields, words

MEMORY, MOSES2, COMPACT, ON_DISK, PROBING = (
    "PhraseDictionaryMemory", "moses2", "processPhraseTableMin", "CreateOnDiskPt", "CreateProbingPT",
)  # fmt: skip
FILTER = "filter-model-given-input.pl"


def _of(*programs: str) -> str:
    return ", ".join(programs)


class Fault(NamedTuple):
    """A kind of bad row, and what programs do with it."""

    what: str  # with "rows", plural
    effects: dict[str, str]  # programs -> what they do


REFUSED = "refused"
# The facts are those of the Moses source of February 2025; the comment after one names the file that shows it
FAULTS: dict[str, Fault] = {
    REFUSED: Fault("rows that annotate refuses", {"annotate": "stops (--on-bad-row drop leaves them out)"}),
    "bars": Fault("rows with a bar within words", {  # moses/Word.cpp, OnDiskPt, StoreTarget.cpp, moses2/Word.cpp
        _of(MEMORY, MOSES2, COMPACT, ON_DISK, PROBING): "take what is before the first bar for the word"}),
    "overflow": Fault("rows with a score above 3.4e38, the largest 32-bit float", {
        _of(MEMORY, MOSES2, PROBING): "infinite feature", _of(COMPACT, ON_DISK): "feature 88.7"}),
    "negative": Fault("rows with a negative score", {  # the logarithm is taken of every score: moses/Util.h
        _of(MEMORY, MOSES2, ON_DISK, PROBING): "NaN feature: the phrase pair is lost without a message", COMPACT: "stops"}),
    "zero": Fault("rows with a score of 0 or below 7e-46", {  # FloorScore, moses/Util.h
        _of(MEMORY, MOSES2, COMPACT, ON_DISK, PROBING): "feature -100"}),
    "score_blanks": Fault("rows with doubled blanks among the scores", {  # StoreTarget.cpp:148-161
        PROBING: "reads an additional score of 0"}),
    "score_tabs": Fault("rows with a tab among the scores", {  # OnDiskPt/Main.cpp:109-186: strtok on blanks
        _of(PROBING, ON_DISK): "lose a score"}),
    "tabs": Fault("rows with a tab outside the scores", {ON_DISK: "takes it for a part of a word"}),
    "source_blanks": Fault("rows with superfluous blanks in the source", {  # filter-model-given-input.pl:346-373
        FILTER: "leaves them out, whatever the input"}),
    "glued_separators": Fault("rows with a separator that has no blank beside it", {
        _of(ON_DISK, FILTER): "do not see the separator"}),
    "no_alignment": Fault("rows without an alignment", {  # PhraseTableCreator.cpp:1052-1073
        COMPACT: "stops (-encoding None takes an empty field)"}),
    "alignment": Fault("rows with an alignment that is not a list of points such as 0-0", {MEMORY: "stops"}),
    "sparse": Fault("rows with an odd number of words in the sparse scores", {  # ScoreComponentCollection.cpp:225-239
        MEMORY: "takes any number for the last"}),
    "properties": Fault("rows with a property {{…}} that Moses does not know", {  # moses/PP/Factory.cpp:61-92
        _of(MEMORY, ON_DISK): "stop"}),
    "carriage_returns": Fault("rows that end in CR", {ON_DISK: "keeps it in the last field"}),
    "nul_bytes": Fault("rows with a NUL byte", {ON_DISK: "cuts the row there"}),  # strcpy, Main.cpp:112
    "unsorted": Fault("rows whose source should stand before that of the row before (LC_ALL=C sort)", {
        COMPACT: "stops", ON_DISK: "stops or loses phrases"}),  # BlockHashIndex.h:148-154
    "sources_apart": Fault("sources that come again after others", {  # probingpt/storing.cpp:123-190
        PROBING: "never finds the later ones", ON_DISK: "stops or loses phrases"}),
}  # fmt: skip

_KNOWN_PROPERTIES = frozenset(  # moses/PP/Factory.cpp:61-69
    b"Counts SourceLabels TargetConstituentBoundariesLeft TargetConstituentBoundariesRightAdjacent "
    b"TargetPreferences Tree SpanLength NonTermContext Orientation".split()
)
_POINTS = re.compile(rb"[ \t]*+(?:\d++-\d++(?:[ \t]++|\Z))*+")
_GLUED = re.compile(rb"(?<! )%b|%b(?! |\Z)" % (re.escape(SEPARATOR), re.escape(SEPARATOR)))
BAR = SEPARATOR[:1]


def row_faults(row: bytes) -> tuple[str, ...]:
    """Return the faults, keys of FAULTS, of a valid row without its newline; ``value_faults`` finds those of its numbers."""
    line = row.rstrip(b"\r")
    src, tgt, scores, alignment, _, sparse, properties = (*split_fields(line), *[b""] * 4)[:7]
    found: dict[str, object] = {
        "bars": BAR in src or BAR in tgt,
        "source_blanks": src.removesuffix(b" ") != b" ".join(words(src)),
        "glued_separators": _GLUED.search(line),
        "score_blanks": b"  " in scores,
        "score_tabs": b"\t" in scores,
        "tabs": line.count(b"\t") > scores.count(b"\t"),
        "no_alignment": not words(alignment),
        "alignment": not _POINTS.fullmatch(alignment),
        "sparse": len(words(sparse)) % 2,
        "properties": not _KNOWN_PROPERTIES.issuperset(_keys(properties)),
        "carriage_returns": line != row,
        "nul_bytes": b"\0" in row,
    }
    return tuple(fault for fault, is_so in found.items() if is_so)


def _keys(properties: bytes) -> list[bytes]:
    """Return the keys of properties ``{{KEY …}}``, cut as in ``moses/TargetPhrase.cpp:363-392``."""
    return [item[: item.rfind(b"}") + 1].rstrip(b"}").split(b" ")[0] for item in properties.split(b"{{")[1:]]


def _harmless() -> re.Pattern[bytes]:
    listed, known = rb"(?: ++%b)*+" % WORD, b"|".join(sorted(_KNOWN_PROPERTIES))
    alignment, sparse = rb"(?: ++\d++-\d++)++", rb"(?: ++%b ++%b)*+" % (WORD, WORD)
    properties = rb"(?: ++\{\{(?:%b)(?: [^ \t\r\n\0|{}]++)*+\}\})*+" % known
    bars = rb" ++" + re.escape(SEPARATOR)
    tail = b"(?:%b%b)*+" % (bars, listed)
    for field in (properties, sparse, listed):
        tail = b"(?:%b%b%b)?+" % (bars, field, tail)
    return re.compile(b"%b%b%b *+\n" % (bars, alignment, tail))


harmless_tail = _harmless()  # of tails without a fault, as ``plain_row`` cuts them


@functools.lru_cache(maxsize=10_000)
def tail_faults(tail: bytes) -> tuple[str, ...]:
    """Examine what follows the scores of a plain row."""
    return row_faults(SEPARATOR.join((b"x ", b" x ", b" 1")) + tail.removesuffix(b"\n"))


def value_faults(values: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    """Find the rows of scores (rows, n_scores) that are mishandled because of their values as 32-bit floats."""
    with np.errstate(over="ignore", under="ignore"):
        held = values.astype(np.float32)
    masks = {"overflow": held == np.inf, "negative": held < 0, "zero": held == 0}
    return {kind: mask.any(axis=1) for kind, mask in masks.items() if mask.any()}
