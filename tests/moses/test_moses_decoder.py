"""Against the real decoder: a table is trained on, annotated, put into an ini and decoded with.

``MOSES_BIN=/opt/moses/bin pytest -m moses`` runs them; MOSES_SCRIPTS names the scripts where they are not beside bin.
"""

import gzip
import math
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import Run
from moses_harness import Decoded, decode, found_scripts, ini_text, run_program

pytestmark = [pytest.mark.moses, pytest.mark.slow]

TINY = ["--max-steps", "30", "--hidden", "8", "--rank", "8", "--threads", "1", "--shortlist", "20", "--held-out", "0", "-q"]
WORDS = 30  # s0 to s29; of the words they are translated to, 20 are known to the model


def table_rows() -> list[str]:
    rng = random.Random(7)
    rows = [(f"s{i}", f"{side}{i}", "0-0") for i in range(WORDS) for side in ("t", "u", f"v{i % 3} w")]
    rows += [(f"s{i} s{i + 1}", f"{side}{i + 1} t{i}", "0-1 1-0") for i in range(WORDS - 1) for side in "tu"]
    return sorted(
        f"{src} ||| {tgt} ||| {' '.join(f'{rng.uniform(0.01, 0.99):.6g}' for _ in range(4))} ||| {points} ||| 3 2 1 ||| |||\n"
        for src, tgt, points in rows
    )


def sentences() -> bytes:
    rng = random.Random(8)
    starts = [rng.randrange(WORDS - 4) for _ in range(12)]
    lines = [" ".join(f"s{start + i}" for i in range(rng.randint(2, 4))) for start in starts]
    return "".join(f"{line}\n" for line in lines + [f"s{i}" for i in range(WORDS)]).encode()


class World(NamedTuple):
    folder: Path
    ini: Path  # of the baseline
    table: Path
    annotated: Path  # by the forward model
    both: Path  # and the inverse one


