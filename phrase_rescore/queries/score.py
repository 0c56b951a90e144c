"""Answer lines that a person or another program writes, in order; ``score`` answers with scores."""

import contextlib
import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.log_probs import check_finite, diverged
from phrase_rescore.data.vocabulary import SIDES, UNK, misfits, untrained_unk
from phrase_rescore.files.inputs import display_name, open_input, read_rows, standard_input
from phrase_rescore.files.paths import Path
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.scorer import NgramScorer, SentenceScores
from phrase_rescore.messages import Say, silent
from phrase_rescore.moses.text import END, PairReader, Sentences, Tokenizer, parsed_lines, tokenizer_for
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import BATCH, Scorer
from phrase_rescore.runtime import prepare, resolve_device

T = TypeVar("T")


def ready_model(model_dir: Path, threads: int | None, warn: Say = silent, reads_alone: bool = False) -> Checkpoint:
    """Load a model and configure torch for it. Warn of sides (``reads_alone``: of the one read) without unknown words."""
    prepare(threads)
    checkpoint = load(os.fspath(model_dir))
    shares = dict(zip(SIDES, checkpoint.unk_shares, strict=True))
    sides = checkpoint.sides[:1] if reads_alone else SIDES
    for warning in untrained_unk({side: shares[side] for side in sides}, "results for phrases with such a word mean nothing"):
        warn(warning)
    return checkpoint


def line_batches(stream: io.BufferedReader, parse: Callable[[bytes], T], most: int, flush: bool = False) -> Iterator[list[T]]:
    """Yield what ``parse`` makes of the lines of standard input: of ``most`` lines, or of one with ``flush`` and at a terminal.

    Raises InputError where ``parse`` raises RowError; what comes of the lines before it comes first.
    """
    return parsed_lines(read_rows(stream), parse, "<stdin>", 1 if flush or stream.isatty() else most)


