"""The experiments that come with the package: `-c quickstart` where there is no such file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["experiment_files"]

_PACKAGE = Path(__file__).parents[1]
_CONFIG = ("-c", "--config")


def experiment_files(argv: Sequence[str]) -> list[str]:
    """The arguments, with the path of the file in place of each packaged experiment's name.

    `-c packaged:rankers/bm25`, `-c rankers/bm25` and `-c experiments/rankers/bm25.yaml` name one file; an existing
    file of that name comes before it, except with `packaged:`.

    Raises:
        ValueError: for a name without a file; lists the experiments.
    """
    out = list(argv)
    for index, argument in enumerate(argv):
        option, equals, value = argument.partition("=")
        if option in _CONFIG and equals:
            out[index] = f"{option}={_path(value)}"
        elif index and argv[index - 1] in _CONFIG:
            out[index] = _path(argument)
    return out


def _path(name: str) -> str:
    if Path(name).is_file() and not name.startswith("packaged:"):
        return name
    installed = _PACKAGE / "experiments"
    folder = (
        installed if installed.is_dir() else _PACKAGE.parent / "experiments"
    )  # in a clone beside the package
    short = name.removeprefix("packaged:").removeprefix("experiments/").removesuffix(".yaml")
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.yaml")}
    if short not in files:
        raise ValueError(
            f"no file {name}, and no experiment of that name; there are {', '.join(sorted(files))}"
        )
    return str(files[short])
