"""What four Moses programs take from one row of a phrase table, written down again in Python.

Every reader takes plain decimal scores alone. It follows the Moses source of February 2025 in its default release build,
where `assert` does nothing.
It takes one row as it stands in the file, line end included, and returns a `Reading`, or raises `Refused` where the
program would throw, abort, skip the row or silently corrupt what it keeps.

Words are the bytes between separators, before the decoder looks for factors or non-terminals in them. `TM/` stands
for `moses/TranslationModel/`; numbers behind a colon are lines of the Moses file.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SEPARATOR = b"|||"
TRIMMED = b" \t\n\r"
FLT_MAX = float(np.finfo(np.float32).max)
LOWEST_SCORE = -100.0  # moses/TypeDef.h:67
PROPERTIES = frozenset(  # the registered keys, moses/PP/Factory.cpp:61-69
    b"Counts SourceLabels TargetConstituentBoundariesLeft TargetConstituentBoundariesRightAdjacent "
    b"TargetPreferences Tree SpanLength NonTermContext Orientation".split()
)
MERT_VALUE = re.compile(r"-?[-0-9.\-e]+")  # mert-moses.pl:1500-1535

_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")  # info counts rows with other scores as refused
_C_SPACE = b" \t\n\v\f\r"


class Refused(Exception):
    """The program would throw, abort, skip the row or keep something else than the row says; the text says which."""


@dataclass(frozen=True)
class Reading:
    """A phrase pair and its feature values: 32-bit floats, after natural logarithm and floor."""

    source: tuple[bytes, ...]
    target: tuple[bytes, ...]
    scores: tuple[float, ...]


# Parsers of numbers: one token in, one 32-bit float out. Decimal text is rounded twice, by way of a double, as atof does
# it; the other two round once, which makes a difference in the last bit for about one text in 500 million.


def string_to_float(token: bytes) -> float:
    """double_conversion's StringToFloat with NO_FLAGS: the whole token or nothing (util/double-conversion)."""
    if not _NUMBER.fullmatch(token):
        raise Refused(f"throws: bad score {token!r}")
    return _float32(float(token))


def atof(token: bytes) -> float:
    """C's atof (moses2/legacy/Util2.h:82-87): the longest prefix; 0 if it is no number."""
    prefix = _NUMBER.match(token.lstrip(_C_SPACE))
    return _float32(float(prefix[0])) if prefix else 0.0


def stream_to_float(token: bytes) -> float:
    """`stringstream >> float` (moses/Util.h:114-120): the longest prefix; 0 if it is no number, else at most FLT_MAX.

    A token of nothing but white space, such as a lone CR, leaves the variable as it was: uninitialised.
    """
    if not token.strip(_C_SPACE):
        raise Refused("corrupts: an empty score is an uninitialised float")
    return min(max(atof(token), -FLT_MAX), FLT_MAX)


def log_and_floor(score: float) -> float:
    """FloorScore(TransformScore(score)) (moses/Util.h:370-373, 394-397): NaN and +inf pass the floor unchanged."""
    with np.errstate(all="ignore"):
        feature = _float32(float(np.log(np.float64(score))))
    return LOWEST_SCORE if feature < LOWEST_SCORE else feature


def _float32(value: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(value))


# The four programs.


def read_loader_standard(row: bytes, num_scores: int) -> Reading:
    """LoaderStandard, the text table of PhraseDictionaryMemory (TM/RuleTable/LoaderStandard.cpp:166-238).

    Log and floor at load. A negative score is NaN without a message, because NaN is looked for before the logarithm
    only (:199-203). FilePiece takes one CR before the LF away (util/file_piece.cc:68-81).
    """
    line = _line(row)
    if row.endswith(b"\r\n"):
        line = line[:-1]
    fields = _fields(line, 3, "throws")
    if not _words(fields[0]):
        raise Refused("skips: empty source")
    features = _features(_words(fields[2]), string_to_float, num_scores, "throws")
    alignment, _counts, sparse, properties = (*fields[3:7], *[b""] * 4)[:4]
    for point in _words(alignment):
        if not re.fullmatch(rb"\d+-\d+", point):  # moses/TargetPhrase.cpp:236-254
            raise Refused(f"throws: bad alignment point {point!r}")
    if len(sparse.split()) % 2:  # moses/ScoreComponentCollection.cpp:225-239
        raise Refused("corrupts: the last sparse score has no value and stays uninitialised")
    _check_properties(properties)
    return Reading(_words(fields[0]), _words(fields[1]), features)


