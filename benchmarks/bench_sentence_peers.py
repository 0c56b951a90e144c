"""Sentence pairs beside the tools that a user could take instead: training on them, and n-best lists; each on one thread.

usage: PEERS=DIR bench_sentence_peers.py [--rounds 3] [--times 1] [--json FILE]

DIR, seconds and columns are those of bench_peers.py. Networks read a source both ways, attend to it, have embeddings of 256 and
some 320 units, 15,000 words a side, minibatches of 96 pairs and the weights of three steps. Scoring is 30 segments of 200
entries, or so many times as many, less the same command with one of 10. Of 32 minibatches those of like lengths are together,
as we and Marian do it, so that training is measured on a multiple of 32.
"""

import gzip
import json
from collections import Counter
from itertools import groupby, islice
from pathlib import Path

from bench_peers import FIRST, ONMT_SCORER, SIDES, TOOLS, Tool, compare
from inputs import beside

from phrase_rescore.files.inputs import open_input, read_rows
from phrase_rescore.moses.hypotheses import read_entries

WORDS, BATCH, PAIRS, SEGMENTS, ENTRIES, FEW = 15_000, 96, 20_000, 30, 200, 10
SORTED = 32  # minibatches

JOEYNMT = """
{name: peer, model_dir: joeynmt, use_cuda: False,
data: {train: train, dev: short, test: NAME, dataset_type: plain, src: {lang: src, level: word, voc_file: joeynmt.src},
  trg: {lang: tgt, level: word, voc_file: joeynmt.tgt}},
model: {tied_softmax: True,
  encoder: {type: recurrent, rnn_type: gru, hidden_size: 160, num_layers: 2, bidirectional: True, dropout: 0.3,
    embeddings: {embedding_dim: 256}},
  decoder: {type: recurrent, rnn_type: gru, hidden_size: 256, num_layers: 2, dropout: 0.3, attention: luong,
    embeddings: {embedding_dim: 256}}},
training: {overwrite: True, batch_size: 96, updates: STEPS, validation_freq: 100000, scheduling: exponential,
  clip_grad_norm: 1.0},
testing: {load_model: joeynmt/latest.ckpt, batch_size: 96, return_prob: ref}}
"""


def ours(precision: str) -> Tool:
    options = "--pairs pairs -m nmt --threads 1 --device cpu --overwrite --max-steps {steps} -q"
    return Tool(
        f"-m phrase_rescore train-nmt train.src train.tgt --precision {precision} {options}",
        "-m phrase_rescore rescore {name}.list.gz -m nmt --source {name}.source -o {name}.out --threads 1 --overwrite -q",
        steps=SORTED,
    )  # fmt: skip


MARIAN = f"-m marian.npz -v marian.src.json marian.tgt.json --mini-batch {BATCH} --maxi-batch {SORTED} --cpu-threads 1 --quiet"
SIZES = "--type s2s --dim-emb 256 --dim-rnn 320 --enc-depth 1 --dec-cell-base-depth 2 --tied-embeddings --dropout-rnn 0.3"
PEERS = {
    "pymarian 1.12.42, s2s": (
        f"-m pymarian train {MARIAN} {SIZES} -t train.src train.tgt --after-batches {{steps}} --no-reload --overwrite",
        f"-m pymarian score {MARIAN} -t {{name}}.src {{name}}.tgt -o {{name}}.marian", "", 2 * SORTED,
    ),
    "OpenNMT-py 3.5.1": (
        "-m onmt.bin.train -config onmt.yaml -save_model onmt -train_steps {steps} -save_checkpoint_steps {steps} -optim adam "
        f"-src_vocab words.src -tgt_vocab words.tgt -src_vocab_size {WORDS} -tgt_vocab_size {WORDS} -word_vec_size 256 "
        "-encoder_type brnn -decoder_type rnn -rnn_type GRU -hidden_size 320 -layers 2 -global_attention general -input_feed 0 "
        f"-dropout 0.3 -batch_type sents -batch_size {BATCH} -bucket_size {SORTED * BATCH} -num_workers 0",
        f"onmt_scorer.py -model onmt_step_{FIRST}.pt -src {{name}}.src -tgt {{name}}.tgt -output {{name}}.onmt "
        f"-batch_type sents -batch_size {BATCH} -beam_size 1",
        "output matrix of 320 columns", SORTED,
    ),
    "Joey NMT 2.3.0": (
        "-m joeynmt train joeynmt.short.{steps}.yaml --skip-test",
        f"-m joeynmt test joeynmt.{{name}}.{FIRST}.yaml --save-scores --output-path {{name}}.joeynmt",
        "input feeding", Tool.steps,
    ),
}  # fmt: skip


def prepare(folder: Path, times: int) -> int:
    """Write what the tools read: lists, their entries as pairs, a bitext, 15,000 words a side (some made up), settings."""
    with open_input(beside("dev.en", "dev.en")) as stream:
        sources = [line.decode() for line in islice(read_rows(stream), times * SEGMENTS)]
    name = beside("nbest.dev.200.gz", "dev.2.nbest.gz")
    with open_input(name) as stream:
        segments = groupby(read_entries(read_rows(stream), name), lambda entry: entry.segment)
        groups = [list(group) for _, group in islice(segments, times * SEGMENTS)]
    entries = [(sources[entry.segment], entry) for group in groups for entry in group]
    for name, part in (("long", entries), ("short", entries[:FEW])):
        (folder / f"{name}.list.gz").write_bytes(gzip.compress(b"".join(entry.line() for _, entry in part)))
        (folder / f"{name}.source").write_text("".join(sources[: part[-1][1].segment + 1]))
        (folder / f"{name}.src").write_text("".join(source for source, _ in part))
        (folder / f"{name}.tgt").write_text("".join(f"{b' '.join(entry.hypothesis()).decode()}\n" for _, entry in part))
    for side, suffix in zip(SIDES, ("en", "fr"), strict=True):
        with open_input(beside(f"train.{suffix}.xz", f"train.{suffix}")) as stream:
            text = [line.decode() for line in islice(read_rows(stream), PAIRS)]
        (folder / f"train.{side}").write_text("".join(text))
        counts = Counter(word for line in text for word in line.split())
        words = [*(word for word, _ in counts.most_common(WORDS)), *(f"_{i}" for i in range(WORDS))][:WORDS]
        ids = {word: id for id, word in enumerate(["</s>", "<unk>", *words])}
        (folder / f"marian.{side}.json").write_text(json.dumps(ids, ensure_ascii=False))
        (folder / f"joeynmt.{side}").write_text("".join(f"{word}\n" for word in words))
        (folder / f"words.{side}").write_text("".join(f"{word}\t1\n" for word in words))
    for name in ("long", "short"):
        for steps in (FIRST, FIRST + Tool.steps):
            (folder / f"joeynmt.{name}.{steps}.yaml").write_text(JOEYNMT.replace("NAME", name).replace("STEPS", str(steps)))
    (folder / "onmt.yaml").write_text("data: {corpus: {path_src: train.src, path_tgt: train.tgt, transforms: []}}")
    (folder / "onmt_scorer.py").write_text(ONMT_SCORER)
    return len(entries)


if __name__ == "__main__":
    tools = {"phrase-rescore, default": ours("auto"), "phrase-rescore, float32": ours("float32")}
    for name, (train, score, more, steps) in PEERS.items():
        tools[name] = Tool(train, score, TOOLS[name].environment, TOOLS[name].install, more, steps)
    compare(tools, prepare, BATCH)
