"""Reads the bitext that ``train-nmt`` was given: two files, line N of one with line N of the other."""

from collections.abc import Generator, Sequence
from itertools import islice

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.moses.file_kinds import TEXT, check_kind
from phrase_rescore.moses.pairs import PairBlock
from phrase_rescore.moses.table import words
from phrase_rescore.progress import Progress
from phrase_rescore.training.pair_source import PairInputs

_LINES = 4096  # of a file, at a time


def bitext(inputs: Sequence[str]) -> PairInputs:
    """Return the inputs, source and target, and how they are read. Raises OptionError if there are not two files."""
    if len(inputs) != 2:
        raise OptionError("name two files, the source and the target of the training text")
    return PairInputs([tuple(inputs)], _read_bitext, {"form": "bitext"})


def _read_bitext(source: str, target: str, on_read: Progress | None = None) -> Generator[PairBlock]:
    """Read all pairs but those with an empty side. Raises InputError if a file has more lines than the other, or none."""
    lines = 0
    with open_input(source, on_read) as src_stream, open_input(target, on_read) as tgt_stream:
        sides = read_rows(src_stream), read_rows(tgt_stream)
        while True:
            src, tgt = (list(islice(rows, _LINES)) for rows in sides)
            if not lines:
                check_kind(display_name(source), src, TEXT)
                check_kind(display_name(target), tgt, TEXT)
            lines += min(len(src), len(tgt))
            if len(src) != len(tgt):
                short, long = (source, target) if len(src) < len(tgt) else (target, source)
                hint = "the files of a bitext have a line for each line of the other"
                raise InputError(display_name(short), f"has {lines:,} lines, and {display_name(long)} has more", hint)
            if not src:
                return
            phrases = [[b" ".join(words(row.rstrip(b"\r\n"))) for row in rows] for rows in (src, tgt)]
            kept = [pair for pair in zip(*phrases, strict=True) if all(pair)]
            yield PairBlock([source for source, _ in kept], [target for _, target in kept])
