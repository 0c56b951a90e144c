"""Declare the options of score, score-lm, generate and embed, which ask a model, and of info and report."""

import os
import shlex
import sys
from functools import partial
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import (
    FILE,
    MODEL,
    OUTPUT,
    TEXT,
    PathName,
    device_option,
    flag,
    lm_option,
    model_option,
    option,
    quiet_option,
)
from phrase_rescore.errors import OptionError
from phrase_rescore.ranges import BEAMS, COLUMNS, DIGITS, HYPOTHESES, LENGTHS, SAMPLE_ROWS, SEEDS

_tokenize_option = option("--tokenize", TEXT, "Tokenize typed text of this language as Moses does: en.", "LANG")


@options.command(short_help="Score phrase pairs from standard input.")
@model_option()
@flag("--per-word", "Add a third column: the words predicted and </s>, each followed by its log p.")
@option("--tokenize", TEXT, "Tokenize typed text of these two languages as Moses does: en fr.", "SOURCE TARGET", nargs=2)
@options.flush_option
@options.digits_option
@device_option("cpu")
@options.threads_option
def score(model_dir: str, **settings: Any) -> None:
    """Score phrase pairs from standard input, a pair a line: 'source ||| target', as in a phrase table (further fields are
    ignored), or source, tab, target.

    For every line, write a line with natural log p(target | source), tab, the number of target words that the model does
    not know. An inverse model gives log p(source | target) and counts source words.

    \b
    phrase-rescore score < pairs.tsv
    set -o pipefail; echo 'search ||| rechercher' | phrase-rescore score --per-word

    Phrases must be tokenized as in the table, special characters escaped (&apos; &#91;). --tokenize does it, and writes words
    in lower case where the model knows them only so.
    """
    from phrase_rescore.cli.terminal import warn, write_out
    from phrase_rescore.files.inputs import standard_input
    from phrase_rescore.queries.score import score

    write_out(score(standard_input(), model_dir, **settings, warn=warn))


@options.command(short_help="Score text with a language model.")
@click.argument("text", type=FILE, default="-", required=False)
@lm_option()
@flag("--per-word", "Add a third column: the words and </s>, each followed by its log p.")
@_tokenize_option
@options.flush_option
@options.digits_option
@device_option("cpu")
@options.threads_option
def score_lm(text: str, lm: str, **settings: Any) -> None:
    """Score TEXT, a sentence a line, tokenized as in training; standard input by default. For every line, write a line with
    natural log p, </s> included, tab, the number of words that the model does not know.

    \b
    phrase-rescore score-lm dev.fr -m nlm > dev.scores
    set -o pipefail; echo 'bonjour à tous' | phrase-rescore score-lm -m nlm --per-word

    At the end standard error shows the perplexity of the text, as KenLM's query does: with unknown words (OOVs), scored as
    the unknown word, and without them.
    """
    from phrase_rescore.cli.terminal import say, warn, write_out
    from phrase_rescore.queries.score import score_lm

    write_out(score_lm(text, lm, **settings, say=say, warn=warn))


@options.command(short_help="Translate sentences, or propose target phrases.")
@option_group(
    "Most used",
    model_option(),
    option("-n --number", HYPOTHESES, "Hypotheses for each source.  [default: 10 phrases, 1 sentence]"),
    _tokenize_option,
)
@option_group(
    "Search",
    flag("--random", "Draw hypotheses at random instead of the most probable ones."),
    option("--beam", BEAMS, "The beam size.  [default: the larger of 10, of sentences 6, and --number]"),
    option("--max-length", LENGTHS, "The most words of a phrase.  [default: 20]"),
    flag("--unk", "Propose the unknown word UNK, too."),
    option("--seed", SEEDS, "The seed of --random.  [default: 1]"),
)
@option_group(
    "Lines", options.flush_option, option("--digits", DIGITS, "Significant digits of log p of phrases, 2 to 17.  [default: 7]")
)
@option_group("Machine", device_option("cpu"), options.threads_option)
@options.quiet_option
def generate(model_dir: str, quiet: bool, **settings: Any) -> None:
    """Read sources from standard input, one a line. With a model of train-nmt, translate sentences: a line each, or with -n
    above 1 an n-best list whose NMT0= is what rescore adds. Unknown words become the source words that they attend to.

    \b
    phrase-rescore generate -m nmt < test.en > test.nmt.out
    phrase-rescore generate -m nmt -n 12 < dev.en > dev.nmt.nbest

    With a model of train, propose the target phrases that are most probable. A line has source, target, natural
    log p(target | source) and the number of unknown words, with tabs between. log p is that of 'score'. An inverse model
    reads target phrases and proposes sources; the columns keep their order.

    \b
    phrase-rescore generate -n 5 < phrases.txt
    set -o pipefail; echo "I can't open the file." | phrase-rescore generate --tokenize en

    Phrases must be tokenized as in the table, special characters escaped (&apos; &#91;). --tokenize does it, and writes words
    in lower case where the model knows them only so. Hypotheses stay tokenized, as score takes them. They are never empty,
    and have only words of the model's vocabulary, unless --unk is given.
    """
    from phrase_rescore.cli.terminal import count_bar, say, warn, write_out
    from phrase_rescore.queries.generate import generate

    with count_bar("generating", "phrases", quiet, scale=False) as bar:
        write_out(generate(model_dir, **settings, on_sources=bar.update, say=partial(say, quiet=quiet), warn=warn))


