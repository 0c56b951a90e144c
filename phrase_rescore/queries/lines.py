"""Lines that a person or another program writes, of which each gets its answer, in order."""

import io
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from phrase_rescore.data.vocabulary import untrained_unk
from phrase_rescore.errors import silent
from phrase_rescore.files.inputs import read_rows
from phrase_rescore.moses.text import Prepare, TypedText, as_written, parsed_lines
from phrase_rescore.rnn.checkpoint import SIDES, Checkpoint, load
from phrase_rescore.runtime import prepare, usable_cores

T = TypeVar("T")


def ready_model(
    model_dir: str | os.PathLike[str], warn: Callable[[str], object] = silent, consequence: str = "", reads_alone: bool = False
) -> Checkpoint:
    """Load a model and configure torch for it. Warn of sides (``reads_alone``: of the one read) without unknown words."""
    prepare(usable_cores())
    checkpoint = load(os.fspath(model_dir))
    shares = zip(SIDES, checkpoint.unk_shares, strict=True)
    of_interest = {side: share for side, share in shares if not reads_alone or side == checkpoint.sides[0]}
    for warning in untrained_unk(of_interest, consequence):
        warn(warning)
    return checkpoint


def answers_at_once(stream: io.BufferedReader, flush: bool) -> bool:
    """Tell whether every line is answered before the next one is read: with ``--flush``, and at a terminal."""
    return flush or stream.isatty()


def line_batches(stream: io.BufferedReader, parse: Callable[[bytes], T], most: int, flush: bool = False) -> Iterator[list[T]]:
    """Yield what ``parse`` makes of the lines of standard input: of ``most`` lines, or of one where each is answered at once.

    Raises InputError, with the line, where ``parse`` raises RowError; what comes of the lines before it comes first.
    """
    return parsed_lines(read_rows(stream), parse, "<stdin>", 1 if answers_at_once(stream, flush) else most)


def typed(language: str | None, lowercase: bool) -> Prepare:
    """Return what makes tokens of typed text in a language; without one the lines are tokenized already."""
    return as_written if language is None else TypedText(language, lowercase)
