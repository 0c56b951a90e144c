"""Against the real readers: Moses' feature NeuralLM and NPLM's own program score an exported model, mert and kbmira read lists.

MOSES_BIN names a Moses that was built --with-nplm=DIR, NPLM_BIN the folder of DIR's programs. That the export says what
the model says is shown without them, by a reader in NumPy (tests/support/nplm_reader.py).
"""

import gzip
import math
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from moses_harness import Candidate, decode, ini_text, run_program
from nplm_reader import NplmModel

pytestmark = [pytest.mark.moses, pytest.mark.slow]

WORDS = [f"w{i}" for i in range(40)]
UNKNOWN = [f"z{i}" for i in range(5)]  # to the network
ARPA = "\\data\\\nngram 1=3\nngram 2=1\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\t0\n-1\t</s>\n\n\\2-grams:\n-1\t<s> </s>\n\n\\end\\\n"
SIZES = ["--order", "7", "--embedding", "12", "--hidden", "24"]


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model, exported, and a phrase table whose targets are its words and unknown ones."""
    folder, rng = tmp_path_factory.mktemp("neural"), random.Random(3)
    text = "".join(f"{' '.join(rng.choices(WORDS, range(1, 41), k=rng.randint(1, 12)))}\n" for _ in range(400))
    (folder / "text").write_text(text)
    for command in (
        ["train-lm", folder / "text", "-m", folder / "lm", *SIZES, "--max-steps", "150", "--batch-size", "64", "-q"],
        ["export-lm", "-m", folder / "lm", "-o", folder / "nplm", "-q"],
    ):
        done = run(*command)
        assert done.status == 0, done.err
    rows = [
        f"s{i} ||| {target} ||| {' '.join(f'{rng.uniform(0.1, 0.9):.4g}' for _ in range(4))} ||| 0-0 ||| 3 2 1 ||| |||\n"
        for i in range(20)
        for target in (WORDS[2 * i], f"{WORDS[2 * i + 1]} {WORDS[i]}", UNKNOWN[i % 5])
    ]
    (folder / "table.gz").write_bytes(gzip.compress("".join(sorted(rows)).encode()))
    (folder / "arpa").write_text(ARPA)
    (folder / "plain.ini").write_text(ini_text(folder / "table.gz", 4, folder / "arpa"))
    done = run("moses-ini", folder / "plain.ini", "--lm", folder / "nplm", "--weights", "0.4", "-o", folder / "ini", "-q")
    assert done.status == 0, done.err
    return folder


@pytest.fixture(scope="module")
def exported(folder: Path) -> NplmModel:
    return NplmModel((folder / "nplm").read_bytes())


def sentences() -> bytes:
    rng = random.Random(4)
    return "".join(f"{' '.join(f's{rng.randrange(20)}' for _ in range(rng.randint(1, 9)))}\n" for _ in range(25)).encode()


def expected(model: NplmModel, words: tuple[bytes, ...]) -> float:
    """The sum over a sentence: every word and </s> after the six before, <s> before the first."""
    padded = [*[b"<s>"] * (model.order - 1), *words, b"</s>"]
    return sum(model.score(padded[i : i + model.order]) for i in range(len(words) + 1))


@pytest.fixture(scope="module")
def nbest(decoder: Path, folder: Path) -> list[Candidate]:
    probe = subprocess.run([decoder, "-config", folder / "ini"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if b"NeuralLM is not registered" in probe.stderr:
        pytest.skip("needs a Moses that was built --with-nplm")
    return decode(decoder, folder / "ini", sentences(), folder / "run").nbest


def test_moses_scores_every_hypothesis_as_the_export_says(nbest: list[Candidate], exported: NplmModel) -> None:
    assert len(nbest) > 500
    assert any(word.startswith(b"z") for candidate in nbest for word in candidate.target)
    for candidate in nbest:
        assert candidate.features[b"CSLM0"] == pytest.approx((expected(exported, candidate.target),), abs=1e-4)


def test_rescore_gives_what_moses_gave_but_for_the_division(run, nbest, exported, folder) -> None:
    """log p = the decoder's score - Σ log Z: the division is Moses' own omission."""
    done = run("rescore", folder / "run" / "nbest", "-m", folder / "lm", "--label", "EXACT0", "-o", folder / "rescored", "-q")
    assert done.status == 0, done.err
    for line, candidate in zip((folder / "rescored").read_bytes().splitlines(), nbest, strict=True):
        padded = [*[b"<s>"] * 6, *candidate.target, b"</s>"]
        log_z = 0.0
        for i in range(len(candidate.target) + 1):
            every = [exported.score([*padded[i : i + 6], word]) for word in exported.words if word not in (b"<s>", b"<null>")]
            log_z += math.log(sum(map(math.exp, every)))
        exact = float(line.split(b"EXACT0= ")[1].split()[0])
        assert exact == pytest.approx(candidate.features[b"CSLM0"][0] - log_z, abs=1e-3)
        if candidate.sentence > 3:  # a thousand vocabularies are enough
            break


def test_nplms_own_program_scores_a_thousand_n_grams_as_the_export_says(folder: Path, exported: NplmModel) -> None:
    if "NPLM_BIN" not in os.environ:
        pytest.skip("needs the programs of NPLM, named by NPLM_BIN")
    rng = np.random.default_rng(5)
    ngrams, last = [], [word for word in exported.words if word not in (b"<s>", b"<null>")]  # never asked for
    for _ in range(1000):
        words = [*(exported.words[i] for i in rng.integers(0, len(exported.words), 6)), last[rng.integers(0, len(last))]]
        before = int(rng.integers(0, 6))
        ngrams.append([b"<s>"] * before + words[before:])
    (folder / "ngrams").write_bytes(b"".join(b"%b\n" % b" ".join(ngram) for ngram in ngrams))
    found = run_program(
        [
            Path(os.environ["NPLM_BIN"], "testNeuralLM"), "--test_file", folder / "ngrams", "--model_file", folder / "nplm",
            "--ngramize", 0, "--add_start_stop", 0,
        ],
        folder,
    )  # fmt: skip
    base_10 = [float(line) for line in found.split()]
    assert [score * math.log(10) for score in base_10] == pytest.approx([exported.score(n) for n in ngrams], abs=1e-4)


@pytest.mark.parametrize("tuner", ["mert", "kbmira"])
def test_tuners_read_rescored_lists(run: Run, decoder: Path, folder: Path, tmp_path: Path, tuner: str) -> None:
    plain = decode(decoder, folder / "plain.ini", sentences(), tmp_path / "run").nbest
    done = run("rescore", tmp_path / "run" / "nbest", "-m", folder / "lm", "-o", tmp_path / "list.gz", "-q")
    assert done.status == 0, done.err
    best = {candidate.sentence: max(
        (c.target for c in plain if c.sentence == candidate.sentence), key=lambda words: (len(words), words)
    ) for candidate in plain}  # fmt: skip
    (tmp_path / "ref").write_bytes(b"".join(b"%b\n" % b" ".join(best[i]) for i in sorted(best)))
    beside = decoder.parent
    run_program([beside / "extractor", "-r", tmp_path / "ref", "-n", tmp_path / "list.gz", "-F", "f", "-S", "s"], tmp_path)
    features = (tmp_path / "f").read_text()
    assert "CSLM0" in features.splitlines()[0]
    counts = [*((name.decode(), len(values)) for name, values in plain[0].features.items()), ("CSLM0", 1)]
    count = sum(n for _, n in counts)
    if tuner == "mert":
        (tmp_path / "init.opt").write_text("\n".join(" ".join([number] * count) for number in ("0.1", "0", "1")) + "\n")
        command = [beside / "mert", "-d", count, "--ffile", "f", "--scfile", "s", "--ifile", "init.opt", "-n", 5, "-r", 1]
        run_program(command, tmp_path)
        weights = [float(word) for word in (tmp_path / "weights.txt").read_text().split()]
    else:
        (tmp_path / "dense").write_text("".join(f"{name}= 0.1\n" * n for name, n in counts))  # as mert-moses.pl does
        command = [beside / "kbmira", "--dense-init", "dense", "--ffile", "f", "--scfile", "s", "-o", "weights", "-r", 1]
        run_program(command, tmp_path)
        weights = [float(line.split()[-1]) for line in (tmp_path / "weights").read_text().splitlines()]
    assert len(weights) == count
    assert all(map(math.isfinite, weights))