def read_probing(row: bytes, num_scores: int) -> Reading:
    """CreateProbingPT (probingpt/line_splitter.cpp:6-62, StoreTarget.cpp:106-218): trimmed fields 0 to 2.

    Scores are parted by exactly one blank (:148-161), and their number is never checked, so that a surplus or missing
    one shifts all bytes behind it (:73-83). Log and floor at decode (TM/ProbingPT.cpp:306-309).
    """
    source, target, scores, *_ = (field.strip(TRIMMED) for field in _fields(_line(row), 3, "throws"))
    return Reading(_words(source), _words(target), _features(scores.split(b" "), atof, num_scores, "corrupts"))


def read_on_disk(row: bytes, num_scores: int) -> Reading:
    """CreateOnDiskPt (OnDiskPt/Main.cpp:109-186): strtok on blanks only, a separator is a whole token `|||`.

    So a tab glues tokens together, a CR stays in the last token, and a NUL ends the line (strcpy, :112). The number of
    scores is only asserted: too few are filled up with 0, too many are written out of bounds (:181,
    OnDiskPt/TargetPhrase.cpp:76-80). Log and floor at decode (OnDiskPt/TargetPhrase.cpp:361-362).
    """
    fields: list[list[bytes]] = [[]]
    for token in _line(row).partition(b"\0")[0].split(b" "):
        if token == SEPARATOR:
            fields.append([])
        elif token:
            fields[-1].append(token)
    if len(fields) < 3:
        raise Refused(f"corrupts: {len(fields)} fields, at least 3 are needed")
    features = _features(fields[2], stream_to_float, num_scores, "corrupts")
    _check_properties(b" ".join(fields[6]) if len(fields) > 6 else b"")
    return Reading(tuple(fields[0]), tuple(fields[1]), features)


def read_compact(row: bytes, num_scores: int) -> Reading:
    """processPhraseTableMin, its default PREnc (TM/CompactPT/PhraseTableCreator.cpp:1052-1082, 1152-1173).

    Fields are trimmed, and the alignment must not be empty (:1064-1073). Log and floor at creation (:681-693); a NaN
    is no symbol of the Huffman code: "Cannot find symbol" (TM/CompactPT/CanonicalHuffman.h:161-164).
    """
    source, target, scores, alignment, *_ = (field.strip(TRIMMED) for field in _fields(_line(row), 4, "throws"))
    if not alignment:
        raise Refused("throws: PREnc needs an alignment")
    features = _features(_words(scores), stream_to_float, num_scores, "throws")
    if any(map(math.isnan, features)):
        raise Refused("throws: cannot find symbol for NaN")
    return Reading(_words(source), _words(target), features)


ALL_READERS: Mapping[str, Callable[[bytes, int], Reading]] = {
    "LoaderStandard": read_loader_standard,
    "CreateProbingPT": read_probing,
    "CreateOnDiskPt": read_on_disk,
    "processPhraseTableMin": read_compact,
}


def mert_accepts(value: float) -> bool:
    """Whether mert-moses.pl accepts this feature value as Moses prints it in an n-best list: 6 significant digits."""
    return MERT_VALUE.fullmatch(f"{value:.6g}") is not None


def _line(row: bytes) -> bytes:
    line = row.removesuffix(b"\n")
    if b"\n" in line:
        raise ValueError(f"more than one row: {row!r}")
    return line


def _fields(line: bytes, minimum: int, effect: str) -> list[bytes]:
    """The fields between raw substrings `|||`, untrimmed; blanks around them are not needed."""
    fields = line.split(SEPARATOR)
    if len(fields) < minimum:
        raise Refused(f"{effect}: {len(fields)} fields, at least {minimum} are needed")
    return fields


def _words(field: bytes) -> tuple[bytes, ...]:
    """Tokens between runs of blanks and tabs; no other byte separates, CR and U+00A0 included."""
    return tuple(re.findall(rb"[^ \t]+", field))


def _features(tokens: Sequence[bytes], parse: Callable[[bytes], float], num_scores: int, effect: str) -> tuple[float, ...]:
    if len(tokens) != num_scores:
        raise Refused(f"{effect}: {len(tokens)} scores instead of {num_scores}")
    return tuple(log_and_floor(parse(token)) for token in tokens)


def _check_properties(field: bytes) -> None:
    """A key that is not registered throws at load (moses/TargetPhrase.cpp:363-392, moses/PP/Factory.cpp:87-92)."""
    for item in field.split(b"{{")[1:]:
        key = item[: item.rfind(b"}") + 1].rstrip(b"}").split(b" ")[0]
        if key not in PROPERTIES:
            raise Refused(f"throws: unregistered property {key!r}")
