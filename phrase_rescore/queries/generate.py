"""All of ``generate``: sources from lines of standard input, hypotheses as TSV."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import standard_input
from phrase_rescore.files.paths import Path
from phrase_rescore.messages import Progress, Say, counted, silent
from phrase_rescore.moses.text import PhraseReader, tokenizer_for
from phrase_rescore.queries.score import line_batches, ready_model
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, Checked, ranged
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
    unk: bool = False
    max_length: int = ranged(MAX_LENGTH, LENGTHS)

    def __call__(self, translator: Translator, sources: Sequence[bytes]) -> list[list[Hypothesis]]:
        n, unk, longest = self.number, self.unk, self.max_length
        if self.random:
            return translator.samples(sources, n, self.seed, unk, longest)
        return translator.n_best(sources, n, self.beam, unk, longest)


def generate(
    model_dir: Path, *, tokenize: str | None = None, flush: bool = False, digits: int = 7, device: str = "cpu",
    threads: int | None = None, on_sources: Progress = silent, say: Say = silent, warn: Say = silent, **search: Any,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Propose phrases of the side that the model predicts, as ``phrase-rescore generate`` does. Yield lines, some at a time.

    A line has source, target, natural log p and the number of unknown words. ``tokenize`` is the language of typed text; by
    default text is tokenized. ``search``: the fields of ``Search``.
    ``on_sources`` gets the number of sources done, ``warn`` warnings, ``say`` the closing line. Raises InputError for a
    bad line, after the hypotheses before it.
    """
    if search.get("random") and search.get("beam"):
        raise OptionError("--beam finds the most probable hypotheses, --random draws them; give one")
    checkpoint = ready_model(model_dir, threads, warn, reads_alone=not search.get("unk"))
    wanted = Search(**{name: value for name, value in search.items() if value is not None})
    translator = Translator(checkpoint, resolve_device(device))
    typed = tokenizer_for(tokenize, checkpoint.vocabs[0].ids)
    asked = proposed = 0
    reader = PhraseReader(checkpoint.sides[0], checkpoint.read_factor, typed)
    for sources in line_batches(standard_input(), reader, _SOURCES, flush):
        lines = list[bytes]()
        for source, hypotheses in zip(sources, wanted(translator, sources), strict=True):
            for hypothesis in hypotheses:
                sides = (hypothesis.target, source) if checkpoint.inverse else (source, hypothesis.target)
                lines.append(b"%b\t%b\t%.*g\t%d\n" % (*sides, digits, hypothesis.log_p, hypothesis.unknown))
        yield lines
        proposed += len(lines)
        asked += len(sources)
        on_sources(len(sources))
    say(f"{counted(asked, 'phrase')}, {counted(proposed, 'proposal')}")
