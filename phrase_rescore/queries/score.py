"""Lines with phrase pairs in, lines with their scores out: pairs that a person or another program writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.moses.text import PairReader, Prepare, as_written, parsed_lines
from phrase_rescore.rnn.scorer import BATCH, Scorer

END = b"</s>"


@dataclass(frozen=True)
class LineScorer:
    """Scores pairs, a line each: natural log p, tab, how many words of the predicted side the model does not know.

    ``per_word`` adds a third column: every word predicted, and ``</s>`` for the end of the phrase, each followed by its log p.
    """

    scorer: Scorer
    prepare: tuple[Prepare, Prepare] = (as_written, as_written)  # source, target
    per_word: bool = False
    digits: int = 7  # significant

    def __call__(self, pairs: list[tuple[bytes, bytes]]) -> list[bytes]:
        """Return a line for every pair, with its newline."""
        encoded = self.scorer.encode_phrases([src for src, _ in pairs], [tgt for _, tgt in pairs])
        flat, offsets = self.scorer.word_log_probs(encoded)
        unknown = self.scorer.checkpoint.for_model(encoded).tgt.counts_of(UNK)
        lines = []
        for i, (log_p, n) in enumerate(zip(np.add.reduceat(flat, offsets[:-1]).tolist(), unknown.tolist(), strict=True)):
            columns = [b"%.*g" % (self.digits, log_p), b"%d" % n]
            if self.per_word:
                predicted = pairs[i][0 if self.scorer.checkpoint.inverse else 1].split(b" ")
                steps = zip((*predicted, END), flat[offsets[i] : offsets[i + 1]].tolist(), strict=True)
                columns.append(b" ".join(b"%b %.*g" % (word, self.digits, step) for word, step in steps))
            lines.append(b"\t".join(columns) + b"\n")
        return lines


def score_lines(lines: Iterable[bytes], scorer: LineScorer, name: str, at_once: int = BATCH) -> Iterator[list[bytes]]:
    """Yield the scores of lines, ``at_once`` at a time and in their order.

    Raises InputError, with the line, for a bad one (see ``PairReader``); the scores of the lines before it come first.
    """
    read = PairReader(scorer.scorer.checkpoint.factors, scorer.prepare)
    return map(scorer, parsed_lines(lines, read, name, at_once))
