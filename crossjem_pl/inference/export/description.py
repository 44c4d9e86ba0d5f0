"""`export.json`: what an exported folder holds and what it was made from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from crossjem_pl.hashing import file_sha256

__all__ = ["EXPORT_FILE", "Description", "is_export", "read_description"]

EXPORT_FILE = "export.json"
"""Its name. A folder that has it is an exported model."""

FORMAT = 1


@dataclass(frozen=True)
class Description:
    """The content of `export.json`.

    Args:
        backend: name of the runtime.
        precision: "float32" or "int8", of the weights of the matrix products.
        opset: ONNX operator set of the graph.
        ranker: name of the ranker whose graph it is.
        init_args: its init arguments.
        model: where the ranker was loaded from, as it was given.
        weights_sha256: of the ranker's weights, as in `threshold.json`.
        files: SHA-256 of the graph's files.
        versions: of the packages that wrote it.
        format: of this file.
    """

    backend: str
    precision: str
    opset: int
    ranker: str
    init_args: dict[str, Any]
    model: str
    weights_sha256: str
    files: dict[str, str]
    versions: dict[str, str]
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Writes `export.json` to `folder`."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / EXPORT_FILE).write_text(text + "\n", encoding="utf-8")

    def check_files(self, folder: Path) -> None:
        """Raises a ValueError if a file of the graph is missing or not the one that was written."""
        for name, expected in self.files.items():
            if not (folder / name).is_file():
                raise ValueError(f"{folder}: {EXPORT_FILE} names the file {name}, which is missing")
            found = file_sha256(folder / name)
            if found != expected:
                raise ValueError(
                    f"{folder / name}: SHA-256 is {found}, but {EXPORT_FILE} says {expected}; the file is "
                    "damaged or of another export"
                )


def is_export(name: str | Path) -> bool:
    """Whether `name` is the folder of an exported model."""
    return (Path(name) / EXPORT_FILE).is_file()


def read_description(folder: Path) -> Description:
    """Reads `export.json`.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming file and field, if it is not of this form.
    """
    path = folder / EXPORT_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    kinds = {"opset": int, "format": int, "init_args": dict, "files": dict, "versions": dict}
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object, got {type(content).__name__}")
    for field in fields(Description):
        if not isinstance(content.get(field.name), kinds.get(field.name, str)):
            raise ValueError(
                f"{path}, field {field.name!r}: {content.get(field.name)!r} is not what belongs there"
            )
    if content["format"] != FORMAT:
        raise ValueError(
            f"{path}, field 'format': {content['format']} is unknown to this version; export again"
        )
    return Description(**{field.name: content[field.name] for field in fields(Description)})
