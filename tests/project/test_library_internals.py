"""Undocumented names of libraries: all of them are listed, and all are still there."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
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


@pytest.mark.slow
@pytest.mark.smoke
def test_every_private_name_of_a_library_is_listed():
    files = {path: names_of(path) for path in _files()}
    listed = {name for internal in INTERNALS for name in internal.names}
    known = DOCUMENTED | listed | {n for each in files.values() for n in each.defined}
    unlisted = {
        f"{path.relative_to(BASE)}:{line}: {name}"
        for path, names in files.items()
        for line, name in names.used
        if name not in known
    }
    assert not unlisted, "list these in project/library_internals.py"


@pytest.mark.slow
@pytest.mark.smoke
def test_no_private_name_of_another_object_is_read():
    """A name that our own code defines elsewhere hides a library's of the same name."""
    listed = {name for internal in INTERNALS for name in internal.names}
    reached = []
    for path in (*_files(), *_files("tests", "benchmarks")):
        if not _PRIVATE_OF_OTHERS.search(path.read_text()):
            continue
        names = names_of(path)
        known = DOCUMENTED | listed | names.defined
        used = [each for each in names.used_of_others if each[1] not in known]
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


#: What any private attribute of another object looks like: few files have one.
_PRIVATE_OF_OTHERS = re.compile(r"(?<!\bself)(?<!\bcls)(?<!\bsys)\s*\._[a-z]")


@dataclass
class Names:
    """Names in a file: those that it defines, and the private attributes it uses."""

    defined: set[str] = field(default_factory=set)
    used: list[tuple[int, str]] = field(default_factory=list)
    #: Of anything but `self`, the class and the base class.
    used_of_others: list[tuple[int, str]] = field(default_factory=list)

    def add(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.defined.add(node.name)
            case ast.Name(ctx=ast.Store()):
                self.defined.add(node.id)
            case ast.Attribute():
                self._add_attribute(node)

    def _add_attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.attr)
        if not re.match("_[a-z]", node.attr):
            return
        self.used.append((node.lineno, node.attr))
        match node.value:
            case ast.Name(id="self" | "cls" | "sys"):
                return
            case ast.Call(func=ast.Name(id="super")):
                return
        self.used_of_others.append((node.lineno, node.attr))


@cache
def names_of(path: Path) -> Names:
    names = Names()
    for node in ast.walk(ast.parse(path.read_text())):
        names.add(node)
    return names
