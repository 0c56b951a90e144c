"""Scoring and training of phrase pairs beside the tools that a user could take instead, each on one thread.

usage: PEERS=DIR bench_peers.py [--rounds 3] [--times 1] [--json FILE]

DIR has a Python environment for each peer: DIR/marian, DIR/onmt, DIR/joeynmt. What is missing is left out with a line that says
how to install it. All networks have GRUs of 500 units, embeddings of 100, 15,000 words a side, minibatches of 256 and the
weights of three steps. Seconds are those of the processor (user and system) that whole processes take: other load hardly
counts. Scoring is 10,000 pairs, or so many times as many, less the same command with 10 pairs; training is some steps less the
same with three.
"""

import argparse
import gzip
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from inputs import table

from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.table import parse_row

WORDS, BATCH, PAIRS, FEW, FIRST, SIDES = 15_000, 256, 10_000, 10, 3, ("src", "tgt")
TORCH = "pip install torch==2.13.0 numpy tensorboard sacrebleu pyyaml six"
# OpenNMT-py's models hold its options, which torch would refuse
SETTINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}

# OpenNMT-py's own translate also decodes; this calls what scores given targets in it, and nothing else
ONMT_SCORER = """
import torch
from onmt.bin.translate import main
from onmt.translate.translator import Translator
def score(self, batches, *_):
    scores = []
    with torch.no_grad():
        for batch, bucket in batches:
            src, last, states, lengths = self._run_encoder(batch)
            self.model.decoder.init_state(src, states, last)
            found = self._score_target(batch, states, lengths, None)[0].tolist()
            scores += zip([bucket] * len(found), batch["ind_in_bucket"], found)
    self.out_file.writelines(f"{found}\\n" for *_, found in sorted(scores))
    return [], []
Translator._translate = score
main()
"""

# Joey NMT scores the targets that it is given with return_prob: ref; dev data it must have
JOEYNMT = """
{name: peer, model_dir: joeynmt, use_cuda: False,
data: {train: train, dev: short, test: NAME, dataset_type: plain, src: {lang: src, level: word, voc_file: joeynmt.src},
  trg: {lang: tgt, level: word, voc_file: joeynmt.tgt}},
model: {encoder: {type: recurrent, rnn_type: gru, hidden_size: 500, bidirectional: True, embeddings: {embedding_dim: 100}},
  decoder: {type: recurrent, rnn_type: gru, hidden_size: 500, attention: bahdanau, embeddings: {embedding_dim: 100}}},
training: {overwrite: True, batch_size: 256, updates: STEPS, validation_freq: 100000, scheduling: exponential,
  clip_grad_norm: 1.0},
testing: {load_model: joeynmt/latest.ckpt, batch_size: 256, return_prob: ref}}
"""


@dataclass(frozen=True)
class Tool:
    """What Python is to run in the work folder to train for {steps}, and to score the pairs of {name}."""

    train: str
    score: str
    environment: str = ""  # empty: this one
    install: str = ""
    more: str = ""  # it computes
    steps: int = 8  # that are measured


def ours(softmax: str) -> Tool:
    sizes = "--hidden 500"
    options = f"{sizes} --softmax {softmax} --batch-size {BATCH} --threads 1 --device cpu --overwrite --max-steps {{steps}} -q"
    return Tool(
        f"-m phrase_rescore train train.tsv --pairs pairs --source-vocab words.src --target-vocab words.tgt {options}",
        "-m phrase_rescore annotate {name}.table.gz -o {name}.out --allow-untrained-unk --jobs 1 --device cpu --overwrite -q",
        steps=30,
    )  # fmt: skip


def marian(cells: int, more: str) -> Tool:
    common = f"-m marian{cells}.npz -v marian.src.json marian.tgt.json --mini-batch {BATCH} --cpu-threads 1 --quiet"
    sizes = f"--type s2s --dim-emb 100 --dim-rnn 500 --dec-cell-base-depth {cells}"
    return Tool(
        f"-m pymarian train {common} {sizes} -t train.src train.tgt --after-batches {{steps}} --no-reload --overwrite",
        f"-m pymarian score {common} -t {{name}}.src {{name}}.tgt -o {{name}}.marian",
        "marian", "pip install pymarian==1.12.42", more,
    )  # fmt: skip


TOOLS = {
    "phrase-rescore, full softmax": ours("full"),
    "phrase-rescore, default": ours("sampled"),
    "pymarian 1.12.42, s2s": marian(2, "bidirectional, attention, two cells"),
    "the same, one cell": marian(1, "bidirectional, attention"),
    "OpenNMT-py 3.5.1": Tool(
        "-m onmt.bin.train -config onmt.yaml -save_model onmt -train_steps {steps} -save_checkpoint_steps {steps} -optim adam "
        f"-src_vocab words.src -tgt_vocab words.tgt -src_vocab_size {WORDS} -tgt_vocab_size {WORDS} -word_vec_size 100 "
        "-encoder_type rnn -decoder_type rnn -rnn_type GRU -hidden_size 500 -layers 1 -global_attention none -input_feed 0 "
        f"-dropout 0 -batch_type sents -batch_size {BATCH} -bucket_size 20000 -num_workers 0 -learning_rate 0.001",
        f"onmt_scorer.py -model onmt_step_{FIRST}.pt -src {{name}}.src -tgt {{name}}.tgt -output {{name}}.onmt "
        f"-batch_type sents -batch_size {BATCH} -beam_size 1",
        "onmt",
        f"{TORCH} 'pyonmttok<2' configargparse rapidfuzz pyahocorasick flask waitress spacy fasttext-wheel && "
        "pip install --no-deps OpenNMT-py==3.5.1",
        "full-rank output",
    ),
    "Joey NMT 2.3.0": Tool(
        "-m joeynmt train joeynmt.short.{steps}.yaml --skip-test",
        f"-m joeynmt test joeynmt.{{name}}.{FIRST}.yaml --save-scores --output-path {{name}}.joeynmt",
        "joeynmt",
        f"{TORCH} 'protobuf<3.21' sacremoses sentencepiece subword-nmt matplotlib seaborn wrapt datasets packaging pandas "
        "importlib_metadata && pip install --no-deps joeynmt==2.3.0",
        "bidirectional, attention, full-rank output",
    ),
}  # fmt: skip


