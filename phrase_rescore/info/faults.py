"""Faults of rows: those that annotate refuses, and of the others those that some Moses program mishandles.

Names of programs: ``PhraseDictionaryMemory`` is the decoder's text table (``TM/RuleTable/LoaderStandard.cpp``), ``moses2`` the
other decoder's (``moses2/TranslationModel/Memory``), ``processPhraseTableMin`` makes CompactPT (``TM/CompactPT``),
``CreateOnDiskPt`` PhraseDictionaryOnDisk (``OnDiskPt``), ``CreateProbingPT`` ProbingPT (``probingpt``), ``processPhraseTable``
the old binary tables (``TM/PhraseDictionaryTree.cpp``). ``TM/`` is ``moses/TranslationModel/``.
"""

import functools
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.moses.table import SEPARATOR, WORD, split_fields, words

MEMORY, MOSES2, COMPACT, ON_DISK, PROBING, BINARY = (
    "PhraseDictionaryMemory", "moses2", "processPhraseTableMin", "CreateOnDiskPt", "CreateProbingPT", "processPhraseTable",
)  # fmt: skip
_MIN_SCORE = {"filter-model-given-input.pl -MinScore, threshold-filter.perl, filter-pt": "take the wrong score"}


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
        _of(MEMORY, MOSES2, COMPACT, ON_DISK, PROBING, BINARY): "take what is before the first bar for the word"}),
    "overflow": Fault("rows with a score above 3.4e38, the largest 32-bit float", {
        _of(MEMORY, MOSES2, PROBING): "infinite feature", _of(COMPACT, ON_DISK, BINARY): "feature 88.7"}),
    "negative": Fault("rows with a negative score", {  # the logarithm is taken of every score: moses/Util.h
        _of(MEMORY, MOSES2, ON_DISK, PROBING): "NaN feature: the phrase pair is lost without a message",
        COMPACT: "stops", BINARY: "feature -87.5"}),
    "zero": Fault("rows with a score of 0 or below 7e-46", {  # FloorScore, moses/Util.h
        _of(MEMORY, MOSES2, COMPACT, ON_DISK, PROBING): "feature -100", BINARY: "feature -87.5"}),
    "score_blanks": Fault("rows with doubled blanks among the scores", {  # StoreTarget.cpp:148-161
        PROBING: "reads an additional score of 0", **_MIN_SCORE}),
    "score_tabs": Fault("rows with a tab among the scores", {  # OnDiskPt/Main.cpp:109-186: strtok on blanks
        _of(PROBING, ON_DISK): "lose a score", **_MIN_SCORE}),
    "tabs": Fault("rows with a tab outside the scores", {ON_DISK: "takes it for a part of a word"}),
    "source_blanks": Fault("rows with superfluous blanks in the source", {  # filter-model-given-input.pl:346-373
        "filter-model-given-input.pl": "leaves them out, whatever the input"}),
    "glued_separators": Fault("rows with a separator that has no blank beside it", {
        _of(ON_DISK, "filter-model-given-input.pl", "threshold-filter.perl", "filter-pt"): "do not see the separator"}),
    "no_alignment": Fault("rows without a field for the alignment", {  # PhraseTableCreator.cpp:1052-1073
        _of(COMPACT, BINARY): "stop (by default)"}),
    "empty_alignment": Fault("rows with an empty alignment", {COMPACT: "stops (-encoding None does not)"}),
    "alignment": Fault("rows with an alignment that is not a list of points such as 0-0", {MEMORY: "stops"}),
    "n_fields": Fault("rows with another number of fields than the first", {BINARY: "stops"}),  # :500-509
    "sparse": Fault("rows with an odd number of words in the sparse scores", {  # ScoreComponentCollection.cpp:225-239
        MEMORY: "takes any number for the last", BINARY: "stops"}),
    "properties": Fault("rows with a property {{…}} that Moses does not know", {  # moses/PP/Factory.cpp:61-92
        _of(MEMORY, ON_DISK): "stop"}),
    "carriage_returns": Fault("rows that end in CR", {_of(ON_DISK, BINARY): "keep it in the last field"}),
    "nul_bytes": Fault("rows with a NUL byte", {ON_DISK: "cuts the row there"}),  # strcpy, Main.cpp:112
    "unsorted": Fault("rows whose source should stand before that of the row before (LC_ALL=C sort)", {
        COMPACT: "stops", _of(ON_DISK, BINARY): "stop or lose phrases"}),  # BlockHashIndex.h:148-154, PhraseNode.cpp
    "sources_apart": Fault("sources that come again after others", {  # probingpt/storing.cpp:123-190
        PROBING: "never finds the later ones", _of(ON_DISK, BINARY): "stop or lose phrases",
        "filter-pt, prunePhraseTable, filter-rule-table": "take each run for all of the source"}),
}  # fmt: skip

