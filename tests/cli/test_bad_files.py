"""Every command against every way in which a file can be bad: one line with file and remedy, status 1, nothing left.

Paths that cannot be used at all are in ``test_options`` and ``files/test_paths``.
"""

import gzip
import random
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
WEIGHTS = "model-00001-of-00001.safetensors"
TINY = "--hidden 4 --embedding 3 --maxout 2 --rank 2 --max-steps 2 --threads 1"


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
    "train --source-vocab": f"train {{good}}/table -m {{out}} {TINY} --source-vocab {{bad}}",
    "annotate": "annotate {bad} -m {model} -o {out}",
    "strip": "strip {bad} --columns 1 -o {out}", "info": "info {bad}",
    "moses-ini": "moses-ini {bad} --table {good}/table -o {out}",
    "moses-ini --table": "moses-ini {good}/moses.ini --table {bad} -o {out}",
    "evaluate REF": "evaluate --set dev {bad} a={good}/text", "evaluate OUT": "evaluate --set dev {good}/text a={bad}",
    "evaluate STATISTICS": "evaluate --set dev a={bad} --statistics {out}",
    "evaluate --source": "evaluate --set dev {good}/text a={good}/seg b={good}/text --examples 1 --source {bad}",
}  # fmt: skip


def filled(pattern: str, **places: object) -> list[str]:
    return [word.format_map(places) for word in pattern.split()]


