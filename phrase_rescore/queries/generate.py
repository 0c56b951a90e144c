"""All of ``generate``: sources from lines, a table or vectors; hypotheses as TSV or JSON lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phrase_rescore.data.coverage import untrained_unk
from phrase_rescore.data.sketch import sample_phrases
from phrase_rescore.errors import InputError, OptionError, RowError, counted, silent
from phrase_rescore.files.inputs import display_name, map_array, standard_input
from phrase_rescore.moses.pairs import read_pair_blocks
from phrase_rescore.moses.text import PhraseReader
from phrase_rescore.queries.lines import answers_at_once, line_batches, typed
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, TEMPERATURES, TOP_K, Checked, ranged
from phrase_rescore.rnn.checkpoint import SIDES, Checkpoint, load
from phrase_rescore.rnn.translator import MAX_LENGTH, Hypothesis, Translator
from phrase_rescore.rnn.vectors import Vectors
from phrase_rescore.runtime import prepare, resolve_device, usable_cores

_SOURCES = 256  # between two writes

Sources = tuple[Sequence[bytes], Sequence[bytes] | Vectors]  # their names, and themselves or vectors in their place


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

    def __call__(self, translator: Translator, sources: Sequence[bytes] | Vectors) -> list[list[Hypothesis]]:
        if self.random:
            return translator.samples(
                sources, self.number, self.seed, self.temperature, self.top_k, self.unk, self.max_length
            )  # fmt: skip
        return translator.n_best(sources, self.number, self.beam, self.unk, self.max_length)


def generate(
    model_dir: str | os.PathLike[str], *, from_table: tuple[int, str] | None = None, from_vectors: str | None = None,
    form: str = "tsv", table: str | None = None, only_new: bool = False, tokenize: str | None = None,
    lowercase: bool = False, flush: bool = False, digits: int = 7, device: str = "cpu",
    on_sample: Callable[[int], object] = silent, on_read: Callable[[int], object] = silent,
    on_sources: Callable[[int], object] = silent, tell: Callable[[str], object] = silent,
    conclude: Callable[[str], object] = silent, **search: Any,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Propose phrases of the side that the model predicts, as ``phrase-rescore generate`` does. Yield lines, some at a time.

    Sources are lines of standard input, or so many distinct ones of a table (``from_table``), or the rows of an ``.npy`` file
    (``from_vectors``). ``form``: tsv or jsonl. With a ``table`` all sources are read first, then the table once, to see which
    pairs it has. ``search``: the fields of ``Search``.

    ``on_sample`` and ``on_read`` get the bytes read of the two tables, ``on_sources`` how many sources are done, ``tell``
    what may be wrong, ``conclude`` the closing lines. Raises InputError for a bad line, after the hypotheses before it.
    """
    _check(from_table, from_vectors, table, only_new, tokenize, lowercase, flush, search)
    prepare_line = typed(tokenize, lowercase)
    prepare(usable_cores())
    checkpoint = load(os.fspath(model_dir))
    read = checkpoint.sides[0]
    shares = zip(SIDES, checkpoint.unk_shares, strict=True)
    of_interest = {side: share for side, share in shares if side == read or search.get("unk")}
    for warning in untrained_unk(of_interest, "what is proposed with such a word means nothing"):
        tell(f"warning: {warning}")
    wanted = Search(**{name: value for name, value in search.items() if value is not None})
    translator = Translator(checkpoint, resolve_device(device))
    reader = PhraseReader(read, checkpoint.read_factor, prepare_line)
    sources: Iterable[Sources]
    streamed = False
    if from_table:
        sources = _sources_of_table(*from_table, wanted.seed, reader, on_sample, tell)
    elif from_vectors:
        sources = _sources_of_vectors(from_vectors, checkpoint.model.config.hidden)
    else:
        streamed = answers_at_once(standard_input(), flush)
        sources = ((phrases, phrases) for phrases in line_batches(standard_input(), reader, _SOURCES, flush))
    partners = None
    if table is not None:
        sources = list(sources)
        partners = _partners(table, checkpoint, [name for names, _ in sources for name in names], on_read)
    write = _json_line if form == "jsonl" else _tsv_lines
    totals = _Totals()
    for names, given in sources:
        start = time.monotonic()
        found = wanted(translator, given)
        totals.seconds += time.monotonic() - start
        lines: list[bytes] = []
        for name, hypotheses in zip(names, found, strict=True):
            known = None
            if partners is not None:
                has = partners[checkpoint.as_read([name])[0]]
                known = [hypothesis.target in has for hypothesis in hypotheses]
                totals.known += sum(known)
                totals.best_known += known[:1] == [True]
                if only_new:
                    hypotheses = [one for one, in_table in zip(hypotheses, known, strict=True) if not in_table]
                    known = [False] * len(hypotheses)
            totals.sources += 1
            totals.hypotheses += len(hypotheses)
            lines += write(checkpoint, digits, name, hypotheses, known)
        yield lines
        on_sources(len(names))
    if not streamed:
        for line in totals.lines(table, only_new):
            conclude(line)


