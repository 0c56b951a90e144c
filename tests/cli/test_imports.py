"""What a module may know. Who imports whom is checked by import-linter (pyproject.toml), on ``make lint``."""

import ast

from source_tree import imported, modules


def test_only_commands_and_cli_know_the_terminal():
    talkers = {
        module.split(".")[0]
        for _, module, tree in modules()
        for name, _ in imported(tree)
        if name.split(".")[0] in ("click", "cloup", "tqdm")
    }
    assert talkers == {"cli"}


def test_only_the_phrase_table_knows_the_separator():
    knowing = {
        module
        for _, module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in (b"|||", b" ||| ", "|||")
    }
    assert knowing == {"moses.table"}
