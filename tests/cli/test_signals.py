"""A sample of what ``make faults`` tries: signals at lines of the package, and calls of the system that fail."""

import signal
import subprocess
import sys

import pytest
from conftest import ROOT
from system_calls import available

pytestmark = pytest.mark.slow


def sample_of(python: str, program: str, *options: object) -> str:
    command = [python, str(ROOT / "tests" / "faults" / program), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_signal_at_any_line_loses_nothing(warm_python: str) -> None:
    assert sample_of(warm_python, "signals.py", "--sample", 50).endswith("50 points, 50 identical, 0 not\n")


@pytest.mark.skipif(not available(), reason="needs Linux 5.6 or later on x86_64")
def test_a_call_of_the_system_that_fails_loses_nothing(warm_python: str) -> None:
    assert sample_of(warm_python, "system_faults.py", "--times", 40).endswith("40 faults, 0 with another result\n")


PLACES = {
    "a destructor": """
class Closes:
    def __del__(self):
        os.kill(os.getpid(), {number})
        time.sleep(0.01)

def begin(*args, **named):
    Closes()
    time.sleep(20)
""",
    "the making of a class": """
class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), {number})
        time.sleep(0.01)

def begin(*args, **named):
    class Options:
        field = Field()
""",
}
COMMAND = """
import os, signal, time
from phrase_rescore.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
{begin}
main.cli.main = begin
main.main([])
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_is_not_lost_where_python_hides_it(place: str, number: signal.Signals, status: int) -> None:
    program = COMMAND.format(begin=PLACES[place].format(number=int(number)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=15)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("phrase-rescore: ")
