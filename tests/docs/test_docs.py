"""The documentation is executed: generated parts are current, commands run, tables are what the code has.

Every ```sh block of README.md, CONTRIBUTING.md and docs/**/*.md with a phrase-rescore command is run, and so is every
example in the commands' help that stands in none of them. They run in a folder of their own with the files
of ``inputs``, a link to docs/ and, unless they train them, the MODELS. Every ``train`` gets TINY appended, so that it takes
a moment, and what has -o OUT gets --overwrite: commands of a page write the same OUT.
What should not be run goes into a block that is not ```sh.
"""

import gzip
import json
import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from moses_harness import ini_text
from moses_readers import ALL_READERS
from small_models import small_lm, small_nmt

import phrase_rescore
from phrase_rescore import api
from phrase_rescore.cli.main import COMMANDS
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes
from phrase_rescore.moses.table import words
from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "phrase_rescore"
DOCS = ROOT / "docs"
TINY = "--max-steps 5 --hidden 8 --maxout 8 --rank 8 --threads 1"
TINY_LM = "--max-steps 5 --embedding 8 --hidden 8 --output 8 --threads 1"
TINY_NMT = "--max-steps 5 --embedding 8 --hidden 8 --threads 1"
PAGES = sorted((ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")))
PAIRS = 300
MODELS = ("phrase-rescore-model", "forward", "inverse")
LANGUAGE_MODELS = ("phrase-rescore-lm", "nlm")
SETS = {
    "dev.fr": ("dev.out", "dev.rnn.out"),
    "test.fr": ("test.out", "test.rnn.out", *(f"{system}.{run}.out" for system in ("base", "rnn") for run in (1, 2, 3))),
}  # references and the outputs of systems


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def invented_pairs() -> list[tuple[str, str]]:
    """Distinct phrase pairs of one to three words: source word s7 is target word t7; low numbers are frequent."""
    rng = random.Random(1)
    pairs = set()
    while len(pairs) < PAIRS:
        numbers = [min(rng.randrange(60), rng.randrange(60)) for _ in range(rng.randint(1, 3))]
        pairs.add((" ".join(f"s{n}" for n in numbers), " ".join(f"t{n}" for n in numbers)))
    return sorted(pairs)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory) -> Path:
    """A folder with the inputs that the documentation names."""
    folder = tmp_path_factory.mktemp("inputs")
    pairs = invented_pairs()
    write_tables(folder, pairs)
    write_texts(folder, pairs)
    write_lists(folder)
    small_lm(folder / "exported")
    command = [sys.executable, "-m", "phrase_rescore", "export-lm", "-m", "exported", "-o", "lm.nplm", "-q"]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return folder


def write_tables(folder: Path, pairs: list[tuple[str, str]]) -> None:
    table = "".join(sorted(f"{src} ||| {tgt} ||| 0.5 0.25 0.5 1 ||| 0-0 ||| 2 2 1 ||| |||\n" for src, tgt in pairs))
    (folder / "phrase-table.gz").write_bytes(gzip.compress(table.encode()))
    (folder / "phrase-table.0-0,1.gz").write_bytes(gzip.compress(re.sub(r"(t\d+)", r"\1|N", table).encode()))
    extract = "".join(f"{src} ||| {tgt} ||| 0-0\n" * 2 for src, tgt in pairs)
    (folder / "extract.sorted.gz").write_bytes(gzip.compress(extract.encode()))
    (folder / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs))
    (folder / "log-p").write_text("-1.5\n" * PAIRS)
    (folder / "moses.ini").write_text(ini_text("phrase-table.gz", 4))


