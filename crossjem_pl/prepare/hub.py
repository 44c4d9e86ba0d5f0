"""Folders of datasets: local ones as they are, hub repositories downloaded."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["dataset_folder"]

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ["*.jsonl", "*.jsonl.gz", "*.json", "*.json.gz", "*.parquet"]


def dataset_folder(name: str) -> Path:
    """The folder `name`, or the downloaded (or cached) files of the dataset repository `name` on the hub.

    Raises:
        FileNotFoundError: `name` is neither a folder nor the form of a repository id.
        ValueError: the hub cannot be reached or has no such repository; says what to download.
    """
    if Path(name).is_dir():
        return Path(name)
    if Path(name).exists() or not _REPOSITORY.fullmatch(name):
        raise FileNotFoundError(f"{name}: neither a folder nor the id of a hub dataset (OWNER/NAME)")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=FILES))
    except (OSError, HFValidationError) as error:
        # of the hub's errors, those of the network, of a missing repository and of offline mode are OSErrors
        raise ValueError(
            f"hub dataset {name!r} cannot be had ({type(error).__name__}). Download its files from "
            f"https://huggingface.co/datasets/{name}/tree/main on a machine that reaches the hub, put them in a "
            "folder, keeping their names, and give that folder in place of the id"
        ) from error
