"""`manifest.json` of a prepared folder: which options made it, what is finished, and what was counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crossjem_pl.files import ending, replacing

__all__ = ["Manifest", "fingerprint"]

NAME = "manifest.json"


def fingerprint(path: Path) -> str:
    """Name and size of a file, or of the files of a folder: tells another input from the same one moved."""
    if not path.is_dir():
        return f"{path.name}, {path.stat().st_size} bytes"
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    return f"{path.name}/, {len(sizes)} files, {sum(sizes)} bytes"


class Manifest:
    """Entries by part, each `{"options": ..., "complete": bool, "shards": [...], "counts": {...}}`.

    Args:
        folder: the prepared folder; made if it is missing.
        command: the command that fills it.

    Raises:
        ValueError: another command filled the folder, or its manifest is damaged.
    """

    def __init__(self, folder: Path, command: str) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: expected a folder, found a file (kind {ending(folder)!r})")
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._content: dict[str, Any] = {"command": command, "parts": {}}
        if self.path.exists():
            self._content = self._read()
            if self._content["command"] != command:
                raise ValueError(
                    f"{self.path}: the folder was filled by `crossjem prepare {self._content['command']}`; "
                    f"choose another folder for `crossjem prepare {command}`"
                )

    def part(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """The entry of a part, new or as the last run left it; change it in place, then `save`.

        Raises:
            ValueError: something was made with other options; names them.
        """
        options = json.loads(json.dumps(options))
        parts = self._content["parts"]
        entry: dict[str, Any] = parts.setdefault(
            name, {"options": options, "complete": False, "shards": [], "counts": {}}
        )
        if not entry["complete"] and not entry["shards"]:  # nothing was made with the options of then
            entry["options"] = options
        stored = entry["options"]
        differing = sorted(
            key for key in stored.keys() | options.keys() if stored.get(key) != options.get(key)
        )
        if differing:
            was = ", ".join(f"{key} was {stored.get(key)!r} and is {options.get(key)!r}" for key in differing)
            raise ValueError(
                f"{self.path}: part {name!r} was made with other options ({was}); choose another folder, or "
                "remove this one"
            )
        return entry

    def save(self) -> None:
        """Writes the manifest, whole or not at all."""
        with replacing(self.path) as stream:
            stream.write(json.dumps(self._content, indent=1, ensure_ascii=False).encode("utf-8") + b"\n")

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.path}: not the manifest of a prepared folder ({error})") from None
        if not isinstance(content, dict) or not {"command", "parts"} <= content.keys():
            raise ValueError(f"{self.path}: not the manifest of a prepared folder (no command and parts)")
        return content
