"""The wheel in an environment of its own: the script of docs/start.md, from another folder, without the clone."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from crossjem_pl.data.simulator import simulate
from tests.conftest import root


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-build-isolation", "--wheel-dir", str(folder), str(root())],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_the_experiments(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {str(path.relative_to(root())) for path in (root() / "crossjem_pl").rglob("*.*")}
    experiments = {
        f"crossjem_pl/{path.relative_to(root())}" for path in (root() / "experiments").rglob("*.yaml")
    }
    expected = {name for name in package | experiments if not name.endswith(".pyc")}
    assert expected <= names
    assert {"crossjem_pl/py.typed", "crossjem_pl/inference/card.md.jinja"} <= expected
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


RUN = """
import shlex, sys
import crossjem_pl
from crossjem_pl.cli import main
assert crossjem_pl.__file__.startswith(sys.prefix), crossjem_pl.__file__
for line in sys.stdin:
    program, *arguments = shlex.split(line)
    assert program == "crossjem" and main(arguments) == 0, line
"""


@pytest.mark.slow
def test_the_script_of_the_first_minute_runs(wheel: Path, tmp_path: Path) -> None:
    """Its libraries are this environment's, the package is the wheel's; one process runs all commands."""
    environment, work = tmp_path / "environment", tmp_path / "work"
    venv.create(environment)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    work.mkdir()
    with (work / "pairs.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("query", "item", "label"))
        for one in simulate(200, 4):
            rows.writerows((one.query, *pair) for pair in zip(one.items, one.labels or (), strict=True))
    (script,) = re.findall(r"^```bash\n(.*?)^```", (root() / "docs" / "start.md").read_text(), re.S | re.M)
    install, *commands = script.splitlines()
    assert install.startswith("pip install")
    assert len(commands) < 10
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=work, env=variables, input=stdin, capture_output=True, text=True)

    assert run(environment / "bin" / "crossjem", "--version").stdout.startswith("crossjem_pl ")
    done = run(python, "-c", RUN, stdin="\n".join(commands))
    assert done.returncode == 0, done.stdout + done.stderr
    for printed in ("trail shoes on sale", "The model is in", "RR@10", "(baseline)", "contributions"):
        assert printed in done.stdout
    assert str(root()) not in done.stderr, "no file of the clone is read"