def prepare(folder: Path, times: int) -> int:
    """Write what the tools read: pairs to score and to train on, 15,000 words a side (some made up), settings."""
    path = table().with_name("phrase-table.dev.gz")  # many targets a source, as in a table filtered for a test set
    with open_input(str(path if path.exists() else table())) as stream:
        rows = [(line, parse_row(line.rstrip(b"\n"))) for line in islice(stream, (8 + 2 * times) * PAIRS)]
    texts = [(line, b" ".join(row.src).decode(), b" ".join(row.tgt).decode()) for line, row in rows]
    usable = [row for row in texts if all(text.split() == text.split(" ") for text in row[1:])]  # peers split at any blank
    drawn = random.Random(1).sample(usable, len(usable))
    scored = usable[: times * PAIRS]
    for name, part in (("long", scored), ("short", usable[:FEW]), ("train", drawn[: 4 * PAIRS])):
        (folder / f"{name}.table.gz").write_bytes(gzip.compress(b"".join(row[0] for row in part)))
        (folder / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for _, src, tgt in part))
        for i, side in enumerate(SIDES, 1):
            (folder / f"{name}.{side}").write_text("".join(f"{row[i]}\n" for row in part))
    print(f"{len(scored):,} pairs of {len({row[1] for row in scored}):,} sources", flush=True)
    for i, side in enumerate(SIDES, 1):
        counts = Counter(word for row in drawn for word in row[i].split())
        words = [*(word for word, _ in counts.most_common(WORDS)), *(f"_{i}" for i in range(WORDS))][:WORDS]
        ids = {word: id for id, word in enumerate(["</s>", "<unk>", *words])}
        (folder / f"words.{side}").write_text("".join(f"{word}\t1\n" for word in words))
        (folder / f"marian.{side}.json").write_text(json.dumps(ids, ensure_ascii=False))
        (folder / f"joeynmt.{side}").write_text("".join(f"{word}\n" for word in words))
    for name in ("long", "short"):
        for steps in (FIRST, FIRST + Tool.steps):
            (folder / f"joeynmt.{name}.{steps}.yaml").write_text(JOEYNMT.replace("NAME", name).replace("STEPS", str(steps)))
    (folder / "onmt.yaml").write_text("data: {corpus: {path_src: train.src, path_tgt: train.tgt, transforms: []}}")
    (folder / "onmt_scorer.py").write_text(ONMT_SCORER)
    return len(scored)


def seconds(python: str, command: str, folder: Path) -> float:
    """The processor's time, user and system, that a command and its children take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments, environment = [python, *command.split()], os.environ | SETTINGS
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise SystemExit(f"{python} {command}: status {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def speeds(tool: Tool, python: str, folder: Path, pairs: int, batch: int) -> dict[str, float]:
    """Pairs per second of scoring, of the whole command that scores, and of training, measured once."""
    trained, first = (seconds(python, tool.train.format(steps=steps), folder) for steps in (FIRST + tool.steps, FIRST))
    short, whole = (seconds(python, tool.score.format(name=name), folder) for name in ("short", "long"))
    return {"scoring": pairs / (whole - short), "command": pairs / whole, "training": tool.steps * batch / (trained - first)}


def compare(tools: dict[str, Tool], prepare: Callable[[Path, int], int], batch: int) -> None:
    """Print medians of the speeds of every tool that is there, in turns. ``prepare`` writes the inputs and counts the pairs."""
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    peers = os.path.abspath(os.environ["PEERS"])
    pythons = {n: f"{peers}/{t.environment}/bin/python" if t.environment else sys.executable for n, t in tools.items()}
    for name in [name for name, python in pythons.items() if not os.path.exists(python)]:
        print(f"{name}: no {pythons.pop(name)}. Make it by python3 -m venv, and in that environment: {tools[name].install}")
    with tempfile.TemporaryDirectory() as folder:
        pairs = prepare(Path(folder), options.times)
        seconds(sys.executable, next(iter(tools.values())).train.format(steps=1), Path(folder))  # which prepares the pairs
        measured = partial(speeds, folder=Path(folder), pairs=pairs, batch=batch)
        turns = [{name: measured(tools[name], python) for name, python in pythons.items()} for _ in range(options.rounds)]
    result = {name: {of: statistics.median(turn[name][of] for turn in turns) for of in turns[0][name]} for name in pythons}
    first, second = (result[name] for name in list(tools)[:2])
    print("pairs per second of the processor, one thread; in brackets, how many times as fast phrase-rescore is")
    print(f"{'':38s}{'scoring':>14s}{'command':>14s}{'training':>10s}{'(first)':>9s}{'(second)':>9s}  computes more")
    for name, speed in result.items():
        scoring, command = (f"{speed[key]:,.0f} ({first[key] / speed[key]:.1f})" for key in ("scoring", "command"))
        training = "".join(f"{of['training'] / speed['training']:9.1f}" for of in (first, second))
        print(f"{name:38s}{scoring:>14s}{command:>14s}{speed['training']:10,.0f}{training}  {tools[name].more}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    compare(TOOLS, prepare, BATCH)
