"""What the benchmarks run on: the real table when it lies beside the repository, else the demo's, and models of any size."""

import functools
import json
from collections import Counter
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from phrase_rescore.data.pair_store import LAYOUT, PairStore
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import most_frequent
from phrase_rescore.files.inputs import open_input
from phrase_rescore.messages import Listener
from phrase_rescore.moses.table import parse_row
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.config import PRESETS, TrainingConfig
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.train import make_task, phrase_source
from phrase_rescore.training.config import Observer
from phrase_rescore.training.pairs import PairTask
from phrase_rescore.training.run import Source

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "data" / "en-fr" / "phrase-table.gz"
DEMO = ROOT / "build" / "demo" / "phrase-table.gz"


def table() -> Path:
    path = REAL if REAL.exists() else DEMO
    if not path.exists():
        raise SystemExit("no table to measure on: run `make demo` first")
    return path


def beside(real: str, demo: str) -> str:
    """Name a text or a list of the system whose table is measured on."""
    path = table()
    return str(path.with_name(real if path == REAL else demo))


def middle_rows(path: Path, rows: int, total: int = 3_330_185) -> list[bytes]:
    """Consecutive rows from the middle of the real table; the first ones of another."""
    start = (total - rows) // 2 if path == REAL else 0
    with open_input(str(path)) as stream:
        return [line.rstrip(b"\n") for line in islice(stream, start, start + rows)]


@functools.cache
def word_counts(path: Path) -> tuple[Counter[bytes], Counter[bytes]]:
    """Of source and target words, over every tenth row."""
    src: Counter[bytes] = Counter()
    tgt: Counter[bytes] = Counter()
    with open_input(str(path)) as stream:
        for line in islice(stream, 0, None, 10):
            row = parse_row(line.rstrip(b"\n"))
            src.update(row.src)
            tgt.update(row.tgt)
    return src, tgt


def paper_model(path: Path, shortlist: int = 15_000, **network_of: Any) -> Checkpoint:
    """A model with random weights: speed does not depend on training."""
    src_vocab, tgt_vocab = (most_frequent(counts, shortlist)[0] for counts in word_counts(path))
    network = asdict(PRESETS["paper"].network) | network_of
    model = RNNEncoderDecoder(ModelConfig(len(src_vocab), len(tgt_vocab), **network))
    initialise(model, 1, paper=False)
    return Checkpoint(model.requires_grad_(False), src_vocab, tgt_vocab, (0.1, 0.1), {}, "benchmark")


def encode(rows: list[bytes], checkpoint: Checkpoint) -> EncodedPairs:
    parsed = [parse_row(row) for row in rows]
    return EncodedPairs(
        Ragged.of_phrases([b" ".join(row.src) for row in parsed], checkpoint.src_vocab),
        Ragged.of_phrases([b" ".join(row.tgt) for row in parsed], checkpoint.tgt_vocab),
    )


def source_of(inputs: list[str], model_dir: str, pairs_dir: str | None = None) -> Source[PairStore]:
    """The pairs of inputs as `phrase-rescore train` prepares them."""
    return phrase_source(inputs, model_dir, TrainingConfig().override(pairs_dir=pairs_dir, device="cpu"))


def stored_pairs(directory: str) -> PairStore:
    """Open what `phrase-rescore train` keeps in MODEL_DIR.pairs; if there is nothing, prepare the table's pairs there."""
    summary = Path(directory, "pairs.json")
    if not Path(directory).exists():
        return source_of([str(table())], directory, directory).prepare(Observer())
    store = LAYOUT.open(directory, json.loads(summary.read_text())["fingerprint"]) if summary.exists() else None
    if store is None:
        raise SystemExit(f"{directory}: no prepared pairs of this version")
    return store


def fresh_task(store: PairStore, config: TrainingConfig) -> PairTask:
    """A model and its pairs as `phrase-rescore train` begins with on a CPU."""
    return make_task(config.override(device="cpu"), store, Listener(print, print))
