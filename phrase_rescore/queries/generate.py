"""All of ``generate``: sources from lines of standard input; phrases that are proposed, as TSV; translations of sentences."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phrase_rescore.errors import ModelError, OptionError, RowError
from phrase_rescore.files.inputs import standard_input
from phrase_rescore.files.paths import Path
from phrase_rescore.messages import Progress, Say, counted, shown, silent
from phrase_rescore.moses.hypotheses import as_value
from phrase_rescore.moses.table import SEPARATOR
from phrase_rescore.moses.text import PhraseReader, Sentences, tokenizer_for
from phrase_rescore.nmt import checkpoint as translation
from phrase_rescore.nmt.translator import SentenceHypothesis, SentenceTranslator
from phrase_rescore.nn.storage import BITEXT, TEXT, Config
from phrase_rescore.queries.score import line_batches, ready_model
from phrase_rescore.ranges import BEAMS, HYPOTHESES, LENGTHS, SEEDS, Checked, ranged
from phrase_rescore.rnn.translator import MAX_LENGTH, Hypothesis, Translator
from phrase_rescore.runtime import prepare_parts, resolve_device

PHRASES, SENTENCES = 10, 1  # hypotheses for each source, unless another number is asked for
_DIGITS = 7  # of log p
_SOURCES, _LINES = 256, 2048  # phrases, sentences between two writes


@dataclass(frozen=True)
class Search(Checked):
    """How hypotheses are found: by beam search, or drawn at random."""

    number: int = ranged(PHRASES, HYPOTHESES)
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
    model_dir: Path, *, tokenize: str | None = None, flush: bool = False, digits: int | None = None, device: str = "cpu",
    threads: int | None = None, on_sources: Progress = silent, say: Say = silent, warn: Say = silent, **search: Any,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Propose what a model finds probable, as ``phrase-rescore generate`` does. Yield lines, some at a time.

    A line of a model of phrases has source, target, natural log p and the number of unknown words. A model of sentences gives
    a translation for every line, or with a ``number`` above 1 the entries of an n-best list. ``tokenize`` is the language of
    typed text; by default text is tokenized. ``search``: the fields of ``Search``, of sentences ``number`` and ``beam``.
    ``on_sources`` gets the number of sources done, ``warn`` warnings, ``say`` the closing line. Raises InputError for a
    bad line, after the hypotheses before it.
    """
    search = {name: value for name, value in {"digits": digits, **search}.items() if value not in (None, False)}
    if search.get("random") and search.get("beam"):
        raise OptionError("--beam finds the most probable hypotheses, --random draws them; give one")
    kind = Config(os.fspath(model_dir)).model_of()
    if kind == TEXT:
        raise ModelError(f"{model_dir}: a model of {TEXT}, has no source; give one of train or train-nmt")
    if kind == BITEXT:
        yield from _translations(model_dir, tokenize, flush, resolve_device(device), threads, on_sources, say, search)
        return
    checkpoint = ready_model(model_dir, threads, warn, reads_alone=not search.get("unk"))
    digits = search.pop("digits", _DIGITS)
    wanted = Search(**search)
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


def _translations(
    model_dir: Path,
    tokenize: str | None,
    flush: bool,
    device: str,
    threads: int | None,
    on_sources: Progress,
    say: Say,
    search: dict[str, Any],
) -> Iterator[list[bytes]]:
    """Yield the translations of the sentences of standard input, or an n-best list of them."""
    if other := search.keys() - {"number", "beam"}:
        raise OptionError(f"--{min(other).replace('_', '-')} is for models of phrases; leave it out for sentences")
    n, beam = Search(**{"number": SENTENCES} | search).number, search.get("beam")
    model = translation.load(os.fspath(model_dir))
    translator = SentenceTranslator(model, device, prepare_parts(threads, device))
    sentence = Sentences(tokenizer_for(tokenize, model.src_vocab.ids))

    def read(line: bytes) -> list[bytes]:
        if SEPARATOR in line:
            raise RowError(f"{shown(line.strip())} is more than a sentence", "write one sentence a line and nothing else")
        return sentence(line)

    segment = 0
    for sentences in line_batches(standard_input(), read, _LINES, flush):
        lines = list[bytes]()
        for hypotheses in translator.n_best(sentences, n, beam):
            if n == 1:
                lines.append(b" ".join(hypotheses[0].words) + b"\n")
            else:  # Moses writes no entries of empty lines
                lines += [_entry(segment, hypothesis) for hypothesis in hypotheses if hypothesis.words]
            segment += 1
        yield lines
        on_sources(len(sentences))
    say(counted(segment, "sentence"))


def _entry(segment: int, hypothesis: SentenceHypothesis) -> bytes:
    """Write an entry of an n-best list, with the label that ``rescore`` gives to log p; the total is what it is ranked by."""
    text, log_p, score = b" ".join(hypothesis.words), as_value(hypothesis.log_p), as_value(hypothesis.score)
    return b"%d ||| %b ||| NMT0= %b ||| %b\n" % (segment, text, log_p, score)
