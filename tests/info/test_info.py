"""``info`` from the outside: what it says of tables, of models and of everything else."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeModel, Result, Run
from small_models import small_lm

from phrase_rescore.info.faults import FAULTS
from phrase_rescore.info.model import ModelInfo
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.rnn.checkpoint import load

TABLE = (
    b"a\xff old ||| alt ||| 0.5 0.25 1 6.1e-05 ||| 1-0 ||| 3 2 1 ||| |||\n"
    b"the house ||| das haus ||| 0.5 0.25 1 0.1 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
    b"the house ||| haus unbekannt neu ||| 1 1 0.5 2.718 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
    b"the unknown ||| das ||| 1 0.1 1 1 ||| 0-0 ||| 1 1 1 ||| |||\n"
)
FAULTY = TABLE.replace(b"0.5 0.25 1 0.1", b"0.5  0.25\t1 -3").replace(b"1 1 0.5 2.718", b"inf 1 0.5 0") + b"\n"

REPORT = """\
{path}: a phrase table
rows         4
fields       7
sources      3, 1.33 rows each
targets      4
source words 8, 5 distinct
target words 7, 5 distinct
length             1      2      3   mean   most
  source           - 100.0%      -   2.00      2
  target       50.0%  25.0%  25.0%   1.75      3
score            smallest     largest    mean log       zeros
  1                   0.5           1    -0.34657           -
  2                   0.1           1     -1.2688           -
  3                   0.5           1    -0.17329           -
  4               6.1e-05       2.718     -2.7518           -
new columns  none
order        LC_ALL=C sort; equal sources adjacent
problems     none found
"""

PROBLEMS = """\
problems
  blank rows: 1, the first in line 5
    PhraseDictionaryMemory, processPhraseTableMin, CreateProbingPT, processPhraseTable: stop
    CreateOnDiskPt: writes a damaged table
    annotate: refuses them (--on-bad-row drop leaves them out)
  rows with a score 'inf': 1, the first in line 3
    PhraseDictionaryMemory, moses2, CreateProbingPT: infinite feature
    processPhraseTableMin, CreateOnDiskPt: feature -100
    processPhraseTable: feature -87.5
    annotate: refuses them (--on-bad-row drop leaves them out)
  rows with a negative score: 1, the first in line 2
    PhraseDictionaryMemory, moses2, CreateOnDiskPt, CreateProbingPT: NaN feature: the phrase pair is lost without a message
    processPhraseTableMin: stops
    processPhraseTable: feature -87.5
  rows with doubled blanks among the scores: 1, the first in line 2
    CreateProbingPT: reads an additional score of 0
    filter-model-given-input.pl -MinScore, threshold-filter.perl, filter-pt: take the wrong score
  rows with a tab among the scores: 1, the first in line 2
    CreateProbingPT, CreateOnDiskPt: lose a score
    filter-model-given-input.pl -MinScore, threshold-filter.perl, filter-pt: take the wrong score
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.write_bytes(TABLE)
    return path


def told(result: Result) -> Any:
    assert (result.status, result.err) == (0, "")
    return json.loads(result.out)


def test_a_table(run: Run, table: Path) -> None:
    assert run("info", table) == Result(0, REPORT.format(path=table).encode(), "")


def test_problems_come_last_with_programs_and_lines(run: Run, table: Path) -> None:
    table.write_bytes(FAULTY)
    result = run("info", table)
    assert (result.status, result.err) == (0, "")
    head, _, tail = result.out.decode().partition("problems\n")
    assert "problems\n" + tail == PROBLEMS
    assert "\nrows         5 (1 without two phrases)\n" in head
    assert "\n  1                   0.5           1     -0.4621           -\n" in head, "rows with 'inf' are left out"
    problems = told(run("info", table, "--json"))["problems"]
    assert [(problem["problem"], problem["count"], problem["first_line"]) for problem in problems] == [
        ("blank", 1, 5), ("infinite", 1, 3), ("negative", 1, 2), ("score_blanks", 1, 2), ("score_tabs", 1, 2),
    ]  # fmt: skip
    assert problems[1]["programs"] == FAULTS["infinite"].effects


