"""LinkSO's own files as ranking lists: Stack Overflow duplicate questions (SODQ) by their titles.

Liu, Wang, Leng and Zhai, "LinkSO: A Dataset for Learning to Retrieve Similar Question Answer Pairs on Software
Development Forums", NL4SE 2018. For each tag (java, javascript, python) a folder with

    TAG_qid2all.txt    question id, title, body, answer; tab-separated, no header
    TAG_cosidf.txt     header qid1 qid2 score label (or none); 30 candidates a question, by tf-idf cosine
    TAG_train_qid.txt, TAG_test_qid.txt    one question id a line

TAG_valid_qid.txt is not read: LinkSO's validation questions are its test questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from crossjem_pl.data.rows import parse_number
from crossjem_pl.data.shards import Manifest
from crossjem_pl.files import existing, read_lines
from crossjem_pl.lists import RankingList, shown
from crossjem_pl.prepare.output import fingerprint, judged_list, one_line, write_splits
from crossjem_pl.progress import track

__all__ = ["DEV_FRACTION", "TAGS", "prepare_linkso"]

DEV_FRACTION = 0.05
TAGS = ("java", "javascript", "python")
_COLUMNS = ("qid1", "qid2", "score", "label")
_FILES = ("qid2all", "cosidf", "train_qid", "test_qid")
SENTENCES = {
    "lists_without_positive": "lists without a duplicate among their candidates (kept)",
    "untitled_items": "candidates left out, they have no title or no line in qid2all",
    "untitled_queries": "questions left out, they have no title or no line in qid2all",
    "empty_lists": "questions of the split left out, they have no candidates with a title",
}


def prepare_linkso(
    folder: Path, out: Path, *, tags: Sequence[str] = TAGS, dev_fraction: float = DEV_FRACTION
) -> Iterator[Manifest]:
    """Writes `out/train.parquet/`, `dev.parquet/` and `test.parquet/`; yields an account of each.

    Query ids are `TAG-QID`, since a question may have two tags; item ids are question ids. Items stand in
    the order of LinkSO's cosine, labels are its links. The cosine itself is not kept: `scores` is the
    teacher's field.

    Args:
        folder: holds a folder for each tag.
        out: folder to fill.
        tags: the tags to take.
        dev_fraction: dev is this part of the training questions, by a hash of the id; 0 writes no dev.

    Raises:
        FileNotFoundError: names the file that was expected and those that are there.
        ValueError: names file and line of what is malformed; a question that is in a split twice, or in both.
    """
    existing(folder, "LinkSO folder")
    files = {tag: {name: folder / tag / f"{tag}_{name}.txt" for name in _FILES} for tag in tags}
    for path in (path for of_tag in files.values() for path in of_tag.values()):
        if not path.is_file():
            present = ", ".join(sorted(other.name for other in path.parent.glob("*")))
            raise FileNotFoundError(
                f"{path}: not found, only {present or 'nothing'}. LinkSO is published at "
                "https://sites.google.com/view/linkso"
            )
    source = {tag: [fingerprint(path) for path in of_tag.values()] for tag, of_tag in files.items()}
    content = cache(lambda tag: _read(files[tag]))

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


def _read(
    files: Mapping[str, Path],
) -> tuple[dict[str, dict[str, float]], dict[str, str], dict[str, list[str]]]:
    """Candidates and labels by question, best first; titles by question; ids of the splits."""
    candidates = _candidates(files["cosidf"])
    ids = {
        split: [line.strip() for _, line in read_lines(files[f"{split}_qid"])] for split in ("train", "test")
    }
    for identifier, count in Counter(ids["train"] + ids["test"]).items():
        if count > 1:
            names = f"{files['train_qid'].name} and {files['test_qid'].name}"
            raise ValueError(f"{files['train_qid'].parent}: question {shown(identifier)} is twice in {names}")
    wanted = {item for labels in candidates.values() for item in labels}.union(*ids.values())
    titles: dict[str, str] = {}
    path = files["qid2all"]
    for number, line in track(read_lines(path), path.name):
        identifier, *fields = line.split("\t")
        if not fields:
            raise ValueError(
                f"{path}, line {number}: expected question id, title, body and answer between tabs"
            )
        if identifier in wanted and titles.setdefault(identifier, one_line(fields[0])) != one_line(fields[0]):
            raise ValueError(f"{path}, line {number}: question {shown(identifier)} has another title before")
    return candidates, titles, ids


def _candidates(path: Path) -> dict[str, dict[str, float]]:
    """Labels by question and candidate, the highest cosine first, equal ones as the lines stand.

    A first line that names the columns, in any order and case and with others between them, is a header.
    """
    candidates: dict[str, dict[str, tuple[float, float]]] = {}
    places, width = [0, 1, 2, 3], 4
    for number, line in read_lines(path):
        fields = [text.strip() for text in line.split("\t")]
        names = [text.lower() for text in fields]
        if number == 1 and set(_COLUMNS) <= {*names}:
            places, width = [names.index(name) for name in _COLUMNS], len(fields)
            continue
        cells = [fields[place] for place in places] if len(fields) == width else []
        score, label = [parse_number(text) for text in cells[2:]] or [None, None]
        if score is None or label is None or not all(cells[:2]):
            raise ValueError(
                f"{path}, line {number}: expected {', '.join(_COLUMNS)} between tabs, got {shown(line)}"
            )
        of_query = candidates.setdefault(cells[0], {})
        if cells[1] in of_query:
            raise ValueError(
                f"{path}, line {number}: question {shown(cells[0])} has candidate {shown(cells[1])} before"
            )
        of_query[cells[1]] = (-score, label)
    return {
        query: {item: of_query[item][1] for item in sorted(of_query, key=lambda item: of_query[item][0])}
        for query, of_query in candidates.items()
    }
