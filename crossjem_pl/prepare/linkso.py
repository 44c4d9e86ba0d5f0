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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from crossjem_pl.data.rows import parse_number
from crossjem_pl.files import existing, read_lines
from crossjem_pl.hashing import fraction
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.output import Track, Written, fingerprint, finished, one_line, untracked, write_part

__all__ = ["DEV_FRACTION", "TAGS", "prepare_linkso"]

DEV_FRACTION = 0.05
TAGS = ("java", "javascript", "python")
_FILES = ("qid2all", "cosidf", "train_qid", "test_qid")
_HEADER = ("qid1", "qid2", "score", "label")
SENTENCES = {
    "lists_without_positive": "lists without a duplicate among their candidates (kept)",
    "untitled_items": "candidates left out, they have no title or no line in qid2all",
    "untitled_queries": "questions left out, they have no title or no line in qid2all",
    "without_candidates": "questions of the split left out, they have no candidates with a title",
}


class _Candidate(NamedTuple):
    item: str
    score: float
    label: float


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
    if not 0 <= dev_fraction < 1:
        raise ValueError(f"dev_fraction must be in [0, 1), got {dev_fraction:g}")
    existing(folder, "LinkSO folder")
    files = {tag: _files(folder, tag) for tag in tags}
    source = {tag: [fingerprint(path) for path in of_tag.values()] for tag, of_tag in files.items()}
    made_of = {"command": "sodq", "source": source, "dev_fraction": dev_fraction}
    lists: dict[str, list[RankingList]] = {split: [] for split in ("train", "dev", "test")}
    counts: dict[str, Counter[str]] = {split: Counter() for split in lists}
    for tag, of_tag in files.items():
        candidates = _candidates(of_tag["cosidf"])
        splits = _splits(of_tag["train_qid"], of_tag["test_qid"], dev_fraction)
        wanted = {candidate.item for group in candidates.values() for candidate in group}.union(
            *splits.values()
        )
        titles = _titles(track(read_lines(of_tag["qid2all"]), tag, None), of_tag["qid2all"], wanted)
        for split, ids in splits.items():
            made = (_list(tag, i, candidates.get(i, ()), titles, counts[split]) for i in ids)
            lists[split] += [ranking_list for ranking_list in made if ranking_list is not None]
    for split, of_split in lists.items():
        if split != "dev" or dev_fraction:
            before = finished(out, split, made_of, SENTENCES)
            yield before or write_part(out, split, made_of, of_split, counts[split], SENTENCES)


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


def _splits(train: Path, test: Path, dev_fraction: float) -> dict[str, list[str]]:
    """Question ids of each split, in the order of the file."""
    of_train, of_test = _ids(train), _ids(test)
    for identifier in of_train.keys() & of_test.keys():
        raise ValueError(
            f"{train}, line {of_train[identifier]}: question {identifier!r} is in {test.name} as well, line "
            f"{of_test[identifier]}"
        )
    dev = {identifier for identifier in of_train if fraction(identifier, "dev") < dev_fraction}
    return {
        "train": [i for i in of_train if i not in dev],
        "dev": [i for i in of_train if i in dev],
        "test": list(of_test),
    }


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


def _candidates(path: Path) -> dict[str, list[_Candidate]]:
    """Candidates by question, the highest cosine first, equal ones as the lines stand.

    The header may have its columns in another order, in capitals or with blanks around them, or be missing.
    """
    order: Sequence[int] = range(len(_HEADER))
    candidates: dict[str, list[_Candidate]] = {}
    lines: dict[tuple[str, str], int] = {}
    for number, line in read_lines(path):
        fields = [text.strip() for text in line.split("\t")]
        names = [name.lower() for name in fields]
        if not lines and {*_HEADER} <= {*names}:
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
        before = lines.setdefault((query, item), number)
        if before != number:
            raise ValueError(
                f"{path}, line {number}: question {query!r} has candidate {item!r} before, on line {before}"
            )
        candidates.setdefault(query, []).append(_Candidate(item, score, label))
    if not candidates:
        raise ValueError(f"{path}: the file has no candidates")
    for group in candidates.values():
        group.sort(key=lambda candidate: -candidate.score)
    return candidates


def _titles(lines: Iterable[tuple[int, str]], path: Path, wanted: Collection[str]) -> dict[str, str]:
    """One-line titles of the wanted questions, blank ones too."""
    titles: dict[str, str] = {}
    for number, line in lines:
        identifier, tab, rest = line.partition("\t")
        if not tab:
            raise ValueError(
                f"{path}, line {number}: expected question id, title, body and answer between tabs; found no tab"
            )
        if identifier in wanted:
            if identifier in titles:
                raise ValueError(f"{path}, line {number}: question {identifier!r} occurs before")
            titles[identifier] = one_line(rest.partition("\t")[0])
    return titles


def _list(
    tag: str,
    identifier: str,
    candidates: Sequence[_Candidate],
    titles: Mapping[str, str],
    counts: Counter[str],
) -> RankingList | None:
    if not titles.get(identifier):
        counts["untitled_queries"] += 1
        return None
    kept = [candidate for candidate in candidates if titles.get(candidate.item)]
    counts["untitled_items"] += len(candidates) - len(kept)
    if not kept:
        counts["without_candidates"] += 1
        return None
    ids, _, labels = zip(*kept, strict=True)
    return RankingList(
        f"{tag}-{identifier}", titles[identifier], ids, tuple(titles[item] for item in ids), labels
    )