def test_the_same_as_json(run: Run, table: Path) -> None:
    value = told(run("info", table, "--json"))
    assert (value["kind"], value["rows"], value["pairs"], value["fields"], value["problems"]) == ("phrase table", 4, 4, 7, [])
    assert value["source"] == {
        "distinct": 3, "exact": True, "runs": 3, "words": 8, "distinct_words": 5, "factors": 1, "lengths": {"2": 4},
        "mean_length": 2.0,
    }  # fmt: skip
    mean_log = pytest.approx(math.log(0.25 * 0.25 * 0.1) / 4)
    assert value["scores"][1] == {"column": 2, "smallest": 0.1, "largest": 1.0, "mean_log": mean_log, "zeros": 0}
    assert value["order"] == {
        "pairs": {"sorted": True, "first_unsorted_line": None}, "sources": {"sorted": True, "first_unsorted_line": None},
        "equal_sources": "adjacent", "repeated_pairs": 0,
    }  # fmt: skip
    assert (value["our_columns"], value["looks_annotated"], value["model"]) == (None, False, None)


def test_order_that_is_not_sort_s(run: Run, table: Path) -> None:
    rows = TABLE.splitlines(keepends=True)
    table.write_bytes(b"".join([*rows[1:], rows[0], rows[1]]))
    lines = run("info", table).out.decode().splitlines()
    assert "sources      3 in 4 runs of equal ones" in lines
    assert "order        not that of LC_ALL=C sort, first in line 4; equal sources apart" in lines
    assert "  sources that come again after others: 1, the first in line 5" in lines


def test_pairs_out_of_order_within_a_source(run: Run, table: Path) -> None:
    rows = TABLE.splitlines(keepends=True)
    table.write_bytes(b"".join([rows[2], rows[1], rows[1], rows[3]]))
    order = next(line for line in run("info", table).out.decode().splitlines() if line.startswith("order"))
    assert order == (
        "order        LC_ALL=C sort of sources, not of their targets (no program minds), first in line 2; "
        "equal sources adjacent; pairs twice running: 1, first in line 3"
    )


def test_strict_fails_after_the_report(run: Run, table: Path) -> None:
    assert run("info", table, "--strict").status == 0
    table.write_bytes(FAULTY)
    result = run("info", table, "--strict")
    assert (result.status, result.err) == (1, f"phrase-rescore: error: {table}: problems of 5 kinds (--strict)\n")
    assert result.out == run("info", table).out


def test_how_much_of_it_a_model_knows(run: Run, table: Path, model_dir: str) -> None:
    value = told(run("info", table, "-m", model_dir, "--json"))["model"]
    assert value == {
        "model_dir": model_dir, "signature": load(model_dir).signature,
        "source": {"tokens": 8, "known_tokens": 7, "types": 5, "known_types": 4},
        "target": {"tokens": 7, "known_tokens": 5, "types": 5, "known_types": 3},
    }  # fmt: skip
    lines = run("info", table, "-m", model_dir).out.decode().splitlines()
    at = lines.index(f"known to     {model_dir}")
    assert lines[at + 1 : at + 3] == [
        "  source     87.5% of the words, 80.0% of the distinct ones",
        "  target     71.4% of the words, 60.0% of the distinct ones",
    ]


def test_columns_that_annotate_added(run: Run, tmp_path: Path, table: Path, model_dir: str) -> None:
    out = tmp_path / "new.gz"
    assert run("annotate", table, "-m", model_dir, "-o", out, "-q").status == 0
    signature = load(model_dir).signature
    assert f"\nnew columns  5 log_prob, 6 unknown_words of {signature}\n" in run("info", out).out.decode()
    columns = told(run("info", out, "--json"))["our_columns"]
    assert [(column["column"], column["feature"], column["model"]) for column in columns] == [
        (5, "log_prob", signature), (6, "unknown_words", signature),
    ]  # fmt: skip
    sidecar = json.loads(Path(f"{out}.columns.json").read_bytes())
    os.unlink(f"{out}.columns.json")
    Path(f"{table}.columns.json").write_text(json.dumps(sidecar))
    assert f"{table}.columns.json: belongs to another table than" in run("info", table).err
    del sidecar["table"]  # as the version before wrote it
    Path(f"{table}.columns.json").write_text(json.dumps(sidecar))
    assert "but the table has 4: the .columns.json belongs to another table\n" in run("info", table).out.decode()
    assert "\nnew columns  the last two look like annotate's (no .columns.json)\n" in run("info", out).out.decode()


