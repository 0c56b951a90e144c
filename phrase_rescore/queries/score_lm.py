"""Lines of text in, lines with their log-probabilities by a language model out, and the perplexity of all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from phrase_rescore.files.blocks import batches
from phrase_rescore.lm.arpa import END
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.table import words

BATCH = 1024  # lines at a time


@dataclass
class Totals:
    """Sums over a text. Tokens are words and the end of every sentence, as KenLM's ``query`` counts them."""

    tokens: int = 0
    unknown: int = 0  # words that the model does not know
    log_prob: float = 0.0  # natural log, of all tokens
    log_prob_known: float = 0.0  # of the tokens that the model knows

    def perplexity(self) -> float:
        """Return the perplexity of all tokens."""
        return _perplexity(self.log_prob, self.tokens)

    def perplexity_known(self) -> float:
        """Return the perplexity of the tokens that the model knows."""
        return _perplexity(self.log_prob_known, self.tokens - self.unknown)

    def lines(self) -> list[str]:
        """Return the totals in the words of KenLM's ``query``."""
        if not self.tokens:
            return ["Tokens: 0"]
        return [
            f"Perplexity including OOVs: {self.perplexity():.6g}",
            f"Perplexity excluding OOVs: {self.perplexity_known():.6g}",
            f"OOVs: {self.unknown}",
            f"Tokens: {self.tokens}",
        ]


def _perplexity(log_prob: float, tokens: int) -> float:
    return math.exp(min(-log_prob / tokens, 700.0)) if tokens else math.nan


@dataclass
class TextScorer:
    """Scores lines, a tokenized sentence each: natural log p, tab, how many of its words the model does not know.

    An empty line is a sentence without words. ``per_word`` adds a third column: every word and ``</s>``, each followed by its
    log p. ``totals`` grows with every line.
    """

    scorer: NgramScorer
    per_word: bool = False
    digits: int = 7  # significant
    totals: Totals = field(default_factory=Totals)

    def __call__(self, lines: list[bytes]) -> list[bytes]:
        """Return a line for every line, with its newline."""
        sentences = [words(line.rstrip(b"\r\n")) for line in lines]
        found = self.scorer.sentences(sentences)
        totals, out = self.totals, []
        totals.tokens += len(found.log_probs)
        totals.unknown += int(found.unknown.sum())
        totals.log_prob += float(found.log_probs.sum())
        totals.log_prob_known += float(found.log_probs[~found.unknown].sum())
        ends = [*found.starts[1:].tolist(), len(found.log_probs)]
        for sentence, start, end, log_p in zip(sentences, found.starts.tolist(), ends, found.sums().tolist(), strict=True):
            columns = [b"%.*g" % (self.digits, log_p), b"%d" % found.unknown[start:end].sum()]
            if self.per_word:
                steps = zip((*sentence, END), found.log_probs[start:end].tolist(), strict=True)
                columns.append(b" ".join(b"%b %.*g" % (word, self.digits, step) for word, step in steps))
            out.append(b"\t".join(columns) + b"\n")
        return out


def score_text(lines: Iterable[bytes], scorer: TextScorer, at_once: int = BATCH) -> Iterator[list[bytes]]:
    """Yield the scores of lines, ``at_once`` at a time and in their order."""
    return map(scorer, batches(lines, at_once))