def score(
    lines: io.BufferedReader, model_dir: Path, *, per_word: bool = False, tokenize: tuple[str, str] | None = None,
    flush: bool = False, digits: int = 7, device: str = "cpu", threads: int | None = None, warn: Say = silent,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Score phrase pairs, a line each, as ``phrase-rescore score`` does. Yield lines with their newlines, some at a time.

    A line out has natural log p, tab, the number of words of the predicted side that the model does not know; ``per_word`` adds
    the words predicted, each followed by its log p. ``tokenize``: the languages, source and target, of typed text. Raises
    InputError for a bad line, after the scores of the lines before it.
    """
    checkpoint = ready_model(model_dir, threads, warn)
    scorer = Scorer(checkpoint, resolve_device(device))
    tokenizers = None
    if tokenize is not None:
        source, target = tokenize
        tokenizers = Tokenizer(source, checkpoint.src_vocab.ids), Tokenizer(target, checkpoint.tgt_vocab.ids)
    done, judged = 0, flush or lines.isatty()  # a pair says too little of the next ones
    for pairs in line_batches(lines, PairReader(checkpoint.factors, tokenizers), BATCH, flush):
        src, tgt = zip(*pairs, strict=True)
        if not judged:
            checkpoint.refuse_swapped("<stdin>", src, tgt)
            judged = True
        encoded = scorer.encode_phrases(src, tgt)
        log_probs, offsets = scorer.word_log_probs(encoded)
        check_finite(np.add.reduceat(log_probs, offsets[:-1]), "<stdin>", range(done + 1, done + len(pairs) + 1))
        done += len(pairs)
        unknown = checkpoint.for_model(encoded).tgt.counts_of(UNK)
        predicted = [phrase.split(b" ") for phrase in (src if checkpoint.inverse else tgt)] if per_word else None
        yield _score_lines(log_probs, offsets[:-1], unknown, predicted, digits)


def _score_lines(
    log_probs: NDArray[np.float64], starts: NDArray[np.int64], unknown: NDArray[np.int64],
    predicted: Sequence[Sequence[bytes]] | None, digits: int,
) -> list[bytes]:  # fmt: skip
    """Write a line for each item, whose words and end have the ``log_probs`` from its start on."""
    sums = zip(np.add.reduceat(log_probs, starts).tolist(), unknown.tolist(), strict=True)
    lines = [b"%.*g\t%d" % (digits, log_p, n) for log_p, n in sums]
    if predicted is not None:
        for i, (item, of_item) in enumerate(zip(predicted, np.split(log_probs, starts[1:]), strict=True)):
            steps = zip((*item, END), of_item.tolist(), strict=True)
            lines[i] += b"\t" + b" ".join(b"%b %.*g" % (word, digits, step) for word, step in steps)
    return [line + b"\n" for line in lines]


def _perplexity(log_p: float, tokens: int) -> float:
    try:
        return math.exp(-log_p / tokens)
    except OverflowError:
        return math.inf


@dataclass
class _Totals:
    """The sums over a text that KenLM's ``query`` reports; tokens are words and the ends of sentences."""

    tokens: int = 0
    sentences: int = 0
    unknown: int = 0
    log_p: float = 0.0
    log_p_known: float = 0.0  # of the tokens that the model knows

    def add(self, scores: SentenceScores) -> None:
        """Add the scores of some sentences."""
        self.tokens += len(scores.log_probs)
        self.sentences += len(scores.starts)
        self.unknown += int(scores.unknown.sum())
        self.log_p += float(scores.log_probs.sum())
        self.log_p_known += float(scores.log_probs[~scores.unknown].sum())

    def lines(self) -> list[str]:
        """Return the report."""
        if not self.tokens:
            return ["Tokens: 0"]
        return [
            f"Perplexity including OOVs: {_perplexity(self.log_p, self.tokens):.6g}",
            f"Perplexity excluding OOVs: {_perplexity(self.log_p_known, self.tokens - self.unknown):.6g}",
            f"OOVs: {self.unknown}",
            f"Tokens: {self.tokens}",
        ]


def score_lm(
    text: Path, lm: Path, *, per_word: bool = False, tokenize: str | None = None, flush: bool = False, digits: int = 7,
    device: str = "cpu", threads: int | None = None, say: Say = silent, warn: Say = silent,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Score text (``-``: standard input), a sentence a line, as ``phrase-rescore score-lm`` does.

    Yields lines with their newlines, some at a time: natural log p, tab, the number of words that the model does not know;
    ``per_word`` adds the words and ``</s>``, each followed by its log p. ``tokenize`` is the language of typed text. ``say``
    gets the totals, as of KenLM's ``query``.
    """
    text = os.fspath(text)
    prepare(threads)
    model = language_model.load(os.fspath(lm))
    for warning in language_model.warnings(model):
        warn(warning)
    scorer = NgramScorer(model, resolve_device(device))
    read = Sentences(tokenizer_for(tokenize, model.vocab.ids))
    totals = _Totals()
    with contextlib.ExitStack() as opened:
        at_once = flush or (text == "-" and standard_input().isatty())  # what decompresses would wait for more
        rows = read_rows(standard_input() if at_once and text == "-" else opened.enter_context(open_input(text)))
        for sentences in parsed_lines(rows, read, display_name(text), 1 if at_once else 1024):
            scores, done = scorer.sentences(sentences), totals.sentences
            check_finite(scores.sums(), display_name(text), range(done + 1, done + len(sentences) + 1))
            totals.add(scores)
            unknown = np.add.reduceat(scores.unknown.astype(np.int64), scores.starts)
            yield _score_lines(scores.log_probs, scores.starts, unknown, sentences if per_word else None, digits)
    misfit = misfits(totals.unknown, totals.tokens - totals.sentences, model.unk_share)
    for warning in [*misfit, *diverged(totals.log_p_known, totals.tokens - totals.unknown), *read.warnings()]:
        warn(warning)
    for line in totals.lines():
        say(line)
