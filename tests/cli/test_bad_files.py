"""Every command against every way in which a file can be bad: one line with file and remedy, status 1, nothing left.

Paths that cannot be used at all are in ``test_options`` and ``files/test_paths``.
"""

import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SOURCE_WORDS, TARGET_WORDS, MakeModel, Result, Run
from moses_harness import ini_text
from permissions import files_of_at_most, like_anybody

from phrase_rescore.errors import RescoreError
from phrase_rescore.nn.storage import atomic_directory
from phrase_rescore.rnn.checkpoint import load, save

_draw = random.Random(1)
TABLE = b"".join(
    b"%b %b ||| %b ||| %.9f 0.25 1 6.1e-05 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
    % (_draw.choice(SOURCE_WORDS), _draw.choice(SOURCE_WORDS), _draw.choice(TARGET_WORDS), _draw.random())
    for _ in range(3000)
)
PACKED = gzip.compress(TABLE, mtime=0)
LOG = "".join(json.dumps({"step": i, "seconds": i, "train_loss": 3.0}) + "\n" for i in range(1, 300))
WEIGHTS = "model-00001-of-00001.safetensors"
TINY = "--hidden 4 --embedding 3 --maxout 2 --rank 2 --max-steps 2 --threads 1"
CUT = "the compressed file is cut off; make or copy it again"
CORRUPT = "cannot be decompressed (CRC check failed"


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A folder with good files."""
    folder = tmp_path / "good"
    folder.mkdir()
    (folder / "table").write_bytes(TABLE)
    (folder / "moses.ini").write_text(ini_text(folder / "table", 3) + "\n# more" * 2000)
    (folder / "text").write_text("a b .\n")
    (folder / "seg").write_text("a b |0-1| . |2-2|\n")
    (folder / "log").write_text(LOG)
    return folder


def line_of(result: Result, status: int = 1) -> str:
    """The one line that an error is."""
    assert (result.status, result.out) == (status, b""), result
    assert result.err.endswith("\n")
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("phrase-rescore: error: ")
    return result.err.removeprefix("phrase-rescore: error: ").removesuffix("\n")


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


READERS = {  # {bad} is the bad file, {good} a folder of good ones, {out} where to write, {model} a model
    "train": f"train {{bad}} -m {{out}} {TINY}",
    "train --vocab-corpus": f"train {{good}}/table -m {{out}} {TINY} --vocab-corpus {{bad}} {{bad}}",
    "train --source-vocab": f"train {{good}}/table -m {{out}} {TINY} --source-vocab {{bad}}",
    "annotate": "annotate {bad} -m {model} -o {out}",
    "annotate --expect-rows": "annotate {good}/table -m {model} -o {out} --expect-rows {bad}",
    "strip": "strip {bad} --columns 1 -o {out}", "info": "info {bad}",
    "moses-ini": "moses-ini {bad} --table {good}/table -o {out}",
    "moses-ini --table": "moses-ini {good}/moses.ini --table {bad} -o {out}",
    "evaluate REF": "evaluate --set dev {bad} a={good}/text", "evaluate OUT": "evaluate --set dev {good}/text a={bad}",
    "evaluate STATISTICS": "evaluate --set dev a={bad} --statistics {out}",
    "evaluate --source": "evaluate --set dev {good}/text a={good}/seg b={good}/text --examples 1 --source {bad}",
}  # fmt: skip


def filled(pattern: str, **places: object) -> list[str]:
    return [word.format_map(places) for word in pattern.split()]


UNPACKED = {"train --source-vocab"}  # what we write ourselves, and never compressed


def content(data: bytes, name: str = "table.gz") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


EMPTY = {
    "train": "is empty; pass a phrase table, an extract file or TSV",
    "train --vocab-corpus": "is empty; pass tokenized text",
    "train --source-vocab": "is empty; name the words of the shortlist, one a line",
    "info": "is empty; pass a phrase table, a model or a moses.ini",
    "moses-ini": "no feature in it; pass the moses.ini that train-model.perl or mert-moses.pl wrote",
    **dict.fromkeys(("evaluate REF", "evaluate OUT", "evaluate STATISTICS", "evaluate --source"),
                    "an empty file; a line for every segment is needed"),
}  # fmt: skip
IMAGE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
NO_TABLE = r"1 field in '\x89PNG\r'; a phrase-table row is 'source ||| target ||| scores …'"
NO_TEXT = r"'\x89PNG\r' is not UTF-8; convert the file with iconv -t UTF-8"
OTHER = {
    "train": "looks like a binary file; pass a phrase table, an extract file or TSV",
    "annotate": "looks like a binary file; pass a phrase table", "strip": "looks like a binary file; pass a phrase table",
    "train --source-vocab": "the line ends in CR LF; convert it to LF line ends",
    "info": "looks like a binary file; pass a phrase table, a model or a moses.ini",
    "moses-ini": EMPTY["moses-ini"], "evaluate REF": NO_TEXT, "evaluate OUT": NO_TEXT,
    "evaluate STATISTICS": NO_TEXT, "evaluate --source": NO_TEXT,
}  # fmt: skip
FAULTS: dict[str, tuple[Callable[[Path], Path], str, dict[str, str]]] = {  # how it is made, what is said, what some say
    "failing disk": (
        lambda folder: Path("/proc/self/mem"), "Input/output error; the disk or network fails; copy it again", {},
    ),
    "cut-off gzip": (content(PACKED[: len(PACKED) // 2]), CUT, {}),
    "a bit of gzip flipped": (content(flipped(PACKED, len(PACKED) // 2)), CORRUPT, {}),
    "empty file": (content(b""), "is empty; pass a phrase table", EMPTY),
    "gzip of nothing": (content(gzip.compress(b"", mtime=0)), "is empty; pass a phrase table", EMPTY),
    "something else named .gz": (content(IMAGE), NO_TABLE, OTHER),
}  # fmt: skip
NO_ERROR = {  # (command, fault): what is no fault there
    ("annotate --expect-rows", "empty file"), ("annotate --expect-rows", "gzip of nothing"),
    ("annotate --expect-rows", "something else named .gz"), ("train --vocab-corpus", "something else named .gz"),
}  # fmt: skip
NOT_UNPACKED = {"cut-off gzip", "a bit of gzip flipped", "gzip of nothing"}
READING = [(command, fault) for command in READERS for fault in FAULTS if (command, fault) not in NO_ERROR]


@pytest.mark.parametrize(("command", "fault"), READING)
def test_a_bad_file_is_one_line_with_a_remedy(run: Run, model_dir: str, good: Path, command: str, fault: str) -> None:
    make, said, others = FAULTS[fault]
    if fault == "failing disk" and not os.path.exists("/proc/self/mem"):
        pytest.skip("needs /proc/self/mem, which opens and cannot be read")
    (good.parent / "bad").mkdir()
    bad = make(good.parent / "bad")
    before = listing(good.parent)
    line = line_of(run(*filled(READERS[command], bad=bad, good=good, out=good.parent / "out", model=model_dir)))
    said = others.get(command, said).format(bad)
    if command in UNPACKED and fault in NOT_UNPACKED:
        said = " has no count" if fault == "gzip of nothing" else " is no"  # number
    assert line.startswith(str(bad))
    assert said in line
    assert "; " in line
    assert listing(good.parent) == before


# Files that are written

WRITERS = {
    "annotate": "annotate {good}/table -m {model} -o {out} --columns-json {good}/c",
    "annotate --columns-json": "annotate {good}/table -m {model} -o {good}/o --columns-json {out}",
    "annotate --dropped": "annotate {good}/spoilt -m {model} -o {good}/o --on-bad-row drop --dropped {out}",
    "strip": "strip {good}/table --columns 1 -o {out}",
    "moses-ini": "moses-ini {good}/moses.ini --table {good}/table --columns 1 -o {out}",
}
every_writer = pytest.mark.parametrize("command", WRITERS)


@pytest.fixture
def writing(good: Path) -> Path:
    (good / "spoilt").write_bytes(TABLE + b"x" * 100_000 + b"\n")
    return good


@every_writer
def test_a_disk_that_fills_leaves_what_there_was(run: Run, model_dir: str, writing: Path, command: str) -> None:
    out = writing.parent / "out"
    out.write_bytes(b"earlier")
    before = listing(writing.parent)
    with files_of_at_most(200 if command == "annotate --columns-json" else 5000):
        line = line_of(run(*filled(WRITERS[command], out=out, good=writing, model=model_dir), "--overwrite"))
    target = writing / "o" if command.startswith("annotate --") else out  # the table comes first
    assert line == f"cannot write {target}: File too large; raise the limit of file sizes, ulimit -f, or write elsewhere"
    assert listing(writing.parent) == before
    assert out.read_bytes() == b"earlier"


@every_writer
def test_a_file_that_is_there_is_replaced_only_with_overwrite(run: Run, model_dir: str, writing: Path, command: str) -> None:
    out = writing.parent / "out"
    args = filled(WRITERS[command], out=out, good=writing, model=model_dir)
    out.touch()
    assert run(*args).status == 0, "an empty file holds nothing"
    for other in ("o", "c"):  # what the options beside it wrote
        (writing / other).unlink(missing_ok=True)
    before = out.read_bytes(), listing(writing.parent)
    option = command.split()[1] if " " in command else "-o"
    told = f"phrase-rescore: error: {option} {out} exists; name another file, or replace it with --overwrite\n"
    assert run(*args) == (2, b"", told)
    assert (out.read_bytes(), listing(writing.parent)) == before
    assert run(*args, "--overwrite").status == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@every_writer
def test_a_full_device(run: Run, model_dir: str, writing: Path, command: str) -> None:
    out = writing.parent / "out"
    out.symlink_to("/dev/full")
    before = listing(writing.parent)
    result = run(*filled(WRITERS[command], out=out, good=writing, model=model_dir))
    told = f"cannot write {out}: No space left on device; make room there, or write elsewhere"
    if command == "annotate --columns-json":  # the table is complete by then, and is kept
        kept = f"phrase-rescore: 3,000 rows are kept in {writing}/o.partial; the same command with --resume continues\n"
        assert result == (1, b"", f"phrase-rescore: error: {told}\n{kept}")
        return
    if command in ("annotate", "strip"):  # into a stream, from which nothing can be taken back
        assert result.status == 1
        assert re.fullmatch(f"phrase-rescore: error: {told}\nphrase-rescore: OUTPUT IS INCOMPLETE: [0-9]+ rows\n", result.err)
        return
    assert line_of(result) == told
    assert listing(writing.parent) == before


@pytest.mark.parametrize(("closed", "status", "said"), [
    ("<&-", 0, b""),
    (">&-", 1, b"phrase-rescore: error: <stdout>: Bad file descriptor; it is closed; name a file to write\n"
               b"phrase-rescore: OUTPUT IS INCOMPLETE: 0 rows\n"),
    ("<&- 2>&-", 0, b""),
])  # fmt: skip
def test_closed_standard_streams(tmp_path: Path, closed: str, status: int, said: bytes) -> None:
    """As some schedulers leave them. No file that is opened then takes their place."""
    (tmp_path / "table").write_bytes(TABLE[:500].rpartition(b"\n")[0] + b"\n")
    words = [sys.executable, "-m", "phrase_rescore", "strip", str(tmp_path / "table"), "--columns", "1", "-q"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)
    assert done.stdout.count(b"\n") == (0 if status else TABLE[:500].count(b"\n"))


# Models

Damage = Callable[[Path], object]


def edited(name: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda model: (model / name).write_bytes(change((model / name).read_bytes()))


def replaced_by_directory(name: str) -> Damage:
    return lambda model: ((model / name).unlink(), (model / name).mkdir())


MODELS: dict[str, tuple[Damage, str]] = {
    "no config": (lambda model: (model / "config.json").unlink(), "/config.json: No such file or directory; is "),
    "no weights": (lambda model: (model / WEIGHTS).unlink(), f"/{WEIGHTS}: No such file or directory"),
    "weights cut off": (edited(WEIGHTS, lambda data: data[:-100]), f"/{WEIGHTS}: Error while deserializing header"),
    "directory for weights": (replaced_by_directory(WEIGHTS), f"/{WEIGHTS}"),
    "no vocabulary": (lambda model: (model / "source.vocab").unlink(), "/source.vocab: No such file or directory; the model"),
    "directory for vocabulary": (replaced_by_directory("source.vocab"), "/source.vocab"),
    "vocabulary empty": (edited("target.vocab", lambda data: b""), "/target.vocab: 2 ids where config.json says 12"),
    "a word twice": (edited("source.vocab", lambda data: data + b"the\t1\n"), "/source.vocab:11: 'the' is listed twice; "),
}
USERS = {
    "annotate": "annotate {good}/table -m {model} -o {out}",
    "train --init-from": f"train {{good}}/table -m {{out}} {TINY} --init-from {{model}}", "score": "score -m {model}",
    "info": "info {model}", "info -m": "info {good}/table -m {model}",
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "fault"), [*(("score", fault) for fault in MODELS), *((command, "weights cut off") for command in USERS)]
)
def test_a_bad_model_is_one_line(run: Run, make_model: MakeModel, good: Path, command: str, fault: str) -> None:
    model = Path(make_model())
    damage, said = MODELS[fault]
    damage(model)
    before = listing(good.parent)
    line = line_of(run(*filled(USERS[command], model=model, good=good, out=good.parent / "out")))
    assert line.startswith(f"{model}{said}")
    assert "; " in line
    assert listing(good.parent) == before


@pytest.mark.parametrize("fault", ["locked file", "locked directory"])
def test_no_permission_to_read_a_model(run: Run, make_model: MakeModel, good: Path, fault: str) -> None:
    model = Path(make_model())
    locked = model / "config.json" if fault == "locked file" else model
    locked.chmod(0)
    try:
        with like_anybody():
            line = line_of(run("annotate", good / "table", "-m", model, "-o", good / "out"))
    finally:
        locked.chmod(0o755)
    assert line.startswith(f"{locked}: Permission denied; ")


@pytest.mark.parametrize("size", [100, 3000])
def test_a_model_that_cannot_be_saved_leaves_nothing(model_dir: str, tmp_path: Path, size: int) -> None:
    checkpoint = load(model_dir)
    with files_of_at_most(size), pytest.raises(RescoreError) as caught, atomic_directory(str(tmp_path / "model")) as folder:
        save(checkpoint, folder)
    assert str(caught.value).startswith(f"cannot write {tmp_path}/model: ")
    assert "; " in str(caught.value)
    assert listing(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("size", "leftovers"), [(1000, []), (30_000, ["model.pairs", "model.training"])])
def test_training_on_a_disk_that_fills(run: Run, tmp_path: Path, size: int, leftovers: list[str]) -> None:
    """Sorting fails first, with more room the state."""
    (tmp_path / "pairs.tsv").write_bytes(b"".join(b"s%d\tt%d\n" % (i, i) for i in range(200)))
    with files_of_at_most(size):
        line = line_of(run("train", tmp_path / "pairs.tsv", "-m", tmp_path / "model", "--max-steps", 2, "--threads", 1, "-q"))
    assert "; " in line
    if leftovers:
        assert line.startswith(f"{tmp_path}/model.training: the state of step 2 cannot be saved (")
        assert not list((tmp_path / "model.training").glob("*.json"))
    else:
        assert line.startswith("cannot write in ")
        assert line.endswith(": File too large; name a directory with more room with --scratch")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*leftovers, "pairs.tsv"])
