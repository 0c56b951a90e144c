"""``info`` from the outside: what it says of tables, of models and of everything else."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeModel, Run
from small_models import small_lm

from phrase_rescore.info.faults import FAULTS
from phrase_rescore.info.model import ModelInfo
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.rnn.checkpoint import load, save

TABLE = (
    b"a\xff old ||| alt ||| 0.5 0.25 1 6.1e-05 ||| 1-0 ||| 3 2 1 ||| |||\n"
    b"the house ||| das haus ||| 0.5 0.25 1 0.1 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
    b"the house ||| haus unbekannt neu ||| 1 1 0.5 2.718 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
    b"the unknown ||| das ||| 1 0.1 1 1 ||| 0-0 ||| 1 1 1 ||| |||\n"
)
FAULTY = TABLE.replace(b"0.5 0.25 1 0.1", b"0.5  0.25\t1 -3").replace(b"1 1 0.5 2.718", b"inf 1 0.5 0") + b"\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.write_bytes(TABLE)
    return path


def described(run: Run, *args: object) -> Any:
    """What the command says as JSON."""
    result = run("info", *args, "--json")
    assert (result.status, result.err) == (0, "")
    return json.loads(result.out)


def report(run: Run, *args: object) -> list[str]:
    """The lines that it writes for people."""
    result = run("info", *args)
    assert (result.status, result.err) == (0, "")
    return result.out.decode().splitlines()


def line_of(lines: Sequence[str], label: str) -> str:
    """The only line that begins so."""
    (line,) = (line for line in lines if line.startswith(label))
    return line


def has(lines: Sequence[str], facts: dict[str, str]) -> bool:
    """Whether lines that begin with these labels have these words, in this order."""
    return all(line_of(lines, label).removeprefix(label).split() == words.split() for label, words in facts.items())


def test_a_table(run: Run, table: Path) -> None:
    value = described(run, table)
    assert (value["kind"], value["rows"], value["pairs"], value["problems"]) == ("phrase table", 4, 4, [])
    assert value["source"] == {"distinct": 3, "exact": True, "runs": 3, "words": 8, "distinct_words": 5, "factors": 1}
    assert value["scores"][1] == {"column": 2, "smallest": 0.1, "largest": 1.0, "zeros": 0}
    assert (value["our_columns"], value["looks_annotated"], value["model"]) == (None, False, None)
    lines = report(run, table)
    assert str(table) in lines[0]
    assert has(lines, {
        "rows": "4", "sources": "3", "targets": "4", "source words": "8, 5 distinct", "target words": "7, 5 distinct",
        "  2": "0.1 1 0", "  4": "6.1e-05 2.718 0", "new columns": "none", "problems": "none found",
    })  # fmt: skip
    odd = table.rename(table.with_name(os.fsdecode(b"\xff")))
    assert run("info", odd).out.splitlines()[1:] == [line.encode() for line in lines[1:]], "whatever the name of its file is"


def test_problems_come_last_with_programs_and_lines(run: Run, table: Path) -> None:
    table.write_bytes(FAULTY)
    value = described(run, table)
    assert (value["rows"], value["pairs"], value["scores"][0]["smallest"]) == (5, 3, 0.5), "refused rows are left out"
    assert [(problem["problem"], problem["count"], problem["first_line"]) for problem in value["problems"]] == [
        ("refused", 2, 3), ("negative", 1, 2), ("score_blanks", 1, 2), ("score_tabs", 1, 2),
    ]  # fmt: skip
    assert "'inf'" in value["problems"][0]["reason"]
    lines = report(run, table)
    shown = lines[lines.index("problems") + 1 :]
    for problem in value["problems"]:
        assert problem["programs"] == FAULTS[problem["problem"]].effects
        at = next(i for i, line in enumerate(shown) if line.startswith(f"  {problem['what']}: {problem['count']}, "))
        assert shown[at].endswith(f" {problem['first_line']}" + (f": {problem['reason']}" if problem["reason"] else ""))
        effects = zip(shown[at + 1 :], problem["programs"].items(), strict=False)
        assert all(line.split(": ", 1) == [f"    {programs}", effect] for line, (programs, effect) in effects)
    strict = run("info", table, "--strict")
    assert (strict.status, strict.out.decode().splitlines()) == (1, lines)
    assert f"{table}: problems of 4 kinds" in strict.err
    table.write_bytes(TABLE)
    assert run("info", table, "--strict").status == 0


def test_order_that_is_not_sort_s(run: Run, table: Path) -> None:
    rows = TABLE.splitlines(keepends=True)
    table.write_bytes(b"".join([*rows[1:], rows[0], rows[1]]))
    value = described(run, table)
    assert (value["source"]["distinct"], value["source"]["runs"]) == (3, 4)
    order = {problem["problem"]: problem["first_line"] for problem in value["problems"]}
    assert order == {"unsorted": 4, "sources_apart": 5}


def test_how_much_of_it_a_model_knows(run: Run, table: Path, model_dir: str) -> None:
    value = described(run, table, "-m", model_dir)["model"]
    assert value == {
        "model_dir": model_dir, "signature": load(model_dir).signature,
        "source": {"tokens": 8, "known_tokens": 7, "types": 5, "known_types": 4},
        "target": {"tokens": 7, "known_tokens": 5, "types": 5, "known_types": 3},
    }  # fmt: skip
    lines = report(run, table, "-m", model_dir)
    known = lines[lines.index(line_of(lines, "known to")) :][:3]
    assert known[0].endswith(model_dir)
    assert [re.findall(r"[\d.]+%", line) for line in known[1:]] == [["87.5%", "80.0%"], ["71.4%", "60.0%"]]
    save(replace(load(model_dir), factors=(0, 1)), str(table.parent))  # no word of the table has a second factor
    of_factors = described(run, table, "-m", table.parent)["model"]
    assert [of_factors[side]["known_tokens"] for side in ("source", "target")] == [7, 0]


def test_columns_that_annotate_added(run: Run, tmp_path: Path, table: Path, model_dir: str) -> None:
    out = tmp_path / "new.gz"
    assert run("annotate", table, "-m", model_dir, "-o", out, "-q").status == 0
    signature = load(model_dir).signature
    line = line_of(report(run, out), "new columns")
    assert all(fact in line for fact in ("5 score", "6 count", signature))
    columns = [(column["column"], column["kind"], column["model"]) for column in described(run, out)["our_columns"]]
    assert columns == [(5, "score", signature), (6, "count", signature)]
    Path(f"{out}.columns.json").rename(f"{table}.columns.json")
    assert f"{table}.columns.json: belongs to another table" in run("info", table).err
    value = described(run, out)
    assert (value["our_columns"], value["looks_annotated"]) == (None, True)
    assert ".columns.json" in line_of(report(run, out), "new columns")


@pytest.mark.parametrize("data", [b"", b"\n\n", b"a ||| 1\n"])
def test_what_is_no_file_of_a_known_kind(run: Run, table: Path, data: bytes) -> None:
    table.write_bytes(data)
    refused = run("info", table)
    assert (refused.status, refused.out) == (1, b"")
    assert refused.last_line.startswith(f"phrase-rescore: error: {table}: ")
    assert "; pass a phrase table" in refused.last_line


@pytest.mark.parametrize(("name", "remedy"), [
    ("phrase-table.gz", "phrase-table.gz"), ("state.json", "--resume"), ("Misc.dat", "text"), ("moses.ini", "moses.ini"),
])  # fmt: skip
def test_a_folder_that_is_no_model(run: Run, tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / name).touch()
    refused = run("info", tmp_path)
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, b"", 1)
    assert refused.err.startswith(f"phrase-rescore: error: {tmp_path}: ")
    assert remedy in refused.err


TRAINING = {
    "inputs": ["phrase-table.gz", "more.gz"], "distinct_pairs": {"training": 3320185, "held_out": 10000}, "preset": "default",
    "optimizer": "adam", "learning_rate": 0.008, "batch_size": 256, "precision": "float32", "seed": 1, "shortlist": 15000,
    "min_count": 1, "max_length": None, "steps": 8708, "best_step": 8500, "held_out": {"loss": 5.92909, "perplexity": 3.08397},
    "held_out_other_sources": {"loss": 44.0675, "perplexity": 4317.95},
}  # fmt: skip


def test_a_model(run: Run, make_model: MakeModel) -> None:
    directory = make_model()
    lines = report(run, directory)
    assert line_of(lines, directory).endswith(": a model")
    assert has(lines, {"training": "not known", "signature": load(directory).signature})
    path = Path(directory, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "training": TRAINING}))
    Path(directory, "train.log.jsonl").write_text('{"step": 8000, "seconds": 3000}\n{"step": 8708, "seconds": 3609.5}\n')
    assert has(report(run, directory), {
        "gives": "p(target | source), of whole words", "network": "gru, 1 layer, encoder forward",
        "sizes": "hidden 7, embedding 6, maxout 5, rank 4", "parameters": "1,281 in float32, 1 file",
        "source words": "10 (2.0% of those in training were others)",
        "trained on": "phrase-table.gz, more.gz: 3,320,185 pairs; held out 10,000 pairs",
        "training": "8,708 steps in 3,610 s, weights of step 8,500",
        "settings": "preset default, optimizer adam, learning rate 0.008, batch size 256, precision float32, seed 1, "
                    "shortlist 15,000, min count 1",
        "held out": "5.929 nats a pair, perplexity 3.084 a word",
        "  control": "44.07 nats a pair, perplexity 4,318 a word (sources exchanged)",
    })  # fmt: skip
    value = described(run, directory)
    assert (value["kind"], value["training_seconds"], value["config"]["training"]) == ("model", 3609.5, TRAINING)


@pytest.mark.parametrize("training", [
    None, [], "x", {"inputs": 3, "distinct_pairs": [], "held_out": {"loss": "x"}, "steps": {}},
    {"inputs": ["\x1b[31m\n\u202e\ud800"], "steps": "\x1b[31m\n\u202e\ud800", "optimizer": "\x1b"},
])  # fmt: skip
def test_a_stranger_s_summary_of_training_is_shown_in_printable_characters(run: Run, make_model: MakeModel, training) -> None:
    directory = make_model()
    path = Path(directory, "config.json")
    made_by = "\x1b[31m\n\u202e\ud800"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "training": training, "made_by": made_by}))
    lines = report(run, directory)
    assert all(line.isprintable() for line in lines)
    assert line_of(lines, "made by").endswith(r" \x1b[31m\n\u202e\ud800")
    described(run, directory)


def test_direction_and_factors_of_a_model(model_dir: str) -> None:
    model = ModelInfo.read(model_dir)
    odd = replace(model, model=replace(load(model_dir), inverse=True, factors=(0, None)))
    assert "gives        p(source | target), of factor 0 of the source words" in odd.lines()


LM_TRAINING = {
    "inputs": ["train.fr"], "sentences": {"training": 35558, "held_out": 359}, "words": {"training": 511331, "held_out": 5147},
    "min_count": 1, "preset": "default", "dropout": 0.2, "self_normalize": 0.1, "optimizer": "adam", "steps": 400,
    "passes": 0.7994, "best_step": 400, "held_out": {"loss": 3.25799, "perplexity": 25.9973},
    "log_z": {"mean": -0.198676, "deviation": 0.545214},
}  # fmt: skip


def test_a_language_model(run: Run, tmp_path: Path) -> None:
    directory = small_lm(tmp_path / "lm")
    lm = language_model.load(str(directory))
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "training": LM_TRAINING}))
    lines = report(run, directory)
    assert line_of(lines, str(directory)).endswith(": a language model")
    parameters = sum(weight.numel() for _, weight in lm.model.named_weights())
    assert has(lines, {
        "signature": lm.signature, "gives": "p(word | the 3 words before it)", "network": "feed-forward, 2 layers",
        "sizes": "order 4, embedding 4, hidden 5, output 4, embeddings tied",
        "parameters": f"{parameters:,} in float32, 1 file",
        "words": "5 (10.0% of those in training were others)",
        "trained on": "train.fr: 35,558 sentences, 511,331 words; held out 359 sentences, 5,147 words",
        "training": "400 steps, 0.7994 passes over the words, weights of step 400",
        "settings": "preset default, optimizer adam, min count 1, dropout 0.2, self normalize 0.1",
        "held out": "3.258 nats a word, perplexity 26 a word",
        "in a decoder": "log p of a word is off by 0.5452 nats (standard deviation): "
        "a decoder does not divide by the sum over all words",
    })  # fmt: skip
    assert "79.9 %" in line_of(lines, "warning")
    value = described(run, directory)
    assert (value["kind"], value["signature"], value["config"]["training"]) == ("language model", lm.signature, LM_TRAINING)


def test_options_for_tables_do_not_go_with_a_model(run: Run, model_dir: str) -> None:
    for option in (["--strict"], ["-m", model_dir]):
        result = run("info", model_dir, *option)
        assert (result.status, result.out) == (2, b"")
        assert option[0] in result.last_line


MEMORY = """
import resource, sys
from phrase_rescore.info.survey import survey_table
survey_table(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    peaks = []
    for rows in (100_000, 400_000):
        path = tmp_path / f"{rows}"
        with path.open("wb") as stream:
            for i in range(rows):
                phrase = b"%03d %03d %03d" % (i // 40000, i // 200 % 200, i % 200)
                stream.write(b"%b ||| %b ||| 1 0.5 ||| 0-0 ||| 1 1 1 ||| |||\n" % (phrase, phrase))
        done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 6_000, "KiB"
