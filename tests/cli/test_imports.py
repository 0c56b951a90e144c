"""What a module may know. Who imports whom is checked by import-linter (pyproject.toml), on ``make lint``."""

import ast

from source_tree import imported, modules

HEAVY = {"torch", "safetensors", "numpy", "sacremoses", "sacrebleu", "altair", "vl_convert", "openTSNE"}


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


def test_commands_import_nothing_heavy_at_their_top():
    for path, module, tree in modules():
        if module.split(".")[0] == "cli":
            top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            names = {name.split(".")[0] for name, node in imported(tree) if node in top}
            assert not names & HEAVY, path
