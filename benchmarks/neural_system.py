"""What a neural toolkit has on the same text: a small transformer of Marian, by the advice of Sennrich and Zhang (ACL 2019).

usage: neural_system.py TRAIN.SRC TRAIN.TGT DEV.SRC DEV.TGT FOLDER TEXT... [--passes 30]

Runs in an environment of its own: pip install pymarian==1.12.42 subword-nmt==0.3.8. Texts are tokenized. One thread. The
translation of TEXT, by the weights that are best on dev, is FOLDER/TEXT.out. Stopped, it goes on from the last 500 minibatches;
called again with more passes, from the last one.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from pymarian import Trainer, Translator
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

MERGES = 4000
SETTINGS = dict(
    type="transformer", dim_emb=256, transformer_dim_ffn=1024, transformer_heads=4, enc_depth=3, dec_depth=3,
    transformer_dropout=0.3, label_smoothing=0.1, tied_embeddings_all=True, mini_batch_words=1500, max_length=120,
    learn_rate=0.001, lr_warmup=800, lr_decay_inv_sqrt=800, optimizer_params=[0.9, 0.98, 1e-9], clip_norm=1,
    exponential_smoothing=1e-4, seed=1, cpu_threads=1, workspace=2000, disp_freq=100, save_freq="500u", overwrite=True,
    valid_metrics=["ce-mean-words"], valid_freq="500u", valid_mini_batch=32, keep_best=True, early_stopping=12,
)  # fmt: skip
SEARCH = dict(beam_size=6, normalize=0.6, mini_batch=32, maxi_batch=100, maxi_batch_sort="src", max_length=150)


def pieces(texts: list[str], folder: Path) -> BPE:
    """Joint byte pairs of the two sides of the training text."""
    codes = folder / "codes"
    if not codes.exists():
        with codes.open("w", encoding="utf-8") as out:
            learn_bpe([line for text in texts for line in lines(text)], out, MERGES)
    return BPE(codes.open(encoding="utf-8"))


def lines(text: str | Path) -> list[str]:
    return Path(text).read_text("utf-8").split("\n")[:-1]


def in_pieces(text: str, bpe: BPE, folder: Path) -> str:
    out = folder / (Path(text).name + ".bpe")
    if not out.exists():
        out.write_text("".join(bpe.process_line(line) + "\n" for line in lines(text)), "utf-8")
    return str(out)


def vocabulary(texts: list[str], out: Path) -> str:
    """Write every piece, the most frequent first, as Marian reads it."""
    if not out.exists():
        counts = Counter(piece for text in texts for line in lines(text) for piece in line.split())
        ordered = ["</s>", "<unk>", *sorted(counts, key=lambda piece: (-counts[piece], piece))]
        out.write_text("".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for i, piece in enumerate(ordered)), "utf-8")
    return str(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("src", "tgt", "dev_src", "dev_tgt"):
        parser.add_argument(name)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--passes", type=int, default=30)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    bpe = pieces([args.src, args.tgt], args.folder)
    train = [in_pieces(text, bpe, args.folder) for text in (args.src, args.tgt)]
    dev = [in_pieces(text, bpe, args.folder) for text in (args.dev_src, args.dev_tgt)]
    vocabs = [vocabulary(train, args.folder / "vocab.yml")] * 2
    model = str(args.folder / "model.npz")
    Trainer(train_sets=train, valid_sets=dev, vocabs=vocabs, model=model, after_epochs=args.passes, **SETTINGS).train()
    print(f"trained: {time.process_time() / 60:.1f} processor minutes", flush=True)
    best = model + ".best-ce-mean-words.npz"
    translator = Translator(models=[best], vocabs=vocabs, cpu_threads=1, max_length_factor=3, quiet=True, **SEARCH)
    for text in args.texts:
        start, sources = time.process_time(), lines(in_pieces(text, bpe, args.folder))
        found = translator.translate(sources)
        out = args.folder / (Path(text).name + ".out")
        out.write_text("".join(line.replace("@@ ", "") + "\n" for line in found), "utf-8")
        print(f"{text}: {len(sources) / (time.process_time() - start):.1f} sentences a processor second", flush=True)


if __name__ == "__main__":
    main()
