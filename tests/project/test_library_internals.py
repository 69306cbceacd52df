"""Undocumented names of libraries: all of them are listed, and all are still there."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from project.library_internals import INTERNALS, Internal
from tests.serving import BASE

PACKAGES = ("conversations", "llm", "project", "tools")
#: Documented although they begin with an underscore, or of Python itself.
DOCUMENTED = {"_meta", "_state", "_default_manager", "_base_manager", "_exit"}
DOCUMENTED |= {"_asdict", "_fields", "_make", "_replace"}


def load(path: str) -> Any:
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)


def source_of(owner: Any) -> str:
    if isinstance(owner, ModuleType):
        return inspect.getsource(owner)
    modules = {kind.__module__ for kind in owner.__mro__}
    modules -= {name for name in modules if _is_standard(name)}
    return "".join(inspect.getsource(import_module(name)) for name in modules)


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda each: each.owner)
def test_the_library_still_has_the_names(internal: Internal):
    owner = load(internal.owner)
    missing = [name for name in internal.names if not hasattr(owner, name)]
    source = source_of(owner) if missing else ""  # which has attributes of instances
    removed = [name for name in missing if not re.search(rf"\b{name}\b", source)]
    assert not removed, f"{internal.owner} has no {removed}; see {internal.used_in}"


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda each: each.owner)
def test_the_project_still_uses_the_names(internal: Internal):
    source = (BASE / internal.used_in).read_text()
    unused = [name for name in internal.names if name not in source]
    assert not unused, f"{internal.used_in} does not use {unused} any more"


def test_every_private_name_of_a_library_is_listed():
    trees = {path: ast.parse(path.read_text()) for path in _files()}
    listed = {name for internal in INTERNALS for name in internal.names}
    known = DOCUMENTED | listed | {n for t in trees.values() for n in _defined(t)}
    unlisted = {
        f"{path.relative_to(BASE)}:{line}: {name}"
        for path, tree in trees.items()
        for line, name in _used(tree)
        if name not in known
    }
    assert not unlisted, "list these in project/library_internals.py"


def test_no_private_name_of_another_object_is_read():
    """A name that our own code defines elsewhere hides a library's of the same name."""
    listed = {name for internal in INTERNALS for name in internal.names}
    reached = []
    for path in (*_files(), *_files("tests", "benchmarks")):
        tree = ast.parse(path.read_text())
        known = DOCUMENTED | listed | set(_defined(tree))
        used = [each for each in _used_of_others(tree) if each[1] not in known]
        reached += [f"{path.relative_to(BASE)}:{line}: {name}" for line, name in used]
    assert not reached


def test_at_most_15_names_are_used():
    assert sum(len(internal.names) for internal in INTERNALS) <= 15


def test_no_class_of_an_object_is_replaced():
    for path in _files():
        source = path.read_text()
        assert not re.search(r"__class__ = |sys\.modules\[.*\] = ", source), path


def _files(*packages: str) -> Iterator[Path]:
    for package in packages or PACKAGES:
        for path in (BASE / package).rglob("*.py"):
            if "migrations" not in path.parts:
                yield path


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.Name(ctx=ast.Store()):
                yield node.id


def _used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            yield node.lineno, node.attr


def _used_of_others(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Private attributes of anything but `self`, the class and the base class."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "sys")):
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=name) if re.match("_[a-z]", name):
                yield node.lineno, name
