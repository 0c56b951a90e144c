"""The modules of the package as syntax trees."""

import ast
import functools
from pathlib import Path

import phrase_rescore

PACKAGE = Path(phrase_rescore.__file__).parent


@functools.cache
def modules():
    """(path, name within the package, tree) of every module."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in paths]
    return [(path, name, ast.parse(path.read_text(encoding="utf-8"))) for path, name in zip(paths, names, strict=True)]


def imported(tree):
    """(full module name, node) of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module, node
