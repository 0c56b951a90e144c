"""The files of a release: what is in them, and the wheel at work in an environment of its own, outside the checkout.

``make wheel`` names the folder of the files that it built (DIST). Without it they are built here, without a network.
"""

import gzip
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT

from phrase_rescore import __version__
from phrase_rescore.cli.main import COMMANDS

pytestmark = pytest.mark.slow
PAIRS = [(f"s{i % 30} s{i // 7}", f"t{i % 30} t{i // 7}") for i in range(200)]
TABLE = "".join(sorted(f"{src} ||| {tgt} ||| 0.5 0.25 0.5 1 ||| 0-0 ||| 2 2 1 ||| |||\n" for src, tgt in PAIRS)).encode()


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "DIST" in os.environ:
        return ROOT / os.environ["DIST"]
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    return dist / f"phrase_rescore-{__version__}-py3-none-any.whl"


def tracked(*of: str) -> set[str]:
    """The files of the checkout that git has or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *of]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).exists()}


def test_the_source_archive_is_the_checkout(dist: Path) -> None:
    with tarfile.open(dist / f"phrase_rescore-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == {name for name in tracked() if not name.startswith(".")} | {"PKG-INFO", ".gitignore"}  # always of hatchling


def test_the_wheel_is_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if ".dist-info/" not in name} == tracked("phrase_rescore")
    assert f"phrase_rescore-{__version__}.dist-info/licenses/LICENSE" in names


def test_the_description_renders_and_its_links_are_addresses(dist: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.glob("phrase_rescore-*"))]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.count("PASSED") == 2
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"phrase_rescore-{__version__}.dist-info/METADATA").decode()
    assert re.findall(r"\]\((?!https?://|#).*?\)", metadata) == []


def test_the_changes_begin_with_this_version() -> None:
    headings = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == __version__


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel. It has the libraries of this one, but not its link to this tree."""
    environment = tmp_path_factory.mktemp("installed")
    venv.create(environment, symlinks=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(environment / "bin/python"),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))
    return environment / "bin"


Call = Callable[..., str]


@pytest.fixture
def call(installed: Path, tmp_path: Path) -> Call:
    """Runs a program of the environment in an empty folder. Returns standard output; nothing else must be amiss."""

    def call(line: str, **env: str) -> str:
        path = f"{installed}:/usr/bin:/bin"
        env = {"PATH": path, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", **env}
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout

    return call


def test_the_installed_package_is_found_and_speaks(call: Call, installed: Path) -> None:
    assert call("phrase-rescore --version").split()[-1] == __version__
    shown = call("phrase-rescore --help")
    assert [command for command in COMMANDS if f"\n  {command} " not in shown] == []
    assert "complete -o nosort" in call("phrase-rescore", _PHRASE_RESCORE_COMPLETE="bash_source")
    words = {"COMP_WORDS": "phrase-rescore an", "COMP_CWORD": "1"}
    assert "annotate" in call("phrase-rescore", _PHRASE_RESCORE_COMPLETE="bash_complete", **words)
    program = "import phrase_rescore as pr; print(pr.__file__, pr.annotate.__name__, sep='\\n')"
    assert call(f'python -c "{program}"').splitlines() == [
        str(next(installed.parent.glob("lib/python*/site-packages/phrase_rescore/__init__.py"))), "annotate",
    ]  # fmt: skip


def test_the_installed_commands_work(call: Call, tmp_path: Path) -> None:
    (tmp_path / "phrase-table.gz").write_bytes(gzip.compress(TABLE))
    call("phrase-rescore train phrase-table.gz -m model --max-steps 3 --hidden 8 --maxout 8 --rank 8 --threads 1")
    call("phrase-rescore annotate phrase-table.gz -m model -o phrase-table.rnn.gz")
    call("phrase-rescore strip phrase-table.rnn.gz -o phrase-table.old.gz")
    assert gzip.decompress((tmp_path / "phrase-table.old.gz").read_bytes()) == TABLE
    references = [tgt for _, tgt in PAIRS[:40]]
    (tmp_path / "train.tgt").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS))
    (tmp_path / "dev.tgt").write_text("".join(f"{line} t1 t2\n" for line in references))
    entries = [f"{i} ||| {line} {end}" for i, line in enumerate(references) for end in ("t2", "t1 t2")]
    (tmp_path / "dev.nbest").write_text("".join(f"{entry} ||| LM0= -1 ||| -1\n" for entry in entries))
    call("phrase-rescore train-lm train.tgt -m lm --max-steps 3 --embedding 8 --hidden 8 --output 8 --threads 1")
    call("phrase-rescore rescore dev.nbest -m lm -o dev.all.nbest")
    call("phrase-rescore tune dev.all.nbest --reference dev.tgt -o weights.ini")
    best = call("phrase-rescore rescore dev.nbest -m lm --weights weights.ini --best")
    assert best == (tmp_path / "dev.tgt").read_text()
