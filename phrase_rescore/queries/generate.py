"""All of ``generate``: sources from lines or a table; hypotheses as TSV or JSON lines."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from phrase_rescore.data.sampling import sample_phrases
from phrase_rescore.errors import InputError, OptionError, Progress, RowError, Say, counted, silent
from phrase_rescore.files.inputs import display_name, standard_input
from phrase_rescore.files.paths import Path
from phrase_rescore.moses.pairs import read_pair_blocks
from phrase_rescore.moses.text import PhraseReader
from phrase_rescore.queries.score import line_batches, ready_model, typed
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, TEMPERATURES, TOP_K, Checked, ranged
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.translator import MAX_LENGTH, Hypothesis, Translator
from phrase_rescore.runtime import resolve_device

_SOURCES = 256  # between two writes


@dataclass(frozen=True)
class Search(Checked):
    """How hypotheses are found: by beam search, or drawn at random."""

    number: int = ranged(10, HYPOTHESES)
    beam: int | None = ranged(None, BEAMS)
    random: bool = False
    seed: int = ranged(1, SEEDS)
    temperature: float = ranged(1.0, TEMPERATURES)
    top_k: int | None = ranged(None, TOP_K)
    unk: bool = False
    max_length: int = ranged(MAX_LENGTH, LENGTHS)

    def __call__(self, translator: Translator, sources: Sequence[bytes]) -> list[list[Hypothesis]]:
        n, unk, longest = self.number, self.unk, self.max_length
        if self.random:
            return translator.samples(sources, n, self.seed, self.temperature, self.top_k, unk, longest)
        return translator.n_best(sources, n, self.beam, unk, longest)


def generate(
    model_dir: Path, *, from_table: tuple[int, str] | None = None, form: str = "tsv", table: str | None = None,
    only_new: bool = False, tokenize: str | None = None, lowercase: bool = False, flush: bool = False, digits: int = 7,
    device: str = "cpu", on_sample: Progress = silent, on_read: Progress = silent, on_sources: Progress = silent,
    tell: Say = silent, conclude: Say = silent, **search: Any,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Propose phrases of the side that the model predicts, as ``phrase-rescore generate`` does. Yield lines, some at a time.

    Sources are lines of standard input, or so many distinct ones of a table (``from_table``). ``form``: tsv or jsonl. With a
    ``table`` all sources are read first, then the table once, to see which pairs it has. ``search``: the fields of ``Search``.

    ``on_sample`` and ``on_read`` get the bytes of each read of the two tables, ``on_sources`` the number of sources done,
    ``tell`` warnings, ``conclude`` the closing lines. Raises InputError for a bad line, after the hypotheses before it.
    """
    _check(from_table, table, only_new, tokenize, lowercase, flush, search)
    prepare_line = typed(tokenize, lowercase)
    consequence = "proposals with such a word mean nothing"
    alone = not search.get("unk")
    checkpoint = ready_model(model_dir, lambda warning: tell(f"warning: {warning}"), consequence, reads_alone=alone)
    wanted = Search(**{name: value for name, value in search.items() if value is not None})
    translator = Translator(checkpoint, resolve_device(device))
    reader = PhraseReader(checkpoint.sides[0], checkpoint.read_factor, prepare_line)
    streamed = not from_table and (flush or standard_input().isatty())
    if from_table:
        batches: Iterable[Sequence[bytes]] = _sources_of_table(*from_table, wanted.seed, reader, on_sample, tell)
    else:
        batches = line_batches(standard_input(), reader, _SOURCES, flush)
    pairs = None
    if table is not None:
        batches = list(batches)
        pairs = _pairs_of(table, checkpoint, checkpoint.as_read(list(chain.from_iterable(batches))), on_read)
    write = _json_line if form == "jsonl" else _tsv_lines
    asked = proposed = in_table = best_in_table = 0
    seconds = 0.0  # of the search alone
    for sources in batches:
        start = time.monotonic()
        found = wanted(translator, sources)
        seconds += time.monotonic() - start
        lines = list[bytes]()
        for name, source, hypotheses in zip(sources, checkpoint.as_read(sources), found, strict=True):
            known = [pairs is not None and (source, hypothesis.target) in pairs for hypothesis in hypotheses]
            in_table += sum(known)
            best_in_table += sum(known[:1])
            shown = [pair for pair in zip(hypotheses, known, strict=True) if not (only_new and pair[1])]
            proposed += len(shown)
            lines += write(checkpoint, digits, name, shown, pairs is not None)
        yield lines
        asked += len(sources)
        on_sources(len(sources))
    if streamed:
        return
    rate = asked / seconds if seconds else 0.0
    noun = "hypothesis" if proposed == 1 else "hypotheses"
    conclude(f"{counted(asked, 'phrase')}, {proposed:,} {noun}, {rate:,.0f} phrases/s")
    if table is not None and asked:
        best = f"{best_in_table:,} of {asked:,} ({best_in_table / asked:.1%})"
        left_out = ", left out" if only_new else ""
        conclude(f"the first hypothesis is in {table}: {best}; of all hypotheses {in_table:,}{left_out}")


