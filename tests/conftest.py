"""Shared by all tests: tiny models, the command line as a function, and real data where it lies beside the repository."""

from __future__ import annotations

import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest's processes share the cores: threads that wait for each other take them

import pytest
import torch
from hypothesis import settings
from moses_harness import found_decoder
from small_models import disturb_weights
from warm_command import WarmCommand

from phrase_rescore.cli.main import main
from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.rnn.checkpoint import Checkpoint, save
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise

settings.register_profile("untimed", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)  # make check
settings.load_profile("untimed")

collect_ignore = ["fuzz"]  # programs, which change the modules that they import

ROOT = Path(__file__).resolve().parent.parent
# The programs that tests start take the package from this tree, wherever another one is installed
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
SHARED_DATA = ROOT.parent / "shared" / "data" / "en-fr"

# "the" and "das" are the most frequent; the last words are those that a careless reader would break
SOURCE_WORDS = (b"the", b"house", b"is", b"small", b"old", b"don&apos;t", "café".encode(), b"UNK", b"a\xff", b"</s>")
TARGET_WORDS = (b"das", b"haus", b"ist", b"klein", b"alt", b"l&apos;", "été".encode(), b"</s>", b"b\xfe", b"UNK")


class Result(NamedTuple):
    """What a command line did."""

    status: int
    out: bytes
    err: str

    @property
    def last_line(self) -> str:
        return self.err.splitlines()[-1]


Run = Callable[..., Result]
MakeModel = Callable[..., str]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture(scope="session")
def decoder() -> Path:
    if "MOSES_BIN" not in os.environ:
        pytest.skip("needs a Moses decoder, named by MOSES_BIN")
    return found_decoder(os.environ["MOSES_BIN"])


@pytest.fixture(autouse=True)
def denormal_numbers_count() -> Iterator[None]:
    """Commands switch denormal numbers off for the whole process; the tests of Moses' floats need them."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of the real English-French table."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the real data in {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def run() -> Run:
    """``run("annotate", table, …, stdin=b"")`` in this process: exit status, bytes of stdout, text of stderr."""

    def call(*args: object, stdin: bytes = b"") -> Result:
        before = sys.stdin, sys.stdout, sys.stderr, sys.argv
        out, err = io.BytesIO(), io.BytesIO()
        streams = (
            io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))),
            io.TextIOWrapper(out, "utf-8"),
            io.TextIOWrapper(err, "utf-8", "backslashreplace"),
        )
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.argv = ["phrase-rescore", *map(str, args)]
        try:
            main()
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:  # as the interpreter would
            traceback.print_exc()
            status = 1
        finally:
            sys.stdin, sys.stdout, sys.stderr, sys.argv = before
            for stream in streams[1:]:
                stream.flush()
            torch.set_flush_denormal(False)
        return Result(status, out.getvalue(), err.getvalue().decode())

    return call


@pytest.fixture(scope="session")
def warm_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PATH on which ``phrase-rescore`` and ``python`` start in milliseconds, for scripts that call them often."""
    command = WarmCommand(tmp_path_factory.mktemp("warm"))
    yield f"{command.folder}{os.pathsep}{os.environ['PATH']}"
    command.close()


@pytest.fixture(scope="session")
def warm_python(warm_path: str) -> str:
    """The ``python`` of that PATH."""
    return str(shutil.which("python", path=warm_path))


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes a model directory with random weights, large enough for scores to differ; returns its path.

    ``logits`` sets the bias of target words, so that they become as unlikely as a test needs.
    """

    def make(
        source: Sequence[bytes] = SOURCE_WORDS,
        target: Sequence[bytes] = TARGET_WORDS,
        unk_shares: tuple[float, float] = (0.02, 0.02),
        logits: Mapping[bytes, float] | None = None,
    ) -> str:
        vocabularies = [Vocabulary(tuple(side), tuple(range(len(side), 0, -1))) for side in (source, target)]
        model = RNNEncoderDecoder(ModelConfig(*map(len, vocabularies), hidden=7, embedding=6, maxout=5, rank=4))
        initialise(model, seed=3, paper=False)
        disturb_weights(model, seed=4)
        with torch.no_grad():
            for word, logit in (logits or {}).items():
                model.decoder.b_G[vocabularies[1].ids[word]] = logit
        directory = str(tmp_path_factory.mktemp("model"))
        save(Checkpoint(model, *vocabularies, unk_shares, {}), directory)
        return directory

    return make


@pytest.fixture(scope="session")
def model_dir(make_model: MakeModel) -> str:
    """A model that knows SOURCE_WORDS and TARGET_WORDS and has seen unknown words on both sides."""
    return make_model()