def write_texts(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """The training text; sources, references and outputs of dev and test."""
    for side, name in enumerate(("train.en", "train.fr")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (folder / "mono.fr.gz").write_bytes(gzip.compress((folder / "train.fr").read_bytes()))
    rng = random.Random(2)
    for reference, outputs in SETS.items():
        lines = [[f"t{rng.randrange(60)}" for _ in range(8)] for _ in range(20)]
        (folder / reference).write_text("".join(" ".join(line) + "\n" for line in lines))
        for output in outputs:
            changed = [" ".join(word if rng.random() < 0.8 else "x" for word in line) for line in lines]
            (folder / output).write_text("".join(f"{line}\n" for line in changed))
    source = [[f"s{rng.randrange(60)}" for _ in range(8)] for _ in range(20)]
    for name in ("dev.en", "test.en"):
        (folder / name).write_text("".join(" ".join(line) + "\n" for line in source))


def write_lists(folder: Path) -> None:
    """N-best lists of dev and test, numbers for the entries of one, and weights."""
    entry = "{0} ||| {1} ||| LM0= -{2} TranslationModel0= -1 -2 ||| -{2} ||| 0-7=0-7\n"
    for of_set in ("dev", "test"):
        outputs = [(folder / f"{of_set}{name}.out").read_text().splitlines() for name in ("", ".rnn")]
        entries = "".join(
            entry.format(i, text, k) for i, texts in enumerate(zip(*outputs, strict=True)) for k, text in enumerate(texts)
        )
        (folder / f"{of_set}.nbest.gz").write_bytes(gzip.compress(entries.encode()))
    (folder / "dev.log-p").write_text("-1.5\n" * 40)
    (folder / "weights.ini").write_text("[weight]\nLM0= 0.5\nTranslationModel0= 0.1 0.1\nCSLM0= 0.4\n")


@pytest.fixture(scope="session")
def trained(inputs, run) -> str:
    model = str(inputs / "phrase-rescore-model")
    result = run("train", inputs / "phrase-table.gz", "-m", model, "-q", *TINY.split())
    assert result.status == 0, result.err
    annotated = run("annotate", inputs / "phrase-table.gz", "-m", model, "-o", inputs / "phrase-table.rnn.gz", "-q")
    assert annotated.status == 0, annotated.err
    return model


def test_cli_reference_is_current(tmp_path: Path) -> None:
    """``make docs`` writes it."""
    shutil.copy(DOCS / "make_cli_reference.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "make_cli_reference.py"], check=True)
    assert (tmp_path / "cli.md").read_text("utf-8") == text_of("cli.md")


def sh_blocks(page: Path) -> list[str]:
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if re.search(r"(^|[\s;|(])phrase-rescore +[a-z-]", block)]


def help_examples() -> list[str]:
    text = re.sub(r" *\\\n *", " ", text_of("cli.md"))
    lines = [line.strip() for line in text.split("\n")]
    return sorted({line for line in lines if re.match(r"(set -o pipefail; .*)?phrase-rescore [a-z-]+ [^\[]", line)})


def shell(script: str, folder: Path, path: str) -> None:
    """Runs a script up to the first command that fails."""
    script = script.replace("\\\n", " ")
    for command, tiny in (("train(?!-)", TINY), ("train-lm", TINY_LM), ("train-nmt", TINY_NMT)):
        script = re.sub(rf"(\bphrase-rescore {command}\b[^|;&>\n]*)", rf"\1 {tiny} ", script)
    script = re.sub(r"(\bphrase-rescore [^|;&>#\n]* -o [^|;&>#\n)]*[^|;&>#\n) ])", r"\1 --overwrite", script)
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    bash = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(bash, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{script}\n{done.stderr}"


def prepared(inputs: Path, folder: Path, script: str) -> Path:
    """A folder to run a script in; without the models that the script trains."""
    for path in inputs.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    trained = {
        named[1] if (named := re.search(r" (?:-m|--model) (\S+)", command)) else MODELS[0]
        for command in re.findall(r"phrase-rescore train(?:-lm|-nmt)? [^|;&\n]*", script)
    }
    for name in MODELS:
        if name not in trained:
            shutil.copytree(inputs / "phrase-rescore-model", folder / name)
    for name in LANGUAGE_MODELS:
        if name not in trained:
            small_lm(folder / name, tuple(f"t{i}".encode() for i in range(60)))
    if "nmt" not in trained:
        small_nmt(folder / "nmt", *(tuple(f"{side}{i}".encode() for i in range(60)) for side in "st"))
    (folder / "docs").symlink_to(DOCS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES if sh_blocks(page)])
def test_commands_in_the_pages_run(page, inputs, trained, warm_path, tmp_path):
    script = "\n".join(sh_blocks(page))
    shell(script, prepared(inputs, tmp_path, script), warm_path)


def examples_only_in_the_help() -> list[str]:
    """Those that do not run as part of a page anyway."""
    in_pages = {line for page in PAGES for block in sh_blocks(page) for line in block.splitlines()}
    return [line for line in help_examples() if line.removeprefix("set -o pipefail; ") not in in_pages]


@pytest.mark.slow
@pytest.mark.parametrize("line", examples_only_in_the_help())
def test_examples_in_the_help_run(line, inputs, trained, warm_path, tmp_path):
    shell(line, prepared(inputs, tmp_path, line), warm_path)


def test_every_command_has_an_example_and_a_function():
    assert {line.split("phrase-rescore ")[1].split()[0] for line in help_examples()} == set(COMMANDS)
    assert [command for command in COMMANDS if not callable(getattr(api, command.replace("-", "_"), None))] == []
    assert [name for name in phrase_rescore.__all__ if not hasattr(phrase_rescore, name)] == []


def test_shells_can_read_the_other_commands_and_the_examples():
    """Those of ```bash blocks are not run: they need Moses, a cluster or a GPU."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.sh")]
    for page in PAGES:
        found = re.findall(r"^( *)```bash\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        texts += [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]
    for text in texts:
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), text


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    for page in PAGES:
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
            target = page.parent / path if path else page
            if page.name == "README.md" and path in ("CHANGELOG.md", "LICENSE"):
                continue  # they come with the release, not with the docs
            assert target.exists(), f"{name_of(page)}: {path}"
            assert not anchor or anchor in anchors(target), f"{name_of(page)}: {path}#{anchor}"


ROWS = b"""\
the old house ||| das alte haus ||| 1 1 1 1 ||| 0-0
the old house|||das  haus\t</s> |||1 1 1 1
UNK a\xff </s> ||| UNK b\xfe </s> \xc3\xa9t\xc3\xa9 ||| 1 1 1 1 ||| |||
nobody knows this ||| niemand l&apos; haus kennt ||| 1 1 1 1\r
the ||| das ||| 1 1 1 1"""
UNKNOWN = [1, 0, 0, 2, 0]


def scored_by_hand(run, model: str, rows: bytes) -> list[tuple[float, int]]:
    """Log p and unknown words of every row; both are annotate's."""
    script = [sys.executable, DOCS / "score_by_hand.py", model]
    by_hand = subprocess.run(script, input=rows, capture_output=True, check=True).stdout.splitlines()
    result = run("annotate", "-", "-m", model, "--scale", "log", "--digits", "12", "-q", stdin=rows)
    annotated = [words(row.split(b"|||")[2])[-2:] for row in result.out.split(b"\n") if row]
    found, expected = ([(float(p), int(n)) for p, n in columns] for columns in (map(bytes.split, by_hand), annotated))
    assert [n for _, n in found] == [n for _, n in expected]
    assert [p for p, _ in found] == pytest.approx([p for p, _ in expected], abs=1e-4)
    return found


@pytest.mark.slow
def test_score_by_hand_agrees_with_annotate(run, model_dir, inputs, trained, tmp_path):
    found = scored_by_hand(run, model_dir, ROWS)
    assert [n for _, n in found] == UNKNOWN
    assert len({round(p, 3) for p, _ in found}) == len(UNKNOWN)  # agreement means something
    assert len(scored_by_hand(run, trained, gzip.decompress((inputs / "phrase-table.gz").read_bytes()))) == PAIRS
    forward = load(model_dir)
    inverse = replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True, factors=(None, 1))
    save(inverse, str(tmp_path))
    rows = b"das alte haus ||| A|the old|old X|house ||| 1\nzzz ||| a|UNK|x ||| 1 ||| 0-0\n"
    assert [n for _, n in scored_by_hand(run, str(tmp_path), rows)] == [1, 1]


def shapes(model: RNNEncoderDecoder | FeedforwardLM) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in model.named_weights()}


