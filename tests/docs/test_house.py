"""The house: short modules, one name for one thing, a function of ``api`` for every command, which makes one call of it."""

import ast
from collections import Counter, defaultdict

import pytest
from conftest import ROOT
from source_tree import PACKAGE, modules

import phrase_rescore
from phrase_rescore import api
from phrase_rescore.cli.main import COMMANDS


def test_no_module_is_long() -> None:
    assert [path.name for path in PACKAGE.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 350] == []


def test_no_class_has_the_name_of_one_in_another_room() -> None:
    rooms = defaultdict[str, set[str]](set)
    for _, module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].add(module.split(".")[0])
    assert {name: of for name, of in rooms.items() if len(of) > 1} == {}


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by their names alone."""
    names = Counter(path.name for path in (ROOT / "tests").glob("*/*.py"))
    assert [name for name, n in names.items() if n > 1] == []


def test_what_the_package_exports_exists() -> None:
    assert [name for name in phrase_rescore.__all__ if not hasattr(phrase_rescore, name)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_makes_one_call_of_its_function(command: str) -> None:
    name = command.replace("-", "_")
    assert callable(getattr(api, name))
    module = ast.parse((PACKAGE / "cli" / f"{COMMANDS[command]}.py").read_text(encoding="utf-8"))
    body = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(body)
        if isinstance(node, ast.ImportFrom) and node.module == "phrase_rescore.api"
        for alias in node.names
    }
    called = [node.func.id for node in ast.walk(body) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert [imported[function] for function in called if function in imported and function.islower()] == [name]