def _check(
    from_table: tuple[int, str] | None, from_vectors: str | None, table: str | None, only_new: bool, tokenize: str | None,
    lowercase: bool, flush: bool, search: dict[str, Any],
) -> None:  # fmt: skip
    """Raise OptionError if options contradict each other."""
    random, no_lines = search.get("random"), bool(from_table or from_vectors)
    sharpened = search.get("temperature") is not None or search.get("top_k") is not None
    stdin_twice = table == "-" and (from_table is None or from_table[1] == "-")
    contradictions = [
        (random and search.get("beam"), "--beam finds the most probable hypotheses, --random draws them; give one of the two"),
        (sharpened and not random, "--temperature and --top-k are for hypotheses drawn at random; add --random"),
        (only_new and table is None, "--only-new needs --table TABLE, to see what is new"),
        (from_table and from_vectors, "--from-table and --from-vectors: give one of the two"),
        (from_vectors is not None and table is not None,
         "--from-vectors has no phrases to look for in a table; leave out --table"),
        (no_lines and (tokenize is not None or flush),
         "--tokenize and --flush are for lines of standard input; leave out --from-table and --from-vectors"),
        (flush and table is not None, "--flush answers at once, but --table needs all phrases first"),
        (lowercase and tokenize is None, "--lowercase is for typed text; name the language with --tokenize LANG"),
        (stdin_twice, "--table -: phrases are read from standard input; name a file"),
    ]  # fmt: skip
    for contradicts, message in contradictions:
        if contradicts:
            raise OptionError(message)


def _sources_of_table(
    n: int, table: str, seed: int, reader: PhraseReader, on_read: Callable[[int], object], tell: Callable[[str], object]
) -> Iterator[Sources]:
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
        yield some, some


def _sources_of_vectors(path: str, hidden: int) -> Iterator[Sources]:
    """Yield the rows of an ``.npy`` file with float32 numbers, (n, hidden); their names are their numbers from 0.

    Raises InputError for any other file, and for a row with a number that is not finite.
    """
    hint = f"pass phrase vectors of this model, float32 of shape (n, {hidden}), such as numpy.save writes"
    vectors = map_array(path, hint)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or vectors.shape[1] != hidden:
        raise InputError(path, f"holds {vectors.dtype} of shape {vectors.shape}", hint)
    for start in range(0, len(vectors), _SOURCES):
        some = np.ascontiguousarray(vectors[start : start + _SOURCES], dtype=np.float32)
        finite = np.isfinite(some).all(1)
        if not finite.all():
            found = f"row {start + int(finite.argmin())} (from 0) has a number that is not finite"
            raise InputError(path, found, "compute it again")
        yield [b"%d" % row for row in range(start, start + len(some))], some


def _partners(
    table: str, checkpoint: Checkpoint, names: Sequence[bytes], on_read: Callable[[int], object]
) -> dict[bytes, Collection[bytes]]:
    """Find the phrases that a table has beside every source. Raises InputError for a bad row."""
    found: dict[bytes, set[bytes]] = {phrase: set() for phrase in checkpoint.as_read(names)}
    for block in read_pair_blocks(table, "table", on_read, factors=checkpoint.factors):
        sides = (block.tgt, block.src) if checkpoint.inverse else (block.src, block.tgt)
        for phrase, partner in zip(*sides, strict=True):
            if phrase in found:
                found[phrase].add(partner)
    return dict(found)


def _tsv_lines(
    checkpoint: Checkpoint, digits: int, name: bytes, hypotheses: Sequence[Hypothesis], known: Sequence[bool] | None
) -> list[bytes]:
    """Write source, target, natural log p, number of unknown words; then 1 if the table has the pair, 0 if not."""
    lines = []
    for i, hypothesis in enumerate(hypotheses):
        sides = (hypothesis.target, name) if checkpoint.inverse else (name, hypothesis.target)
        columns = [*sides, b"%.*g" % (digits, hypothesis.log_p), b"%d" % hypothesis.unknown]
        lines.append(b"\t".join([*columns, b"%d" % known[i]] if known is not None else columns) + b"\n")
    return lines


def _json_line(
    checkpoint: Checkpoint, digits: int, name: bytes, hypotheses: Sequence[Hypothesis], known: Sequence[bool] | None
) -> list[bytes]:
    """Write an object for a source. Bytes that are not UTF-8 are lone surrogates, byte ff is \\udcff (as in PEP 383)."""
    read, predicted = checkpoint.sides
    proposals = list[dict[str, Any]]()
    for i, hypothesis in enumerate(hypotheses):
        text = hypothesis.target.decode("utf-8", "surrogateescape")
        log_p = float(b"%.*g" % (digits, hypothesis.log_p))
        proposals.append({predicted: text, "log_p": log_p, "unknown": hypothesis.unknown})
        if known is not None:
            proposals[-1]["in_table"] = known[i]
    line = json.dumps({read: name.decode("utf-8", "surrogateescape"), "proposals": proposals}, ensure_ascii=False)
    return [line.encode("utf-8", "backslashreplace") + b"\n"]


@dataclass
class _Totals:
    """What is counted on the way."""

    sources: int = 0
    hypotheses: int = 0
    known: int = 0  # hypotheses that the table has
    best_known: int = 0  # sources whose first hypothesis is one of them
    seconds: float = 0.0  # of the search alone

    def lines(self, table: str | None, only_new: bool) -> Iterator[str]:
        """Yield the closing lines."""
        rate = self.sources / self.seconds if self.seconds else 0.0
        hypotheses = f"{self.hypotheses:,} {'hypothesis' if self.hypotheses == 1 else 'hypotheses'}"
        yield f"{counted(self.sources, 'phrase')}, {hypotheses}, {rate:,.0f} phrases/s"
        if table is not None and self.sources:
            best = f"{self.best_known:,} of {self.sources:,} ({self.best_known / self.sources:.1%})"
            left_out = ", left out" if only_new else ""
            yield f"the first hypothesis is in {table}: {best}; of all hypotheses {self.known:,}{left_out}"
