"""Write cli.md beside this file: the help of every command, 100 columns wide, as a wide terminal shows it."""

from pathlib import Path

import click
from click.testing import CliRunner

from phrase_rescore.cli.main import cli

PATH = Path(__file__).with_name("cli.md")
HEAD = """\
# Command line

Written by `python docs/make_cli_reference.py` from the commands' own `--help`; do not edit it by hand. Formats and
units are explained in [format.md](format.md), the model in [model.md](model.md).

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated.

## Completion

TAB completes commands, options, their values and names of files, once the line of your shell stands in its start-up file.

`~/.bashrc` (bash 4.4 or newer):

```bash
eval "$(_PHRASE_RESCORE_COMPLETE=bash_source phrase-rescore)"
```

`~/.zshrc`, after `compinit`:

```zsh
eval "$(_PHRASE_RESCORE_COMPLETE=zsh_source phrase-rescore)"
```

`~/.config/fish/completions/phrase-rescore.fish`:

```fish
_PHRASE_RESCORE_COMPLETE=fish_source phrase-rescore | source
```
"""


def help_of(command: list[str]) -> str:
    result = CliRunner().invoke(cli, [*command, "--help"], prog_name="phrase-rescore", terminal_width=100)
    if result.exit_code:
        raise RuntimeError(f"phrase-rescore {' '.join(command)} --help failed:\n{result.output}")
    return "\n".join(line.rstrip() for line in result.output.strip().split("\n"))


def reference() -> str:
    sections = [HEAD]
    for command in [[], *([name] for name in cli.list_commands(click.Context(cli)))]:
        title = " ".join(["phrase-rescore", *command])
        sections.append(f"## {title}\n\n```text\n{help_of(command)}\n```\n")
    return "\n".join(sections)


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8", newline="\n")