@pytest.fixture(scope="module")
def world(run: Run, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    table, annotated, both = (folder / name for name in ("phrase-table.gz", "phrase-table.rnn.gz", "phrase-table.both.gz"))
    table.write_bytes(gzip.compress("".join(table_rows()).encode()))
    ini = folder / "moses.ini"
    ini.write_text(ini_text(table, 4))
    ok(run, "train", table, "-m", folder / "forward", *TINY)
    ok(run, "train", table, "-m", folder / "inverse", "--inverse", *TINY)
    ok(run, "annotate", table, "-m", folder / "forward", "-o", annotated, "-q")
    ok(run, "annotate", table, "-m", folder / "forward", "-m", folder / "inverse", "-o", both, "-q")
    return World(folder, ini, table, annotated, both)


def ok(run: Run, *args: object, stdin: bytes = b"") -> bytes:
    done = run(*args, stdin=stdin)
    assert done.status == 0, f"phrase-rescore {' '.join(map(str, args))}\n{done.err}"
    return done.out


@pytest.fixture
def patched(run: Run, world: World, tmp_path: Path) -> Callable[..., Path]:
    """The ini of the baseline, or another, for another table."""

    def make(table: Path, weights: str, ini: Path = world.ini) -> Path:
        out = tmp_path / f"{table.name}.{weights}.ini"
        ok(run, "moses-ini", ini, "--table", table, "--weights", weights, "-o", out, "-q")
        return out

    return make


def check_features(run: Run, decoded: Decoded, models: list[Path], tolerance: float = 1e-4) -> None:
    """The last features of every entry are, model by model, the sums of log p and of unknown words of its phrase pairs."""
    source = [line.split() for line in sentences().splitlines()]
    pairs = [candidate.pairs(source[candidate.sentence]) for candidate in decoded.nbest]
    lines = b"".join(line for some in pairs for line in some)
    scores = [
        [tuple(map(float, row.split(b"\t"))) for row in ok(run, "score", "-m", m, stdin=lines).splitlines()] for m in models
    ]
    seen, at = set(), 0
    for candidate, some in zip(decoded.nbest, pairs, strict=True):
        found = candidate.features[b"TranslationModel0"]
        assert len(found) == 4 + 2 * len(models), f"{candidate}: {found}"
        for i, of_model in enumerate(scores):
            log_p, unknown = map(sum, zip(*of_model[at : at + len(some)], strict=True))
            expected, got = (log_p, unknown), found[4 + 2 * i : 6 + 2 * i]
            assert got == pytest.approx(expected, rel=tolerance, abs=tolerance), f"model {models[i]}, {some}\n{candidate}"
            seen.add((i, len(some), unknown > 0))
        at += len(some)
    # of every model: lists with one and with several phrases, with and without unknown words
    assert {(i, n > 1, unknown) for i, n, unknown in seen} == {
        (i, several, unknown) for i in range(len(models)) for several in (False, True) for unknown in (False, True)
    }


def test_features_in_n_best_lists_are_what_score_says(run, decoder, world, patched, tmp_path) -> None:
    decoded = decode(decoder, patched(world.annotated, "small"), sentences(), tmp_path / "run")
    assert len(decoded.nbest) > 100
    check_features(run, decoded, [world.folder / "forward"])


def first_features(decoded: Decoded) -> list[tuple[int, tuple[bytes, ...], tuple[float, ...], float]]:
    return sorted((c.sentence, c.target, c.features[b"TranslationModel0"][:4], c.total) for c in decoded.nbest)


@pytest.mark.parametrize("table", ["annotated", "both"])
def test_weights_of_zero_are_the_baseline(decoder, world, patched, tmp_path, table) -> None:
    baseline = decode(decoder, world.ini, sentences(), tmp_path / "baseline")
    zero = decode(decoder, patched(getattr(world, table), "zero"), sentences(), tmp_path / "zero")
    assert zero.output == baseline.output
    assert first_features(zero) == first_features(baseline)


@pytest.mark.parametrize("weights", ["3,-3", "-2,2"])
def test_the_best_translation_of_a_word_is_as_the_weights_say(decoder, world, patched, tmp_path, weights) -> None:
    """One word is one phrase: its translation is the row whose weighted logarithms are the most, less the word penalty."""
    new = [float(w) for w in weights.split(",")]
    best: dict[bytes, tuple[float, bytes]] = {}
    for row in gzip.decompress(world.annotated.read_bytes()).splitlines():
        src, tgt, scores = (field.strip() for field in row.split(b"|||")[:3])
        logs = [math.log(float(score)) for score in scores.split()]
        total = sum(w * v for w, v in zip([0.1, 0.1, 0.5, 0.1, *new], logs, strict=True)) + 0.1 * len(tgt.split())
        best[src] = max(best.get(src, (-math.inf, b"")), (total, tgt))
    words = [f"s{i}".encode() for i in range(WORDS)]
    decoded = decode(decoder, patched(world.annotated, weights), b"".join(w + b"\n" for w in words), tmp_path / "run")
    assert [line.strip() for line in decoded.output.splitlines()] == [best[word][1] for word in words]
    baseline = decode(decoder, world.ini, b"".join(w + b"\n" for w in words), tmp_path / "baseline")
    assert decoded.output != baseline.output, "the new columns weigh nothing"


def filtered(decoder: Path, ini: Path, folder: Path) -> Path:
    """The ini of filter-model-given-input.pl."""
    if not (scripts := found_scripts(decoder, os.environ.get("MOSES_SCRIPTS"))):
        pytest.skip("needs Moses' scripts, beside bin or named by MOSES_SCRIPTS")
    (folder / "to-filter").write_bytes(sentences())
    script = scripts / "training/filter-model-given-input.pl"
    run_program(["perl", script, folder / "filtered", ini, folder / "to-filter"], folder)
    return folder / "filtered" / "moses.ini"


def test_annotated_and_then_filtered(run, decoder, world, patched, tmp_path) -> None:
    ini = patched(world.annotated, "small")
    whole = decode(decoder, ini, sentences(), tmp_path / "whole")
    part = decode(decoder, filtered(decoder, ini, tmp_path), sentences(), tmp_path / "part")
    assert part.output == whole.output
    check_features(run, part, [world.folder / "forward"])


def test_filtered_and_then_annotated(run, decoder, world, patched, tmp_path) -> None:
    ini = filtered(decoder, world.ini, tmp_path)
    (path,) = re.findall(r"TranslationModel0 .*path=(\S+)", ini.read_text())
    ok(run, "annotate", path, "-m", world.folder / "forward", "-o", tmp_path / "part.gz", "-q")
    baseline = decode(decoder, world.ini, sentences(), tmp_path / "baseline")
    zero = decode(decoder, patched(tmp_path / "part.gz", "zero", ini), sentences(), tmp_path / "zero")
    assert zero.output == baseline.output
    check_features(run, zero, [world.folder / "forward"])


def test_a_compact_table(run: Run, decoder: Path, world: World, tmp_path: Path) -> None:
    make = decoder.parent / "processPhraseTableMin"
    if not make.exists():
        pytest.skip(f"needs processPhraseTableMin beside {decoder}")
    run_program(
        [make, "-in", world.annotated, "-out", tmp_path / "table", "-nscores", 6, "-rankscore", 2, "-threads", 1], tmp_path
    )
    ini, out = tmp_path / "compact.ini", tmp_path / "compact.rnn.ini"
    ini.write_text(world.ini.read_text().replace("PhraseDictionaryMemory ", "PhraseDictionaryCompact "))
    ok(run, "moses-ini", ini, "--table", world.annotated, "--path", tmp_path / "table", "-o", out, "-q")
    check_features(run, decode(decoder, out, sentences(), tmp_path / "run"), [world.folder / "forward"])
