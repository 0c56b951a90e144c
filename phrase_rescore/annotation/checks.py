"""What is checked of a table while it is annotated: the rows of an interrupted run, the fit of its words."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from phrase_rescore.data.coverage import factor_counts, fit_warnings
from phrase_rescore.errors import InputError, RescoreError
from phrase_rescore.files.inputs import BLOCK_BYTES, Block, count_rows
from phrase_rescore.ranges import TABLE_ROWS, check
from phrase_rescore.rnn.checkpoint import SIDES, Checkpoint


def expected_rows(value: int | str | None) -> int | None:
    """Read ``--expect-rows``: a number, or a file whose rows are counted. Raises OptionError for a number out of range."""
    if isinstance(value, int):
        check("expect_rows", value, TABLE_ROWS)
    if not isinstance(value, str):
        return value
    return int(TABLE_ROWS.read(value)) if value.isascii() and value.isdigit() else count_rows(value)


def is_whole(block: Block, block_rows: int) -> bool:
    """Tell whether a block ended for its size, and not because the input did: more of the same input leaves it as it is."""
    return block.data.endswith(b"\n") and (len(block.data) >= BLOCK_BYTES or block.data.count(b"\n") == block_rows)


class InputCheck:
    """How much of the input is done, and the CRC-32 of those rows, by which a later run knows them."""

    def __init__(self, table: str) -> None:
        self._table, self.blocks, self.crc = table, 0, 0

    def skip_done(self, blocks: Iterator[Block], rows: int, hint: str) -> Iterator[Block]:
        """Yield the blocks, of ``rows`` rows together, that an interrupted run has done.

        Raises InputError, with a hint, if that run read other ones.
        """
        crc = 0
        for block in islice(blocks, self.blocks):
            crc = zlib.crc32(block.data, crc)
            yield block
        if crc != self.crc:
            raise InputError(self._table, f"its first {rows:,} rows are not those of the interrupted run", hint)

    def add(self, block: Block) -> None:
        """Count a block that is done."""
        self.blocks += 1
        self.crc = zlib.crc32(block.data, self.crc)


class FitCheck:
    """Whether the words of a table fit its models, each named by the prefix of its messages. Warns once, by ``warn``.

    Its methods raise RescoreError for words that do not fit if it is ``strict``.
    """

    def __init__(self, table: str, checkpoints: Mapping[str, Checkpoint], strict: bool, warn: Callable[[str], None]) -> None:
        self._table, self._checkpoints, self._strict, self._warn = table, checkpoints, strict, warn
        self.misfits: list[str] | None = None  # None: not checked yet

    def check(self, words: Sequence[Counter[bytes]]) -> None:
        """Compare the words of source and target with the models, the first time that it is called."""
        if self.misfits is not None:
            return
        self.misfits = []
        for prefix, c in self._checkpoints.items():
            source, target = (factor_counts(words[i], c.factors[i], side) for i, side in enumerate(SIDES))
            for misfit in fit_warnings((source, target), (c.src_vocab, c.tgt_vocab), c.unk_shares):
                self.misfits.append(prefix + misfit)
                self._judge(prefix + misfit)
                self._warn(prefix + misfit)

    def restore(self, misfits: list[str] | None) -> None:
        """Take over what an interrupted run found."""
        self.misfits = misfits
        for misfit in misfits or ():
            self._judge(misfit)

    def _judge(self, misfit: str) -> None:
        if self._strict:
            raise RescoreError(f"{self._table}: {misfit} (--strict)")
