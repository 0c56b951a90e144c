"""A training killed at random moments, again and again, against the same training left alone: are the models the same?

usage: kill_training.py [--kills 10] [--from 5] [--to 40] [--seed 1] [--folder DIR] TRAIN_ARGUMENTS…

TRAIN_ARGUMENTS are those of `phrase-rescore train`, without -m: `phrase-table.gz --max-steps 60 --eval-every 10`. Every
sitting is killed (SIGKILL) between `--from` and `--to` seconds after its start, until there have been as many kills as
asked; the next one goes on with --resume. Ends with an error if the models differ in a byte.
"""

import argparse
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def train(arguments: list[str], model: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "phrase_rescore", "train", *arguments, "-m", str(model), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def finished(process: subprocess.Popen[bytes]) -> None:
    _, err = process.communicate()
    if process.returncode:
        raise SystemExit(err.decode())


def digests(model: Path) -> dict[str, str]:
    """Of every file but the log, which tells the time."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model.iterdir() if path.suffix != ".jsonl"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--from", dest="earliest", type=float, default=5.0)
    parser.add_argument("--to", dest="latest", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    options, arguments = parser.parse_known_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    arguments += ["--pairs", str(folder / "pairs")]
    start = time.monotonic()
    finished(train(arguments, folder / "whole"))
    print(f"left alone: {time.monotonic() - start:.0f} s", flush=True)
    draw, killed, state = random.Random(options.seed), 0, folder / "killed.training" / "state.json"
    while killed < options.kills:
        if not state.exists():  # killed before its first measurement: nothing to go on from
            shutil.rmtree(state.parent, ignore_errors=True)
        process = train(arguments, folder / "killed", *(["--resume"] if state.exists() else []))
        after = draw.uniform(options.earliest, options.latest)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"over after {killed} kills: name more --max-steps\n{err.decode()}")
        killed += 1
        last = err.decode().replace("\r", "\n").splitlines()[-1] if err else ""
        print(
            f"kill {killed}, after {after:.1f} s: {'a state to go on from' if state.exists() else 'no state yet'}; {last}",
            flush=True,
        )
    finished(train(arguments, folder / "killed", *(["--resume"] if state.exists() else [])))
    same = digests(folder / "whole") == digests(folder / "killed")
    print("the same to the byte" if same else "the models DIFFER")
    if not options.folder:
        shutil.rmtree(folder)
    sys.exit(not same)


if __name__ == "__main__":
    main()