OF_PAIRS = RNNEncoderDecoder(ModelConfig(11, 13, hidden=7, embedding=5, maxout=3, rank=2))
OF_TEXT = FeedforwardLM(LanguageModelSizes(vocabulary=11, order=4, embedding=5, hidden=7, output=3))


@pytest.mark.parametrize(("page", "model", "sizes"), [
    ("model.md", OF_PAIRS, {"S": 11, "T": 13, "H": 7, "E": 5, "M": 3, "R": 2, "2M": 6}),
    ("lm-model.md", OF_TEXT, {"K + 1": 12, "(n − 1) E": 15, "K": 11, "E": 5, "H": 7, "R": 3}),
])  # fmt: skip
def test_every_tensor_but_those_of_layers_is_documented_with_its_shape(page, model, sizes):
    section = text_of(page).split("\n## Tensors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", section, re.MULTILINE)
    documented = {name: tuple(sizes[size] for size in shape.strip().split(" × ")) for name, shape in rows}
    assert documented == {name: shape for name, shape in shapes(model).items() if ".layer" not in name}


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_the_tensors_of_layers_are_documented(cell):
    H, E, text = 7, 5, text_of("model.md")
    rows = re.findall(r"^\| (`\w+`|all)(, decoder)? \| (`[^|]+`) \| ([\w ×]+) \|$", text, re.MULTILINE)
    expected = {}
    for of, only, names, shape in rows:
        if of not in (f"`{cell}`", "all"):
            continue
        for side, n, direction in (("encoder", 0, "backward"), ("encoder", 1, "forward"), ("decoder", 0, "forward")):
            if not only or side == "decoder":
                sizes = {"H": H, "I": H if n else E}
                for name in re.findall(r"`(\w+)`", names):
                    expected[f"{side}.layer{n}.{direction}.{name}"] = tuple(sizes[size] for size in shape.split(" × "))
    found = shapes(RNNEncoderDecoder(ModelConfig(11, 13, H, E, 3, 2, cell, 2, "bidirectional")))
    assert expected == {name: found.get(name) for name in expected}
    layer = re.compile(r"encoder\.layer0\.backward|encoder\.layer1\.forward|decoder\.layer0\.forward")
    assert expected.keys() == {name for name in found if layer.match(name)}
    assert found["encoder.V"] == (H, 2 * H)


