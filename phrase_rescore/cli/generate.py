"""Turn the options of ``phrase-rescore generate`` into a call of the library."""

from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli.options import (
    TEXT,
    PathName,
    device_option,
    digits_option,
    flush_option,
    grouped_command,
    lowercase_option,
    model_option,
    number,
    number_option,
    path_option,
    quiet_option,
)
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, SOURCES, TEMPERATURES, TOP_K

_SAMPLED = PathName(Role.READ)


@grouped_command(short_help="Let the model propose target phrases for source phrases.")
@option_group(
    "Most used",
    model_option(),
    number_option(
        "-n", "--number", range=HYPOTHESES, default=10, show_default=True, metavar="N", help="Hypotheses for each source."
    ),
    click.option(
        "--tokenize", type=TEXT, metavar="LANG", help="Tokenize and escape typed text as Moses does for this language: en."
    ),
)  # fmt: skip
@option_group(
    "Sources",
    click.option(
        "--from-table", type=(number(SOURCES), _SAMPLED), metavar="N TABLE", shell_complete=_SAMPLED.shell_complete,
        help="Take N distinct sources of TABLE at random, by --seed.",
    ),
    lowercase_option,
    flush_option,
)  # fmt: skip
@option_group(
    "Search",
    number_option("--beam", range=BEAMS, metavar="N", help="The width of the beam.  [default: the larger of 10 and --number]"),
    number_option(
        "--max-length", range=LENGTHS, default=20, show_default=True, metavar="N", help="Most words of a hypothesis."
    ),
    click.option("--unk", is_flag=True, help="Propose UNK too, which stands for every word that the model does not know."),
    click.option("--random", is_flag=True, help="Draw hypotheses at random instead of the most probable ones."),
    number_option(
        "--temperature", range=TEMPERATURES, metavar="T",
        help="Draw words in proportion to p^(1/T). Needs --random.  [default: 1]",
    ),
    number_option(
        "--top-k", range=TOP_K, metavar="K", help="Draw only from the K most probable words. Needs --random.  [default: all]"
    ),
    number_option(
        "--seed", range=SEEDS, default=1, show_default=True, metavar="N",
        help="The seed of --random and --from-table.",
    ),
)  # fmt: skip
@option_group(
    "Output",
    click.option(
        "--format", "form", type=click.Choice(["tsv", "jsonl"]), default="tsv", show_default=True,
        help="jsonl writes an object for every source.",
    ),
    path_option("--table", role=Role.READ, metavar="TABLE", help="Add a column: 1 if TABLE has the pair, else 0."),
    click.option("--only-new", is_flag=True, help="Leave out pairs that --table has."),
    digits_option,
)  # fmt: skip
@option_group("Machine", device_option("cpu"))
@quiet_option
def command(model_dir: str, from_table: tuple[int, str] | None, table: str | None, quiet: bool, **settings: Any) -> None:
    """Read source phrases from standard input, one a line, and write the target phrases that the model finds most
    probable. A line has source, target, natural log p(target | source) and the number of unknown words, with tabs between.
    log p is that of 'score'. An inverse model reads target phrases and proposes sources; the columns keep their order.

    \b
    set -o pipefail; echo 'search' | phrase-rescore generate -n 5
    set -o pipefail; echo 'search' | phrase-rescore generate --random --temperature 0.7 --seed 3
    phrase-rescore generate --from-table 1000 phrase-table.gz -n 1 --table phrase-table.gz --only-new

    Phrases must be tokenized as in the table, special characters escaped (&apos; &#91;), unless --tokenize does it. Hypotheses
    are never empty. They have only words of the model's vocabulary, unless --unk is given.
    """
    from phrase_rescore.api import generate
    from phrase_rescore.cli.terminal import byte_bar, count_bar, say, write_out

    sampled = (from_table[1],) if from_table else ()
    with (
        byte_bar(sampled, quiet or not sampled, "phrases") as sample_bar,
        byte_bar((table,) if table else (), quiet or not table, "table") as table_bar,
        count_bar("generating", "phrases", quiet, scale=False) as bar,
    ):
        proposals = generate(
            model_dir, from_table=from_table, table=table, **settings, on_sample=sample_bar.update,
            on_read=table_bar.update, on_sources=bar.update, tell=say, conclude=(lambda line: None) if quiet else say,
        )  # fmt: skip
        write_out(proposals)
