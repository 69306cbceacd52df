"""Report of names that a reader would have to look up. Run from the project's root:

    python tests/style/names.py            # print figures and the worst cases
    python tests/style/names.py --strict   # also exit with 1 above a limit

Functions named by a past participle in other projects: healthchecks 1.0 %,
procrastinate 0.9 %, django-anymail 0.6 %, httpx 0.3 %, and 0 % in channels,
h11 and websockets.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

APPS = ("conversations", "llm", "project", "tools")
PARTICIPLE = re.compile(
    r"told|said|kept|held|made|found|left|sent|shown|known|meant|given|taken|seen|heard"
    r"|\w{3,}ed"
)
NOT_PARTICIPLES = {
    *("bleed", "embed", "exceed", "feed", "need"),
    *("nested", "proceed", "seed", "shed", "speed"),
}
#: Words that say nothing about the content of a variable.
VAGUE = {
    *("asked", "door", "given", "held", "kept", "means", "place"),
    *("said", "somebody", "tell", "told", "way", "whoever"),
}

#: Words in docstrings and comments that leave open who or what is meant.
UNCLEAR = re.compile(r"\b(somebody|whoever|ours|doors?)\b", re.IGNORECASE)

MAX_PARTICIPLES = 0.02  # of all functions
MAX_VAGUE = 20  # bindings of each word
MAX_FILES_IN_APP_ROOT = 12
MAX_FILES_IN_FOLDER = 25
MAX_LINES = 25  # functions printed


@dataclass
class Report:
    functions: int = 0
    participles: list[str] = field(default_factory=list)  # "path: function"
    #: Paths of the files that bind a vague word, once for each binding.
    vague: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    class_assignments: list[str] = field(default_factory=list)  # "path:line"
    unclear: list[str] = field(default_factory=list)  # "path:line: word"
    files: Counter[str] = field(default_factory=Counter)  # of each folder

    def add_file(self, path: str) -> None:
        text = Path(path).read_text(encoding="utf-8")
        self._add_prose(path, text)
        tree = ast.parse(text)
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef) and statement.name[0] != "_":
                self.classes[statement.name].add(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._add_function(path, node)
            if name := _bound_name(node):
                for word in _words(name) & VAGUE:
                    self.vague[word].append(path)
            if isinstance(node, ast.Attribute) and _bound_name(node) == "__class__":
                self.class_assignments.append(f"{path}:{node.lineno}")

    def _add_function(
        self, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> None:
        if any("property" in ast.unparse(each) for each in node.decorator_list):
            return
        self.functions += 1
        first = node.name.strip("_").split("_")[0]
        if PARTICIPLE.fullmatch(first) and first not in NOT_PARTICIPLES:
            self.participles.append(f"{path}: {node.name}")

    def _add_prose(self, path: str, text: str) -> None:
        for line, prose in _prose(text):
            found = UNCLEAR.findall(prose)
            self.unclear += [f"{path}:{line}: {word.lower()}" for word in found]

    @property
    def share(self) -> float:
        return len(self.participles) / max(self.functions, 1)

    def repeated_classes(self) -> dict[str, set[str]]:
        """Names of public classes that several files define."""
        return {
            name: paths
            for name, paths in self.classes.items()
            if len(paths) > 1 and name != "Command"  # Django requires this name
        }

    def large_folders(self) -> dict[str, int]:
        return {
            folder: count
            for folder, count in self.files.items()
            if count
            > (MAX_FILES_IN_APP_ROOT if folder in APPS else MAX_FILES_IN_FOLDER)
        }

    def is_above_limit(self) -> bool:
        return (
            self.share > MAX_PARTICIPLES
            or any(len(paths) > MAX_VAGUE for paths in self.vague.values())
            or bool(self.class_assignments)
            or bool(self.large_folders())
            or bool(self.unclear)
        )

    def lines(self) -> Iterator[str]:
        yield (
            f"{self.functions} functions, {len(self.participles)} = {self.share:.1%}"
            f" named by a past participle (limit {MAX_PARTICIPLES:.0%})"
        )
        yield from (f"    {each}" for each in sorted(self.participles)[:MAX_LINES])
        yield f"Bindings of vague words (limit {MAX_VAGUE} each):"
        for word, paths in sorted(self.vague.items(), key=lambda each: -len(each[1])):
            yield f"    {word}: {len(paths)} in {len(set(paths))} files"
        yield "Names of public classes in several files:"
        for name, files in sorted(self.repeated_classes().items()):
            yield f"    {name}: {', '.join(sorted(files))}"
        yield f"Assignments to __class__: {self.class_assignments or 'none'}"
        yield f"Folders with too many files: {self.large_folders() or 'none'}"
        yield f"Unclear words in docstrings and comments: {self.unclear or 'none'}"


def source_paths() -> list[str]:
    """Paths of all Python files in git, without migrations."""
    command = ["git", "ls-files", "*.py"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    return [path for path in listing.stdout.splitlines() if "/migrations/" not in path]


def _bound_name(node: ast.AST) -> str | None:
    """The name that the node defines or assigns."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()):
            return name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return None


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a file, with their lines."""
    begins_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and begins_statement
        if is_docstring or token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins_statement = token.type in (
                *(tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
                tokenize.ENCODING,
            )


def _words(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name."""
    return set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_"))


def main() -> int:
    report = Report()
    for path in source_paths():
        report.files[path.rpartition("/")[0]] += 1
        if path.split("/")[0] in APPS:  # tests may be named by what they show
            report.add_file(path)
    print(*report.lines(), sep="\n")
    return int("--strict" in sys.argv and report.is_above_limit())


if __name__ == "__main__":
    raise SystemExit(main())