FAULTS = {  # what the file holds
    "cut-off gzip": PACKED[: len(PACKED) // 2], "a bit of gzip flipped": flipped(PACKED, len(PACKED) // 2),
    "gzip of nothing": gzip.compress(b"", mtime=0), "an image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
}  # fmt: skip
READING = [(command, fault) for command in READERS for fault in (*FAULTS, "failing disk")]


@pytest.mark.parametrize(("command", "fault"), READING)
def test_a_bad_file_is_one_line_with_a_remedy(run: Run, model_dir: str, good: Path, command: str, fault: str) -> None:
    bad = good.parent / "bad.gz"
    if fault in FAULTS:
        bad.write_bytes(FAULTS[fault])
    else:
        bad.symlink_to("/proc/self/mem")  # it opens and cannot be read
    before = listing(good.parent)
    line = line_of(run(*filled(READERS[command], bad=bad, good=good, out=good.parent / "out", model=model_dir)))
    assert line.startswith(str(bad))
    assert "; " in line
    assert "cut off" in line or fault != "cut-off gzip" or command == "train --source-vocab", "that is never compressed"
    assert listing(good.parent) == before


WRITERS = {
    "annotate": "annotate {good}/table -m {model} -o {out}",
    "strip": "strip {good}/table --columns 1 -o {out}",
    "moses-ini": "moses-ini {good}/moses.ini --table {good}/table --columns 1 -o {out}",
}
every_writer = pytest.mark.parametrize("command", WRITERS)


@every_writer
def test_a_disk_that_fills_leaves_what_there_was(run: Run, model_dir: str, good: Path, command: str) -> None:
    out = good.parent / "out"
    out.write_bytes(b"earlier")
    before = listing(good.parent)
    with files_of_at_most(5000):
        line = line_of(run(*filled(WRITERS[command], out=out, good=good, model=model_dir), "--overwrite"))
    assert line.startswith(f"cannot write {out}: File too large; ")
    assert listing(good.parent) == before
    assert out.read_bytes() == b"earlier"


@every_writer
def test_a_file_that_is_there_is_replaced_only_with_overwrite(run: Run, model_dir: str, good: Path, command: str) -> None:
    out = good.parent / "out"
    args = filled(WRITERS[command], out=out, good=good, model=model_dir)
    out.touch()
    assert run(*args).status == 0, "an empty file holds nothing"
    before = out.read_bytes(), listing(good.parent)
    assert line_of(run(*args), status=2).startswith(f"-o {out} exists; ")
    assert (out.read_bytes(), listing(good.parent)) == before
    assert run(*args, "--overwrite").status == 0


@every_writer
def test_a_full_device(run: Run, model_dir: str, good: Path, command: str) -> None:
    out = good.parent / "out"
    out.symlink_to("/dev/full")
    before = listing(good.parent)
    result = run(*filled(WRITERS[command], out=out, good=good, model=model_dir))
    assert (result.status, result.out) == (1, b"")
    error, *more = result.err.splitlines()
    assert error.startswith(f"phrase-rescore: error: cannot write {out}: No space left on device; ")
    assert listing(good.parent) == before
    of_rows = command in ("annotate", "strip")  # into a stream, from which nothing can be taken back
    assert ["OUTPUT IS INCOMPLETE" in line for line in more] == [True] * of_rows


@pytest.mark.parametrize(("closed", "status", "told"), [
    ("<&-", 0, []), ("<&- 2>&-", 0, []), (">&-", 1, ["<stdout>: Bad file descriptor", "OUTPUT IS INCOMPLETE: 0 rows"]),
])  # fmt: skip
def test_closed_standard_streams(tmp_path: Path, closed: str, status: int, told: list[str]) -> None:
    """As some schedulers leave them. No file that is opened then takes their place."""
    (tmp_path / "table").write_bytes(TABLE[:500].rpartition(b"\n")[0] + b"\n")
    words = [sys.executable, "-m", "phrase_rescore", "strip", str(tmp_path / "table"), "--columns", "1", "-q"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert all(part in line for part, line in zip(told, done.stderr.splitlines(), strict=True))
    assert done.stdout.count("\n") == (0 if status else TABLE[:500].count(b"\n"))


# Models

Damage = Callable[[Path], object]


def edited(name: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda model: (model / name).write_bytes(change((model / name).read_bytes()))


def replaced_by_directory(name: str) -> Damage:
    return lambda model: ((model / name).unlink(), (model / name).mkdir())


MODELS: dict[str, tuple[Damage, str]] = {  # what is done to it, and the file that the line names
    "no config": (lambda model: (model / "config.json").unlink(), "config.json"),
    "no weights": (lambda model: (model / WEIGHTS).unlink(), WEIGHTS),
    "weights cut off": (edited(WEIGHTS, lambda data: data[:-100]), WEIGHTS),
    "directory for weights": (replaced_by_directory(WEIGHTS), WEIGHTS),
    "no vocabulary": (lambda model: (model / "source.vocab").unlink(), "source.vocab"),
    "directory for vocabulary": (replaced_by_directory("source.vocab"), "source.vocab"),
    "vocabulary empty": (edited("target.vocab", lambda data: b""), "target.vocab"),
    "a word twice": (edited("source.vocab", lambda data: data + b"the\t1\n"), "source.vocab:11"),
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
    damage, name = MODELS[fault]
    damage(model)
    before = listing(good.parent)
    line = line_of(run(*filled(USERS[command], model=model, good=good, out=good.parent / "out")))
    assert line.startswith(f"{model}/{name}")
    assert "; " in line
    assert listing(good.parent) == before


@pytest.mark.parametrize("command", USERS)
def test_a_model_that_is_replaced_while_it_is_read(run, make_model, good, monkeypatch, command) -> None:
    """The other model has the same sizes, so that only a comparison tells."""
    model, other = Path(make_model()), Path(make_model(SOURCE_WORDS[::-1]))
    read = Path.read_bytes

    def then_replaced(path: Path) -> bytes:
        data = read(path)
        if path == model / "config.json" and other.exists():
            model.rename(f"{model}.before")
            other.rename(model)
        return data

    monkeypatch.setattr(Path, "read_bytes", then_replaced)
    line = line_of(run(*filled(USERS[command], model=model, good=good, out=good.parent / "out"), stdin=b"the\tdas\n"))
    assert line.startswith(f"{model} changed while it was read; ")


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