def _check(
    from_table: tuple[int, str] | None, table: str | None, only_new: bool, tokenize: str | None, lowercase: bool, flush: bool,
    search: dict[str, Any],
) -> None:  # fmt: skip
    """Raise OptionError if options contradict each other."""
    random = search.get("random")
    sharpened = search.get("temperature") is not None or search.get("top_k") is not None
    stdin_twice = table == "-" and (from_table is None or from_table[1] == "-")
    contradictions = [
        (random and search.get("beam"), "--beam finds the most probable hypotheses, --random draws them; give one"),
        (sharpened and not random, "--temperature and --top-k are for hypotheses drawn at random; add --random"),
        (only_new and table is None, "--only-new needs --table TABLE"),
        (from_table and (tokenize is not None or flush),
         "--tokenize and --flush are for lines of standard input; leave out --from-table"),
        (flush and table is not None, "--flush answers at once, but --table needs all phrases first"),
        (lowercase and tokenize is None, "--lowercase is for typed text; name the language with --tokenize LANG"),
        (stdin_twice, "--table -: phrases are read from standard input; name a file"),
    ]  # fmt: skip
    for contradicts, message in contradictions:
        if contradicts:
            raise OptionError(message)


def _sources_of_table(
    n: int, table: str, seed: int, reader: PhraseReader, on_read: Progress, tell: Say
) -> Iterator[list[bytes]]:
    """Yield ``n`` phrases of a table. Raises InputError for a bad row, an empty table, a word without the model's factor."""
    blocks = read_pair_blocks(table, "table", on_read)
    phrases = sample_phrases((block.src if reader.side == "source" else block.tgt for block in blocks), n, seed)
    if not phrases:
        raise InputError(display_name(table), "is empty", "pass a phrase table")
    if len(phrases) < n:
        tell(f"{display_name(table)} has only {len(phrases):,} distinct {reader.side} phrases")
    for start in range(0, len(phrases), _SOURCES):
        try:
            some = [reader(phrase) for phrase in phrases[start : start + _SOURCES]]
        except RowError as error:
            raise InputError(display_name(table), error.found, error.hint) from None
        yield some


def _pairs_of(table: str, checkpoint: Checkpoint, sources: Iterable[bytes], on_read: Progress) -> set[tuple[bytes, bytes]]:
    """Return the pairs of a table with these sources, the side that the model reads first. Raises InputError for a bad row."""
    wanted, found = set(sources), set[tuple[bytes, bytes]]()
    for block in read_pair_blocks(table, "table", on_read, factors=checkpoint.factors):
        sides = (block.tgt, block.src) if checkpoint.inverse else (block.src, block.tgt)
        found.update(pair for pair in zip(*sides, strict=True) if pair[0] in wanted)
    return found


def _tsv_lines(
    checkpoint: Checkpoint, digits: int, name: bytes, hypotheses: Sequence[tuple[Hypothesis, bool]], marked: bool
) -> Iterator[bytes]:
    """Yield source, target, natural log p, number of unknown words; if ``marked``, 1 if the table has the pair, 0 if not."""
    for hypothesis, known in hypotheses:
        sides = (hypothesis.target, name) if checkpoint.inverse else (name, hypothesis.target)
        columns = [*sides, b"%.*g" % (digits, hypothesis.log_p), b"%d" % hypothesis.unknown]
        yield b"\t".join([*columns, b"%d" % known] if marked else columns) + b"\n"


def _json_line(
    checkpoint: Checkpoint, digits: int, name: bytes, hypotheses: Sequence[tuple[Hypothesis, bool]], marked: bool
) -> Iterator[bytes]:
    """Yield an object for a source. Bytes that are not UTF-8 are lone surrogates, byte ff is \\udcff (as in PEP 383)."""
    read, predicted = checkpoint.sides
    proposals = list[dict[str, Any]]()
    for hypothesis, known in hypotheses:
        text = hypothesis.target.decode("utf-8", "surrogateescape")
        log_p = float(b"%.*g" % (digits, hypothesis.log_p))
        proposals.append({predicted: text, "log_p": log_p, "unknown": hypothesis.unknown})
        if marked:
            proposals[-1]["in_table"] = known
    line = json.dumps({read: name.decode("utf-8", "surrogateescape"), "proposals": proposals}, ensure_ascii=False)
    yield line.encode("utf-8", "backslashreplace") + b"\n"
