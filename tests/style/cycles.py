"""Report of circular imports. Run from the project's root:

    python tests/style/cycles.py  # exits with 1 if there are any

Imports in functions and under TYPE_CHECKING count, too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

APPS = ("conversations", "llm", "project", "tools")
Graph = dict[str, set[str]]  # modules, each with the modules that it imports


def source_files() -> dict[str, Path]:
    """Names and paths of the apps' modules in git, without migrations."""
    command = ["git", "ls-files", "*.py"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): Path(path)
        for path in listing.stdout.splitlines()
        if path.split("/")[0] in APPS and "/migrations/" not in path
    }


def import_graph(files: dict[str, Path]) -> Graph:
    return {
        module: _imported_modules(path, files) - {module}
        for module, path in files.items()
    }


def _imported_modules(path: Path, files: dict[str, Path]) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {module for name in names if (module := _enclosing_module(name, files))}


def _enclosing_module(name: str, files: dict[str, Path]) -> str:
    """The module that is or defines `name`, or "" if it is not in the apps."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def find_cycles(graph: Graph) -> list[list[str]]:
    """Strongly connected components of several modules, by Tarjan's algorithm.

    Source: https://en.wikipedia.org/wiki/Tarjan%27s_strongly_connected_components_algorithm
    """
    index: dict[str, int] = {}  # order of the first visits
    low: dict[str, int] = {}  # smallest index on the stack that can be reached
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in graph.get(module, ()):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            start = stack.index(module)
            component = stack[start:]
            del stack[start:]
            if len(component) > 1:
                cycles.append(sorted(component))

    for module in graph:
        if module not in index:
            visit(module)
    return sorted(cycles, key=len, reverse=True)


def main() -> int:
    sys.setrecursionlimit(10_000)  # `visit` recurses along chains of imports
    cycles = find_cycles(import_graph(source_files()))
    for cycle in cycles:
        print(len(cycle), *cycle)
    print(f"{len(cycles)} circular imports")
    return int(bool(cycles))


if __name__ == "__main__":
    raise SystemExit(main())
