"""Turn the options of ``phrase-rescore generate`` into library calls."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from cloup import option_group

from phrase_rescore.cli.options import (
    TEXT,
    Number,
    PathName,
    Scores,
    device_option,
    digits_option,
    flush_option,
    grouped_command,
    lowercase_option,
    model_option,
    number_option,
    path_option,
    quiet_option,
)
from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, SOURCES, TEMPERATURES, TOP_K

if TYPE_CHECKING:
    from phrase_rescore.moses.text import PhraseReader
    from phrase_rescore.queries.generate import Sources

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
        "--from-table", type=(Number(SOURCES), _SAMPLED), metavar="N TABLE", shell_complete=_SAMPLED.shell_complete,
        help="Take N distinct sources of TABLE at random, by --seed.",
    ),
    path_option(
        "--from-vectors", role=Role.READ, metavar="FILE.npy",
        help="Take phrase vectors, which 'embed' wrote, in place of sources.",
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
        "--format", "form", type=click.Choice(["tsv", "jsonl", "moses"]), default="tsv", show_default=True,
        help="jsonl writes an object for every source. moses writes rows of a phrase table; it needs --like and --fill.",
    ),
    path_option("--table", role=Role.READ, metavar="TABLE", help="Add a column: 1 if TABLE has the pair, else 0."),
    click.option("--only-new", is_flag=True, help="Leave out pairs that --table has."),
    path_option(
        "--like", role=Role.READ, metavar="TABLE",
        help="Write rows like those of TABLE, without what it has. With --format moses.",
    ),
    click.option(
        "--fill", type=Scores(), metavar="VALUES",
        help="Fill the other score columns with one value, or with one for each, commas between. With --format moses.",
    ),
    digits_option,
)  # fmt: skip
@option_group("Machine", device_option("cpu"))
@quiet_option
def command(
    model_dir: str, from_table: tuple[int, str] | None, from_vectors: str | None, form: str, table: str | None,
    only_new: bool, like: str | None, fill: tuple[bytes, ...] | None, tokenize: str | None, lowercase: bool, flush: bool,
    digits: int, device: str, quiet: bool, **search: Any,
) -> None:  # fmt: skip
    """Read source phrases from standard input, one a line, and write the target phrases that the model finds most
    probable. A line has source, target, natural log p(target | source) and the number of unknown words, with tabs between.
    log p is that of 'score'. An inverse model reads target phrases and proposes sources; the columns keep their order.

    \b
    set -o pipefail; echo 'search' | phrase-rescore generate -n 5
    set -o pipefail; echo 'search' | phrase-rescore generate --random --temperature 0.7 --seed 3
    phrase-rescore generate --from-table 1000 phrase-table.gz -n 1 --table phrase-table.gz --only-new
    phrase-rescore generate --from-table 9 phrase-table.rnn.gz --format moses --like phrase-table.rnn.gz --fill 0.001

    Phrases must be tokenized as in the table, special characters escaped (&apos; &#91;), unless --tokenize does it. Hypotheses
    are never empty. They have only words of the model's vocabulary, unless --unk is given.
    """
    from phrase_rescore.cli.terminal import byte_bar, count_bar, say, write_out
    from phrase_rescore.moses.text import PhraseReader, Prepare, as_written
    from phrase_rescore.queries.generate import Generation, JsonWriter, RowWriter, Search, TsvWriter
    from phrase_rescore.queries.tables import layout_like
    from phrase_rescore.rnn.checkpoint import load
    from phrase_rescore.rnn.translator import Translator
    from phrase_rescore.runtime import prepare, resolve_device, usable_cores

    _check(SimpleNamespace(**click.get_current_context().params))
    prepare_line: Prepare = as_written
    if tokenize is not None:
        from phrase_rescore.moses.text import TypedText

        prepare_line = TypedText(tokenize, lowercase)
    prepare(usable_cores())
    checkpoint = load(model_dir)
    read, predicted = checkpoint.sides
    if form == "moses" and checkpoint.factors[predicted == "target"] is not None:
        raise OptionError(f"--format moses needs whole words; {model_dir} proposes one factor of the {predicted} alone")
    for side, share in zip(("source", "target"), checkpoint.unk_shares, strict=True):
        if share == 0 and (side == read or search["unk"]):
            say(f"warning: no {side} word was unknown in training: what is proposed with such a word means nothing")
    if like is not None and fill is not None:
        writer: TsvWriter | JsonWriter | RowWriter = RowWriter(checkpoint, layout_like(like, fill, checkpoint, digits))
        table, only_new = table or like, True
    else:
        writer = (JsonWriter if form == "jsonl" else TsvWriter)(checkpoint, digits)
    settings = Search(**{name: value for name, value in search.items() if value is not None})
    translator = Translator(checkpoint, resolve_device(device))
    reader = PhraseReader(read, checkpoint.factors[read == "target"], prepare_line)
    sources, streamed = _sources(reader, checkpoint.model.config.hidden, from_table, from_vectors, search["seed"], flush, quiet)
    with (
        byte_bar((table,) if table else (), quiet or not table, "table") as table_bar,
        count_bar("generating", "phrases", quiet, scale=False) as bar,
    ):
        generation = Generation(translator, settings, writer, table, only_new, table_bar.update, bar.update)
        write_out(generation.run(sources))
    if not quiet and not streamed:
        for line in generation.report():
            say(line)


def _sources(
    reader: PhraseReader,
    hidden: int,
    from_table: tuple[int, str] | None,
    from_vectors: str | None,
    seed: int,
    flush: bool,
    quiet: bool,
) -> tuple[Iterator[Sources], bool]:
    """Return the sources, and whether every line is answered at once."""
    from phrase_rescore.cli.terminal import byte_bar, say
    from phrase_rescore.files.blocks import read_rows
    from phrase_rescore.files.inputs import display_name, standard_input
    from phrase_rescore.queries.generate import AT_ONCE, sources_of_lines, sources_of_phrases, sources_of_vectors
    from phrase_rescore.queries.tables import sampled_phrases

    if from_table:
        (n, table), side = from_table, reader.side
        with byte_bar((table,), quiet, "phrases") as bar:
            phrases = sampled_phrases(table, side, n, seed, bar.update)
        if len(phrases) < n:
            say(f"{display_name(table)} has only {len(phrases):,} distinct {side} phrases")
        return sources_of_phrases(phrases, reader, display_name(table)), False
    if from_vectors:
        return sources_of_vectors(from_vectors, hidden), False
    lines = standard_input()
    at_once = 1 if flush or lines.isatty() else AT_ONCE
    return sources_of_lines(read_rows(lines), reader, display_name("-"), at_once), at_once == 1


def _check(asked: SimpleNamespace) -> None:
    """Raise OptionError if the options that were given contradict each other."""
    moses, random = asked.form == "moses", asked.random
    asks_table, no_lines = moses or asked.table is not None, bool(asked.from_table or asked.from_vectors)
    sharpened = asked.temperature is not None or asked.top_k is not None
    stdin_twice = asked.table == "-" and (asked.from_table is None or asked.from_table[1] == "-")
    contradictions = [
        (random and asked.beam, "--beam finds the most probable hypotheses, --random draws them; give one of the two"),
        (sharpened and not random, "--temperature and --top-k are for hypotheses drawn at random; add --random"),
        (moses and (asked.like is None or asked.fill is None),
         "--format moses needs --like TABLE, whose rows to be like, and --fill VALUES for its other columns"),
        (not moses and (asked.like is not None or asked.fill is not None),
         "--like and --fill are for rows of a phrase table; add --format moses"),
        (moses and asked.unk, "--unk with --format moses: Moses would take UNK, which stands for many words, for one"),
        (asked.only_new and asked.table is None, "--only-new needs --table TABLE, to see what is new"),
        (asked.from_table and asked.from_vectors, "--from-table and --from-vectors: give one of the two"),
        (asked.from_vectors is not None and asks_table,
         "--from-vectors has no phrases to look for in a table; leave out --table and --format moses"),
        (no_lines and (asked.tokenize is not None or asked.flush),
         "--tokenize and --flush are for lines of standard input; leave out --from-table and --from-vectors"),
        (asked.flush and asks_table, "--flush answers at once, but --table and --format moses need all phrases first"),
        (asked.lowercase and asked.tokenize is None, "--lowercase is for typed text; name the language with --tokenize LANG"),
        (stdin_twice, "--table -: phrases are read from standard input; name a file"),
    ]  # fmt: skip
    for contradicts, message in contradictions:
        if contradicts:
            raise OptionError(message)