@pytest.mark.slow
def test_every_field_of_config_is_documented(trained):
    def leaves(value: object, name: str) -> list[str]:
        if isinstance(value, dict) and not name.startswith("training.held_out"):
            return [leaf for key, child in value.items() for leaf in leaves(child, f"{name}.{key}".lstrip("."))]
        return [name]

    config = json.loads(Path(trained, "config.json").read_bytes())
    rows = re.findall(r"^\| (`[^|]*) \|", text_of("model.md"), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    written = set(leaves(config, ""))
    assert written <= documented
    assert {name for name in documented if name.startswith("training.")} <= written


def test_the_presets_have_the_documented_sizes():
    sizes = [(n.hidden, n.embedding, n.maxout, n.rank) for n in (PRESETS[name].network for name in ("paper", "default"))]
    row = " | ".join(", ".join(map(str, numbers)) for numbers in sizes)
    assert f"| hidden H, embedding E, maxout M, rank R | {row} |" in text_of("model.md")


def test_functions_named_beside_equations_exist():
    """Names are those of modules in the rooms that compute: ``cells.ResetBefore.step``."""
    rooms = {path.stem: room for room in ("nn", "data") for path in (PACKAGE / room).glob("*.py")}
    rooms |= {"scorer": "rnn", "network": "rnn"}
    text = text_of("model.md")
    named = re.findall(rf"`((?:{'|'.join(rooms)})\.\w+(?:\.\w+)?)`", text)
    assert len(named) > 15
    assert all(pkgutil.resolve_name(f"phrase_rescore.{rooms[name.split('.')[0]]}.{name}") for name in named)


def blocks_of(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)


def test_values_as_documented_are_what_moses_reads():
    text = text_of("format.md")
    examples = re.findall(r"^\| `([\d.e+-]+)` \| (−?[\d.]+)", text, re.MULTILINE)
    assert len(examples) >= 9
    for written, feature in examples:
        row = f"a ||| b ||| {written} ||| 0-0 ||| 1 1 1 ||| |||\n".encode()
        (value,) = ALL_READERS["LoaderStandard"](row, 1).scores
        assert value == pytest.approx(float(feature.replace("−", "-")), abs=5e-4), written


@pytest.mark.slow
def test_sidecar_is_as_documented(run, inputs, trained, tmp_path):
    (block,) = blocks_of("format.md", "json")
    documented = json.loads(block)
    sidecar = json.loads((inputs / "phrase-table.rnn.gz.columns.json").read_bytes())
    for columns in (documented["columns"], sidecar["columns"]):
        for column in columns:
            column["model"] = column["model"].split("|")[0]
    assert documented["table"].keys() == sidecar["table"].keys()
    assert len(documented["table"].pop("head")) == len(sidecar["table"].pop("head"))
    assert sidecar | {"table": {}} == documented | {"table": {}}


@pytest.mark.slow
def test_library_example_runs(inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    (example,) = blocks_of("library.md", "python")
    names: dict[str, object] = {}
    exec(example, names)
    assert (names["log_p"].shape, names["unknown"].tolist(), len(names["best"]), len(names["vectors"])) == ((2,), [0, 1], 3, 2)
    assert (inputs / "phrase-table.rnn.gz").exists()


def test_names_in_the_overview_exist():
    """Its table has a row for every room. Names such as ``files.inputs.read_blocks`` exist, those of CONTRIBUTING too."""
    text = text_of("overview.md")
    rows = "".join(row.split("|")[1] for row in text.split("\n") if row.startswith("| `"))
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert set(re.findall(r"`(\w+(?:/|\.py))`", rows)) == {f"{room}/" for room in rooms} | files
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(rf"`((?:{'|'.join(rooms)})(?:\.\w+)+)`", text + contributing))
    flows = re.findall(rf"\b(?:{'|'.join(rooms)})\.[a-z_]+", "".join(blocks_of("overview.md", "text")))
    assert len(named) > 20
    assert len(flows) > 15
    assert all(pkgutil.resolve_name(f"phrase_rescore.{name}") for name in named.union(flows))