@options.command(short_help="Write vectors of words and phrases.")
@model_option()
@options.out_option(": .txt or .vec, .tsv")
@option("--words side", ("source", "target"), "Write the embeddings of one side's words, not of phrases.")
@option(
    "--format form", ("txt", "tsv"), "word2vec's text format, or tabs.  [default: by the name of OUT; tsv on standard output]"
)
@_tokenize_option
@device_option("cpu")
@options.threads_option
@options.quiet_option
def embed(model_dir: str, out: str, side: Any, quiet: bool, **settings: Any) -> None:
    """Write the vectors c of phrases, from which the model's decoder starts. Phrases are lines of standard input, tokenized
    as in the table or by --tokenize. An inverse model reads target phrases.

    \b
    phrase-rescore embed < phrases.txt -o c.txt
    phrase-rescore embed --words source -o words.txt

    FORMATS. OUT.txt is in the text format of word2vec, which gensim reads; blanks of phrases become _, and _ becomes \\_. TSV
    has the phrase and its numbers, with tabs between. Words are those of the shortlist, after <end of phrase> and <unknown
    word>.
    """
    from phrase_rescore.cli.terminal import count_bar, say, warn
    from phrase_rescore.queries.embed import embed

    with count_bar("embedding", "phrases", quiet or side is not None) as bar:
        written = embed(out, model_dir, side=side, **settings, on_phrases=bar.update, warn=warn)
    say(written, quiet or out == "-")


@options.command(short_help="Describe a phrase table, a model or a moses.ini.")
@click.argument("path", type=PathName(exists=True, allow_dash=True), metavar="TABLE|MODEL_DIR|INI")
@option("-m --model model_dir", MODEL, "Count the table's words that this model knows.", "MODEL_DIR")
@flag("--strict", "Exit with status 1 if a Moses program would mishandle a row, or INI.")
@flag("--json as_json", "Write a JSON object.")
@quiet_option
def info(path: str, model_dir: str | None, strict: bool, as_json: bool, quiet: bool) -> None:
    """Describe TABLE ('-': standard input): rows, sources, targets, range of every score, columns that annotate appended,
    and the rows that a Moses program would mishandle. Or describe MODEL_DIR, a model of any kind: signature, sizes,
    training, losses (to see them drawn: phrase-rescore report -m MODEL_DIR -o loss.png). Or check INI, a moses.ini: its
    files exist, its paths are absolute, and num-features, weights and score columns agree.

    \b
    phrase-rescore info phrase-table.gz
    phrase-rescore info phrase-table.gz -m phrase-rescore-model
    phrase-rescore info phrase-rescore-model
    phrase-rescore info moses.ini
    set -o pipefail; zcat phrase-table.gz | phrase-rescore info - --strict

    The table is read once, some 100,000 rows a second. Memory grows only with distinct words. So numbers of distinct
    phrases above 65,536 are estimates, right to 1 % ('about'). The number of sources is exact if the table is sorted.
    """
    import json

    from phrase_rescore.cli.terminal import byte_bar
    from phrase_rescore.info.run import info

    if strict and os.path.isdir(path):
        raise OptionError(f"--strict is for tables and a moses.ini; {path} is a directory")
    with byte_bar((path,), quiet or os.path.isdir(path)) as bar:
        described = info(path, model_dir, on_read=bar.update)
    click.echo(json.dumps(described.as_object(), indent=2) if as_json else "\n".join(described.lines()))
    if strict:
        described.check()


@options.command(short_help="Compare scores with the table's on a page, or draw a training.")
@click.argument("table", type=FILE, metavar="[ANNOTATED_TABLE]", required=False)
@model_option()
@option("-o --out", OUTPUT, "The page to write; without a table the picture, .png or .svg.", default="report.html")
@option(
    "--phi-column", COLUMNS, "The score column with the table's own probability.  [default: 3, φ(target|source), or the last "
    "of fewer; of an inverse model 1]",
)  # fmt: skip
@option("--sample", SAMPLE_ROWS, "Rows that the page shows, 100 or more; whole sources.", "ROWS", default=50_000)
@options.threads_option
@quiet_option
def report(table: str | None, model_dir: str, quiet: bool, **asked: Any) -> None:
    """Write one HTML page that helps to decide about the new feature. It shows the model's scores against the table's φ, by
    frequency; the best targets by either; phrases drawn from the model; where the two disagree most; maps of words and
    phrases; unknown words. The page opens from disk and loads nothing from the network.

    Without a table, draw the training of a model of any kind: its losses against steps and time. While it runs, name the
    directory MODEL_DIR.training.

    \b
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz
    phrase-rescore report phrase-table.rnn.gz -o report.html
    phrase-rescore report -m phrase-rescore-model -o loss.png

    The model's scores are read from the columns that TABLE.columns.json names. Without it, the model scores
    the sample. Scores are those of a sample: all rows of some sources, always the same. Maps and unknown words are those of
    the whole table. It needs pip install 'phrase-rescore[report]'.
    """
    from phrase_rescore.cli.terminal import byte_bar, say, warn
    from phrase_rescore.report.run import report

    command = shlex.join(["phrase-rescore", *sys.argv[1:]])
    if table is None and (of_tables := options.given({name: asked[name] for name in ("phi_column", "sample")})):
        raise OptionError(f"--{min(of_tables).replace('_', '-')} is for tables; name ANNOTATED_TABLE, or leave it out")
    with byte_bar((table or model_dir,), quiet or table is None) as bar:
        summary = report(table, model_dir, command=command, on_read=bar.update, on_step=bar.set_postfix_str, **asked)
    warn(*summary.warnings)
    if summary.rows is not None:
        say(f"{asked['out']}: {summary.rows:,} rows, {summary.size / 1e6:.1f} MB", quiet)
