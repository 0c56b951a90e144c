"""The command line lists the commands and turns errors into one line and an exit status.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated. Nothing heavy is imported before a command runs.
"""

import errno
import importlib
import io
import os
import signal
import sys
import threading
from difflib import get_close_matches
from typing import BinaryIO, cast

import click

from phrase_rescore._version import __version__
from phrase_rescore.errors import OptionError, RescoreError, lacks_memory, remedy
from phrase_rescore.messages import in_one_line

COMMANDS = {  # and the modules of phrase_rescore.cli that have them
    "train": "training", "annotate": "tables", "strip": "tables", "moses-ini": "decoding", "evaluate": "comparison",
    "score": "queries", "generate": "queries", "embed": "queries", "info": "queries",
    "report": "queries", "train-lm": "training", "train-nmt": "training", "score-lm": "queries",
    "export-lm": "decoding", "rescore": "decoding", "tune": "decoding",
}  # fmt: skip
_AGAIN = 0.05  # seconds
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())  # the error that no command was named; its message is the help
_OF_WRITING = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Commands(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"phrase_rescore.cli.{COMMANDS[cmd_name]}")
        return cast(click.Command, getattr(module, cmd_name.replace("-", "_")))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS, 1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Input is plain, gzip, bzip2, xz or zstandard; '-' is standard input. Progress and reports go to standard error.",
)
@click.version_option(__version__, prog_name="phrase-rescore")
def cli() -> None:
    """Neural scores for Moses phrase tables (Cho et al., EMNLP 2014) and n-best lists.

    \b
    phrase-rescore train phrase-table.gz
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz

    annotate appends two columns to the scores of every row: the probability p(target | source) and exp(number of
    unknown words). Moses takes the natural logarithm of every column, so MERT tunes log p and the number.

    \b
    phrase-rescore train-lm train.fr -m nlm
    phrase-rescore train-nmt train.en train.fr -m nmt
    phrase-rescore rescore dev.nbest.gz -m nlm -m nmt --source dev.en -o dev.all.nbest.gz
    phrase-rescore tune dev.all.nbest.gz --reference dev.fr -o weights.ini

    rescore adds log p of whole sentences to n-best lists, and tune finds the weights: most of the gain.
    """


def _say(message: str) -> None:
    click.echo(f"phrase-rescore: {in_one_line(message)}", err=True)


def _prepare_streams() -> None:
    """Replace closed standard streams (``>&-``) by ones that fail when written to, else the next file takes their place. An
    unbuffered standard output (PYTHONUNBUFFERED), which may write a part and raise nothing, becomes a buffered one. Names of
    files that are not UTF-8 are written as they are.
    """
    while (handle := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(handle)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(cast(BinaryIO, io.FileIO(1, "w", closefd=False)), write_through=True)
    elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def _one_line(error: BaseException) -> str:
    """Return the line for an error. An error of the system names its file, or standard output if it was written to."""
    if lacks_memory(error):
        return "memory ran out; use smaller blocks or minibatches, fewer jobs, or a machine with more memory"
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    where = error.filename or ("<stdout>" if error.errno in _OF_WRITING else "")
    return (f"{where}: " if where else "") + f"{error.strerror}; {remedy(error, writing=not error.filename)}"


class Terminated(KeyboardInterrupt):
    """SIGTERM came, for example from a batch system that reclaims its machine."""


def _on_sigterm(number: int, frame: object) -> None:
    raise Terminated


def _send_again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a signal again that came in a destructor, where Python prints and forgets it."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        number = signal.SIGTERM if isinstance(lost.exc_value, Terminated) else signal.SIGINT
        sent = False
        while not sent:
            timer = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))  # when that is over
            timer.daemon = True
            try:
                timer.start()
                sent = True
            except KeyboardInterrupt:  # on a loaded machine the signal comes while the timer starts
                continue
    else:
        sys.__unraisablehook__(lost)


def _report(error: BaseException) -> int:
    """Report the error that ended the command on standard error. Return the exit status."""
    match error:
        case click.UsageError() if isinstance(error, _HELP):
            error.show()
            return 2
        case click.ClickException():
            context = error.ctx if isinstance(error, click.UsageError) else None
            help = f"; see {context.command_path} --help" if context else ""
            line, status = f"error: {error.format_message().rstrip('.')}{help}", error.exit_code
        case BrokenPipeError():  # the reader has seen enough
            return 1
        case click.Abort() if isinstance(error.__context__, KeyboardInterrupt):  # as click turns one into the other
            return _report(error.__context__)
        case Terminated():
            line, status = "terminated", 143
        case click.Abort() | KeyboardInterrupt():
            line, status = "interrupted", 130
        case _:
            line, status = f"error: {_one_line(error)}", 2 if isinstance(error, OptionError) else 1
    for message in (line, *getattr(error, "__notes__", [])):
        _say(message)
    return status


def _run(args: list[str] | None) -> int:
    """Run a command line and return its status."""
    try:
        _prepare_streams()
        status = cli.main(args, prog_name="phrase-rescore", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # what Python makes of a signal while a class is made, on import
            return _report(error.__cause__)
        if not (isinstance(error, click.ClickException | click.Abort | RescoreError | OSError) or lacks_memory(error)):
            raise
        return _report(error)


def main(args: list[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads of torch sleep while they wait for each other
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _on_sigterm)
            sys.unraisablehook = _send_again
        status = _run(args)
    except KeyboardInterrupt as error:
        status = _report(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        status = status or _report(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's last flush is quiet
    if status in (130, 143) and threading.active_count() > 1:  # Python would wait for the other threads
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
