"""The modules of the package as syntax trees."""

import ast
from pathlib import Path

import phrase_rescore

PACKAGE = Path(phrase_rescore.__file__).parent


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield path, ".".join(parts), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree):
    """(full module name, node) of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module, node