@pytest.mark.parametrize("data", [b"", b"\n\n", b"a ||| 1\n"])
def test_what_is_no_file_of_a_known_kind(run: Run, table: Path, data: bytes) -> None:
    table.write_bytes(data)
    refused = run("info", table)
    assert (refused.status, refused.out) == (1, b"")
    assert refused.last_line.startswith(f"phrase-rescore: error: {table}: ")
    assert refused.last_line.endswith("; pass a phrase table, a model or a moses.ini")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("phrase-table.gz", "looks like a folder of Moses; name a file in it: phrase-table.gz"),
        ("state.json", "looks like an interrupted training; the same train command with --resume continues it"),
    ],
)
def test_a_folder_that_is_no_model(run: Run, tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / name).touch()
    assert run("info", tmp_path) == Result(1, b"", f"phrase-rescore: error: {tmp_path}: {found}\n")


def test_a_rule_table(run: Run, table: Path) -> None:
    table.write_bytes(b"das haus [X] ||| the house [X] ||| 0.5 0.4 0.3 0.2 ||| 0-0 1-1 ||| 1 1 1 ||| |||\n")
    lines = run("info", table).out.decode().splitlines()
    assert lines[0] == f"{table}: a rule table; no other command takes it"
    assert "  4                   0.2         0.2     -1.6094           -" in lines[10:]
    assert lines[-1] == "problems     none found"


@pytest.mark.slow
def test_a_table_whose_first_block_is_bad(run: Run, table: Path) -> None:
    table.write_bytes(b"a ||| b ||| 1 x ||| 0-0\n" * 17_000 + b"c ||| d ||| 0.5 0.25 ||| 0-0\n")
    found = json.loads(run("info", table, "--json").out)
    assert [kind["problem"] for kind in found["problems"]] == ["no_numbers"]
    assert [column["smallest"] for column in found["scores"]] == [0.5, 0.25]


MODEL_REPORT = """\
{path}: a model
signature    {signature}
gives        p(target | source), of whole words
network      gru, 1 layer, encoder forward
sizes        hidden 7, embedding 6, maxout 5, rank 4
parameters   1,281 in float32, 1 file
source words 10: the house is small old … (2.0% of those in training were others)
target words 10: das haus ist klein alt … (2.0% of those in training were others)
"""
TRAINING = {
    "inputs": ["phrase-table.gz", "more.gz"], "distinct_pairs": {"training": 3320185, "held_out": 10000}, "preset": "default",
    "optimizer": "adam", "learning_rate": 0.008, "batch_size": 256, "precision": "float32", "seed": 1, "shortlist": 15000,
    "min_count": 1, "max_length": None, "steps": 8708, "best_step": 8500, "held_out": {"loss": 5.92909, "perplexity": 3.08397},
    "held_out_other_sources": {"loss": 44.0675, "perplexity": 4317.95},
}  # fmt: skip
TRAINED = """\
trained on   phrase-table.gz, more.gz: 3,320,185 pairs; held out 10,000 pairs
training     8,708 steps in 3,610 s, weights of step 8,500
settings     preset default, optimizer adam, learning rate 0.008, batch size 256, precision float32, seed 1, shortlist 15,000, min count 1
held out     5.929 nats a pair, perplexity 3.084 a word
  control    44.07 nats a pair, perplexity 4,318 a word (sources exchanged)
"""  # noqa: E501


def test_a_model(run: Run, make_model: MakeModel) -> None:
    directory = make_model()
    head = MODEL_REPORT.format(path=directory, signature=load(directory).signature)
    result = run("info", directory)
    assert (result.status, result.err) == (0, "")
    assert result.out.decode().startswith(head + "training     not known\nmade by      phrase-rescore ")
    path = Path(directory, "config.json")
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps({**config, "training": TRAINING}))
    Path(directory, "train.log.jsonl").write_text('{"step": 8000, "seconds": 3000}\n{"step": 8708, "seconds": 3609.5}\n')
    assert run("info", directory).out.decode().startswith(head + TRAINED + "made by      phrase-rescore ")
    value = told(run("info", directory, "--json"))
    assert (value["kind"], value["training_seconds"], value["config"]["training"]) == ("model", 3609.5, TRAINING)


