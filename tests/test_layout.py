"""Imports point down the layout, every package file is listed, nothing swallows errors."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

from tests.conftest import root

ROOMS = [
    *("hashing", "process", "progress", "files", "lists", "text"),
    *("losses", "rankers", "data", "prepare", "evaluation"),
    *("training", "inference", "adapters", "serving", "cli"),
]
PACKAGE = root() / "crossjem_pl"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or not p.stem.startswith("__"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(root()).with_suffix("").parts).removesuffix(".__init__")


def whole_names(path: Path) -> Iterator[str]:
    """What a file imports of this package, and of a package of it each name that may be a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("crossjem_pl."):
            yield node.module
            yield from (f"{node.module}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("crossjem_pl."))


def imported(path: Path) -> Iterator[str]:
    yield from (name.split(".")[1] for name in whole_names(path))


def test_the_rooms_are_the_ones_of_the_layout() -> None:
    assert {room(path) for path in MODULES} <= set(ROOMS)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = ROOMS.index(room(path))
    for name in imported(path):
        assert ROOMS.index(name) <= own, f"{path} imports {name}, which is above {room(path)}"


def test_no_file_imports_what_imports_it() -> None:
    """Imports within functions and for types are meant too."""
    names = {module_name(path): path for path in MODULES}
    graph = {
        name: {found for found in whole_names(path) if found in names} - {name}
        for name, path in names.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(names)


def test_every_name_in_all_exists() -> None:
    for path in MODULES:
        name = module_name(path)
        try:
            module = importlib.import_module(name)
        except ImportError as error:  # an adapter, whose library is not installed
            if path.parent.name != "adapters" or f"crossjem_pl[{path.stem}]" not in str(error):
                raise
            continue
        missing = [n for n in getattr(module, "__all__", ()) if not hasattr(module, n)]
        assert not missing, f"{name}: {missing}"


def test_the_three_names_are_one_program() -> None:
    """`python -m crossjem_pl` is executed by the tests of the documentation."""
    scripts = tomllib.loads((root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == dict.fromkeys(("lightning", "crossjem"), "crossjem_pl.cli:main")


def test_the_documentation_lists_every_page() -> None:
    config = yaml.safe_load((root() / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = {
        page if isinstance(page, str) else next(iter(page.values()))
        for part in config["nav"]
        for page in next(iter(part.values()))
    }
    assert listed == {str(p.relative_to(root() / "docs")) for p in (root() / "docs").rglob("*.md")}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=root(), capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "```" not in re.sub(r"<[^>]*>", "", (tmp_path / "data" / "index.html").read_text(encoding="utf-8"))
