"""LinkSO's own files as ranking lists: Stack Overflow duplicate questions (SODQ) by their titles.

Liu, Wang, Leng and Zhai, "LinkSO: A Dataset for Learning to Retrieve Similar Question Answer Pairs on Software
Development Forums", NL4SE 2018. For each tag (java, javascript, python) a folder with

    TAG_qid2all.txt    question id, title, body, answer; tab-separated, no header
    TAG_cosidf.txt     header qid1 qid2 score label; 30 candidates a question, by tf-idf cosine
    TAG_train_qid.txt, TAG_test_qid.txt    one question id a line

TAG_valid_qid.txt is not read: LinkSO's validation questions are its test questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from crossjem_pl.data.rows import parse_number
from crossjem_pl.files import existing, read_lines
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.output import (
    Track,
    Written,
    fingerprint,
    judged_list,
    one_line,
    untracked,
    write_splits,
)

__all__ = ["DEV_FRACTION", "TAGS", "prepare_linkso"]

DEV_FRACTION = 0.05
TAGS = ("java", "javascript", "python")
_FILES = ("qid2all", "cosidf", "train_qid", "test_qid")
_HEADER = ("qid1", "qid2", "score", "label")
SENTENCES = {
    "lists_without_positive": "lists without a duplicate among their candidates (kept)",
    "untitled_items": "candidates left out, they have no title or no line in qid2all",
    "untitled_queries": "questions left out, they have no title or no line in qid2all",
    "empty_lists": "questions of the split left out, they have no candidates with a title",
}


class _Tag(NamedTuple):
    """What the files of a tag hold: candidates and labels by question, best first; titles; ids of the splits."""

    candidates: dict[str, dict[str, float]]
    titles: dict[str, str]
    ids: dict[str, list[str]]


def prepare_linkso(
    folder: Path,
    out: Path,
    *,
    tags: Sequence[str] = TAGS,
    dev_fraction: float = DEV_FRACTION,
    track: Track = untracked,
) -> Iterator[Written]:
    """Writes `out/train.parquet/`, `dev.parquet/` and `test.parquet/`; yields an account of each.

    Query ids are `TAG-QID`, since a question may have two tags; item ids are question ids. Items stand in
    the order of LinkSO's cosine, labels are its links. The cosine itself is not kept: `scores` is the
    teacher's field.

    Args:
        folder: holds a folder for each tag (or their files).
        out: folder to fill.
        tags: the tags to take.
        dev_fraction: dev is this part of the training questions, by a hash of the id; 0 writes no dev.
        track: shows progress.

    Raises:
        FileNotFoundError: names the files that were expected and those that are there.
        ValueError: names file and line of what is malformed; a training question that is a test question as well.
    """
    if not tags or len(set(tags)) != len(tags):
        raise ValueError(f"tags must be distinct and at least one, got {list(tags)}")
    files = {tag: _files(existing(folder, "LinkSO folder"), tag) for tag in tags}
    source = {tag: [fingerprint(path) for path in of_tag.values()] for tag, of_tag in files.items()}
    content = cache(lambda tag: _read(files[tag], track))

    def lists(split: str, counts: Counter[str]) -> Iterator[tuple[str, RankingList]]:
        for tag in tags:
            candidates, titles, ids = content(tag)
            for identifier in ids[split]:
                labels = candidates.get(identifier, {})
                query_id, query = f"{tag}-{identifier}", titles.get(identifier)
                ranking_list = judged_list(query_id, query, list(labels), titles, labels, counts)
                if ranking_list is not None:
                    yield identifier, ranking_list

    splits = {split: partial(lists, split) for split in ("train", "test")}
    return write_splits(out, "sodq", source, splits, dev_fraction, SENTENCES)


def _files(folder: Path, tag: str) -> dict[str, Path]:
    """The files of a tag by what they are."""
    places = [place for place in (folder / tag, folder / "topublish" / tag, folder) if place.is_dir()]
    for place in places:
        files = {name: place / f"{tag}_{name}.txt" for name in _FILES}
        if all(path.is_file() for path in files.values()):
            return files
    present = ", ".join(sorted(path.name for path in places[0].iterdir())[:12]) or "nothing"
    raise FileNotFoundError(
        f"{folder}: expected LinkSO's files for {tag!r} in {folder / tag}: "
        f"{', '.join(f'{tag}_{name}.txt' for name in _FILES)}; found in {places[0]}: {present}. "
        "LinkSO is published at https://sites.google.com/view/linkso"
    )


def _read(files: Mapping[str, Path], track: Track) -> _Tag:
    candidates = _candidates(files["cosidf"])
    train, test = _ids(files["train_qid"]), _ids(files["test_qid"])
    for identifier in train.keys() & test.keys():
        raise ValueError(
            f"{files['train_qid']}, line {train[identifier]}: question {identifier!r} is in {files['test_qid'].name} "
            f"as well, line {test[identifier]}"
        )
    wanted = {item for labels in candidates.values() for item in labels}.union(train, test)
    titles: dict[str, str] = {}
    path = files["qid2all"]
    for number, line in track(read_lines(path), path.name, None):
        identifier, tab, rest = line.partition("\t")
        if not tab:
            raise ValueError(
                f"{path}, line {number}: expected question id, title, body and answer between tabs; found no tab"
            )
        if identifier in wanted:
            if identifier in titles:
                raise ValueError(f"{path}, line {number}: question {identifier!r} occurs before")
            titles[identifier] = one_line(rest.partition("\t")[0])
    return _Tag(candidates, titles, {"train": list(train), "test": list(test)})


def _ids(path: Path) -> dict[str, int]:
    """Question ids with their lines."""
    ids: dict[str, int] = {}
    for number, line in read_lines(path):
        identifier = line.strip()
        if len(identifier.split()) != 1:
            raise ValueError(f"{path}, line {number}: expected one question id, found {line!r}")
        if identifier in ids:
            raise ValueError(
                f"{path}, line {number}: id {identifier!r} occurs before, on line {ids[identifier]}"
            )
        ids[identifier] = number
    if not ids:
        raise ValueError(f"{path}: the file has no question ids")
    return ids


def _candidates(path: Path) -> dict[str, dict[str, float]]:
    """Labels by question and candidate, the highest cosine first, equal ones as the lines stand.

    The header may have its columns in another order, in capitals or with blanks around them, or be missing.
    """
    order: Sequence[int] = range(len(_HEADER))
    candidates: dict[str, dict[str, tuple[float, float, int]]] = {}
    for number, line in read_lines(path):
        fields = [text.strip() for text in line.split("\t")]
        names = [name.lower() for name in fields]
        if not candidates and {*_HEADER} <= {*names}:
            order = [names.index(name) for name in _HEADER]
            continue
        if len(fields) <= max(order):
            raise ValueError(
                f"{path}, line {number}: expected {' '.join(_HEADER)}, found {len(fields)} fields"
            )
        query, item, *texts = (fields[i] for i in order)
        score, label = map(parse_number, texts)
        if score is None or label is None:
            raise ValueError(f"{path}, line {number}: expected numbers as score and label, got {texts}")
        of_query = candidates.setdefault(query, {})
        if item in of_query:
            raise ValueError(
                f"{path}, line {number}: question {query!r} has candidate {item!r} before, on line {of_query[item][2]}"
            )
        of_query[item] = (-score, label, number)
    if not candidates:
        raise ValueError(f"{path}: the file has no candidates")
    return {
        query: {item: of_query[item][1] for item in sorted(of_query, key=lambda item: of_query[item][0])}
        for query, of_query in candidates.items()
    }