@pytest.mark.parametrize(
    "training", [None, [], {"inputs": 3, "distinct_pairs": [], "held_out": {"loss": "x"}, "steps": {}}, "x"]
)
def test_a_summary_of_training_that_is_odd_is_shown_as_it_is(run: Run, make_model: MakeModel, training: object) -> None:
    directory = make_model()
    path = Path(directory, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "training": training}))
    assert (run("info", directory).status, run("info", directory, "--json").status) == (0, 0)


def test_a_stranger_s_summary_of_training_does_not_reach_the_terminal(run: Run, make_model: MakeModel) -> None:
    directory = make_model()
    path = Path(directory, "config.json")
    odd = "\x1b[31m\n\u202e\ud800"
    training = {"inputs": [odd], "steps": odd, "held_out": {"loss": odd}, "optimizer": odd}
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "training": training, "made_by": odd}))
    result = run("info", directory)
    assert (result.status, result.err) == (0, "")
    assert all(line.isprintable() for line in result.out.decode().split("\n"))
    assert "made by      \\x1b[31m\\n\\u202e\\ud800\n" in result.out.decode()


def test_direction_and_factors_of_a_model(model_dir: str) -> None:
    model = ModelInfo.read(model_dir)
    odd = replace(model, model=replace(load(model_dir), inverse=True, factors=(0, None)))
    assert "gives        p(source | target), of factor 0 of the source words" in odd.lines()


LM_REPORT = """\
{path}: a language model
signature    {signature}
gives        p(word | the 3 words before it)
network      feed-forward, 2 layers
sizes        order 4, embedding 4, hidden 5, output 4, embeddings tied
parameters   {parameters:,} in float32, 1 file
words        5: a b . the house (10.0% of those in training were others)
"""
LM_TRAINING = {
    "inputs": ["train.fr"], "sentences": {"training": 35558, "held_out": 359}, "words": {"training": 511331, "held_out": 5147},
    "min_count": 1, "preset": "default", "dropout": 0.2, "self_normalize": 0.1, "optimizer": "adam", "steps": 400,
    "passes": 0.7994, "best_step": 400, "held_out": {"loss": 3.25799, "perplexity": 25.9973},
    "log_z": {"mean": -0.198676, "deviation": 0.545214},
}  # fmt: skip
LM_TRAINED = """\
trained on   train.fr: 35,558 sentences, 511,331 words; held out 359 sentences, 5,147 words
training     400 steps, 0.7994 passes over the words, weights of step 400
warning      only 79.9 % of the words were seen
settings     preset default, optimizer adam, min count 1, dropout 0.2, self normalize 0.1
held out     3.258 nats a word, perplexity 26 a word
log Z        standard deviation 0.5452 around 0 (unnormalized scores)
"""


def test_a_language_model(run: Run, tmp_path: Path) -> None:
    directory = small_lm(tmp_path / "lm")
    lm = language_model.load(str(directory))
    parameters = sum(weight.numel() for _, weight in lm.model.named_weights())
    head = LM_REPORT.format(path=directory, signature=lm.signature, parameters=parameters)
    result = run("info", directory)
    assert (result.status, result.err) == (0, "")
    path = directory / "config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps({**config, "training": LM_TRAINING}))
    assert run("info", directory).out.decode().startswith(head + LM_TRAINED + "made by      phrase-rescore ")
    value = told(run("info", directory, "--json"))
    assert (value["kind"], value["signature"], value["config"]["training"]) == ("language model", lm.signature, LM_TRAINING)


def test_options_for_tables_do_not_go_with_a_model(run: Run, model_dir: str) -> None:
    for option in (["--strict"], ["-m", model_dir]):
        result = run("info", model_dir, *option)
        assert (result.status, result.out) == (2, b"")
        assert result.err == f"phrase-rescore: error: {model_dir} is a model directory; -m and --strict are for tables\n"


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
        words = [b"%03d" % i for i in range(200)]
        with path.open("wb") as stream:
            for i in range(rows):
                phrase = b" ".join((words[i // 40000], words[i // 200 % 200], words[i % 200]))
                stream.write(b"%b ||| %b ||| 1 0.5 ||| 0-0 ||| 1 1 1 ||| |||\n" % (phrase, phrase))
        done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 6_000, "KiB"