_KNOWN_PROPERTIES = frozenset(  # moses/PP/Factory.cpp:61-69
    b"Counts SourceLabels TargetConstituentBoundariesLeft TargetConstituentBoundariesRightAdjacent "
    b"TargetPreferences Tree SpanLength NonTermContext Orientation".split()
)
_POINTS = re.compile(rb"[ \t]*+(?:\d++-\d++(?:[ \t]++|\Z))*+")
_GLUED = re.compile(rb"(?<! )%b|%b(?! |\Z)" % (re.escape(SEPARATOR), re.escape(SEPARATOR)))
BAR = SEPARATOR[:1]


def row_faults(row: bytes, n_fields: int) -> list[str]:
    """Return the faults, keys of FAULTS, of a valid row without its newline; ``value_faults`` finds those of its numbers.

    The first row of the table has ``n_fields`` fields.
    """
    line = row.rstrip(b"\r")
    fields = split_fields(line)
    src, tgt, scores, alignment, _, sparse, properties = (*fields, *[b""] * 4)[:7]
    found: dict[str, object] = {
        "bars": BAR in src or BAR in tgt,
        "source_blanks": src.removesuffix(b" ") != b" ".join(words(src)),
        "glued_separators": _GLUED.search(line),
        "score_blanks": b"  " in scores,
        "score_tabs": b"\t" in scores,
        "tabs": line.count(b"\t") > scores.count(b"\t"),
        "no_alignment": len(fields) < 4,
        "empty_alignment": len(fields) > 3 and not words(alignment),
        "alignment": not _POINTS.fullmatch(alignment),
        "sparse": len(words(sparse)) % 2,
        "properties": not _KNOWN_PROPERTIES.issuperset(_keys(properties)),
        "n_fields": len(fields) != n_fields,
        "carriage_returns": line != row,
        "nul_bytes": b"\0" in row,
    }
    return [fault for fault, is_so in found.items() if is_so]


def _keys(properties: bytes) -> list[bytes]:
    """Return the keys of properties ``{{KEY …}}``, cut as in ``moses/TargetPhrase.cpp:363-392``."""
    return [item[: item.rfind(b"}") + 1].rstrip(b"}").split(b" ")[0] for item in properties.split(b"{{")[1:]]


@functools.lru_cache
def harmless_tail(n_fields: int) -> re.Pattern[bytes]:
    """Make the expression that matches tails without a fault, as ``plain_row`` cuts them; nearly all are."""
    if n_fields < 4:
        return re.compile(rb"(?!)")  # a row without an alignment has a fault
    listed, known = rb"(?: ++%b)*+" % WORD, b"|".join(sorted(_KNOWN_PROPERTIES))
    alignment, sparse = rb"(?: ++\d++-\d++)++", rb"(?: ++%b ++%b)*+" % (WORD, WORD)
    properties = rb"(?: ++\{\{(?:%b)(?: [^ \t\r\n\0|{}]++)*+\}\})*+" % known
    following = [alignment, listed, sparse, properties, *[listed] * n_fields][: n_fields - 3]
    return re.compile(b"".join(rb" ++%b%b" % (re.escape(SEPARATOR), field) for field in following) + rb" *+\n")


@functools.lru_cache(maxsize=10_000)
def tail_faults(tail: bytes, n_fields: int) -> tuple[str, ...]:
    """Examine what follows the scores of a plain row."""
    row = SEPARATOR.join((b"x ", b" x ", b" 1")) + tail.removesuffix(b"\n")
    return tuple(row_faults(row, n_fields))


def value_faults(values: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    """Find the rows of scores (rows, n_scores) that are mishandled because of their values as 32-bit floats."""
    with np.errstate(over="ignore", under="ignore"):
        held = values.astype(np.float32)
    masks = {"overflow": np.isinf(held), "negative": held < 0, "zero": held == 0}
    return {kind: mask.any(axis=1) for kind, mask in masks.items() if mask.any()}
