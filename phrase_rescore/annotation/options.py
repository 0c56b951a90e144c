"""The options of an annotation. No torch here: ``--help`` shows their ranges and defaults."""

from dataclasses import dataclass, field

from phrase_rescore.files.outputs import GZIP_LEVEL, GZIP_LEVELS
from phrase_rescore.moses.columns import ColumnFormat
from phrase_rescore.ranges import BLOCK_SIZES, JOBS, TABLE_ROWS, THREADS, Checked, Words, ranged
from phrase_rescore.runtime import PRECISIONS


@dataclass(frozen=True)
class AnnotateOptions(Checked):
    """How a table is annotated, by the names of the command's options."""

    columns: ColumnFormat = field(default_factory=ColumnFormat)
    on_bad_row: str = ranged("fail", Words(("fail", "drop")))  # drop: keep it in a file of its own
    allow_untrained_unk: bool = False
    expect_rows: int | None = ranged(None, TABLE_ROWS)
    strict: bool = False
    resume: bool = False
    block_rows: int | None = ranged(None, BLOCK_SIZES)
    gzip_level: str = ranged(GZIP_LEVEL, GZIP_LEVELS)
    jobs: int | None = ranged(None, JOBS)  # blocks in work at a time
    threads: int = ranged(1, THREADS)  # cores on each
    device: str = "auto"
    precision: str = ranged("float32", PRECISIONS)
    cluster: str | None = None
    scores: tuple[str, ...] = ()  # files of a number a row, each one more column, after those of the models
    log: bool = False  # they have natural logarithms

    @property
    def drops(self) -> bool:
        return self.on_bad_row == "drop"
