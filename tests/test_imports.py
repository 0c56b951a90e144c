"""Data flows one way: a module imports only from its left."""

import ast
from pathlib import Path

import phrase_rescore

PACKAGE = Path(phrase_rescore.__file__).parent

ORDER = [
    "__init__", "errors", "runtime", "devices", "presets", "fileio", "output_files", "partial_output", "factors", "fields",
    "phrase_table", "table_blocks", "own_columns", "table_columns", "moses_ini", "pair_readers", "word_table", "vocabulary",
    "pairs", "pair_sorting", "pair_store", "permutation", "prefix_trees", "gathered", "products", "cells", "softmax", "model",
    "checkpoint", "warm_start", "ranks", "gradients", "training_state", "training", "phrase_pair_task", "final_pass",
    "training_options", "pair_preparation", "model_training", "curves", "segments", "randomization", "evaluation",
    "evaluation_report", "decoder_walk", "scoring", "pair_scoring", "phrase_vectors", "vector_files", "nearest",
    "embedding", "typed_text", "beam_search", "sampling", "proposals", "vocabulary_fit", "annotator", "pipeline",
    "annotation", "table_faults", "distinct_sample", "table_lookup", "proposed_rows", "generation", "table_statistics",
    "table_survey", "survey_report", "model_report", "stripping", "projection", "report_rows", "report_statistics",
    "report_findings", "report_charts", "report_page", "report_summary", "report_sections", "report_tables", "table_report",
    "commands", "cli", "__main__",
]  # fmt: skip

HEAVY = {"torch", "safetensors", "numpy", "sacremoses", "sacrebleu", "matplotlib", "altair", "vl_convert", "openTSNE"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield path, parts[0], ast.parse(path.read_text(encoding="utf-8"))


def imported(tree):
    """(full module name, node) of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module, node


def test_every_module_has_its_place():
    assert sorted({room for _, room, _ in modules()}) == sorted(ORDER)


def test_imports_come_from_the_left():
    wrong = []
    for path, room, tree in modules():
        for name, _ in imported(tree):
            head, _, rest = name.partition(".")
            if head != "phrase_rescore" or not rest:
                continue
            other = rest.split(".")[0]
            inside_commands = room == other == "commands"
            by_name = room == "cli" and other == "commands"
            if not inside_commands and not by_name and ORDER.index(other) >= ORDER.index(room):
                wrong.append(f"{path.name} imports {name}")
    assert not wrong


def test_only_commands_and_cli_know_the_terminal():
    talkers = {room for _, room, tree in modules() for name, _ in imported(tree) if name.split(".")[0] in ("click", "tqdm")}
    assert talkers == {"commands", "cli"}


def test_only_fields_knows_the_separator():
    rooms = {
        room
        for _, room, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in (b"|||", b" ||| ", "|||")
    }
    assert rooms == {"fields"}


def test_commands_import_nothing_heavy_at_their_top():
    for path, room, tree in modules():
        if room in ("commands", "cli"):
            top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            names = {name.split(".")[0] for name, node in imported(tree) if node in top}
            assert not names & HEAVY, path
