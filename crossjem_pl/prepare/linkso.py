"""LinkSO's own files as ranking lists: Stack Overflow duplicate questions (SODQ) by their titles.

Liu, Wang, Leng and Zhai, "LinkSO: A Dataset for Learning to Retrieve Similar Question Answer Pairs on Software
Development Forums", NL4SE 2018. For each tag (java, javascript, python) a folder with

    TAG_qid2all.txt    question id, title, body, answer; tab-separated, no header
    TAG_cosidf.txt     header qid1 qid2 score label; 30 candidates a question, by tf-idf cosine
    TAG_train_qid.txt, TAG_valid_qid.txt, TAG_test_qid.txt    one question id a line
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossjem_pl.data.formats import write_lists
from crossjem_pl.files import existing, read_lines
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.hashing import fraction, one_line
from crossjem_pl.prepare.manifest import Manifest, fingerprint
from crossjem_pl.prepare.report import Written, count_list
from crossjem_pl.prepare.tracking import Track, untracked

__all__ = ["TAGS", "prepare_linkso"]

TAGS = ("java", "javascript", "python")
_SPLITS = {"train": ("train",), "dev": ("valid", "dev"), "test": ("test",)}
_HEADER = ("qid1", "qid2", "score", "label")
SENTENCES = {
    "lists_without_positive": "lists without a duplicate among their candidates (kept)",
    "untitled_items": "candidates left out, they have no title or no line in qid2all",
    "untitled_queries": "questions left out, they have no title or no line in qid2all",
    "without_candidates": "questions of the split left out, they have no candidates with a title",
    "also_in_test": "lists are test lists too (LinkSO publishes one file for both): choose dev_fraction to select "
    "models on other questions",
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    item: str
    score: float
    label: float


def prepare_linkso(
    folder: Path,
    out: Path,
    *,
    tags: Sequence[str] = TAGS,
    dev_fraction: float | None = None,
    track: Track = untracked,
) -> Iterator[Written]:
    """Writes `out/train.parquet`, `out/dev.parquet` and `out/test.parquet`; yields an account of each.

    Query ids are `TAG-QID`, since a question may have two tags; item ids are question ids. Items stand in
    the order of LinkSO's cosine, labels are its links. The cosine itself is not kept: `scores` is the
    teacher's field.

    Args:
        folder: holds a folder for each tag (or their files).
        out: folder to fill.
        tags: the tags to take.
        dev_fraction: take dev out of the training questions, by a hash of the id, in place of LinkSO's own
            validation questions. None: LinkSO's own, which are its test questions as well.
        track: shows progress.

    Raises:
        FileNotFoundError: names the files that were expected and those that are there.
        ValueError: names file and line of what is malformed; a training question that is a dev or test
            question as well.
    """
    if not tags or len(set(tags)) != len(tags):
        raise ValueError(f"tags must be distinct and at least one, got {list(tags)}")
    if dev_fraction is not None and not 0 < dev_fraction < 1:
        raise ValueError(f"dev_fraction must be between 0 and 1, got {dev_fraction:g}")
    existing(folder, "LinkSO folder")
    files = {tag: _files(folder, tag) for tag in tags}
    manifest = Manifest(out, "sodq")
    return _prepare(files, out, manifest, dev_fraction, track)


def _files(folder: Path, tag: str) -> dict[str, Path]:
    """The files of a tag by what they are: "qid2all", "cosidf" and the splits."""
    expected: dict[str, tuple[str, ...]] = {}
    expected |= {name: (f"{tag}_{name}.txt",) for name in ("qid2all", "cosidf")}
    expected |= {split: tuple(f"{tag}_{n}_qid.txt" for n in names) for split, names in _SPLITS.items()}
    places = (folder / tag, folder / "topublish" / tag, folder)
    for place in places:
        found = {
            what: next((place / name for name in names if (place / name).is_file()), None)
            for what, names in expected.items()
        }
        if all(found.values()):
            return {what: path for what, path in found.items() if path is not None}
    place = next((place for place in places if place.is_dir()), folder)
    wanted = ", ".join(" or ".join(names) for names in expected.values())
    there = ", ".join(sorted(path.name for path in place.iterdir())[:12]) or "nothing"
    raise FileNotFoundError(
        f"{folder}: expected LinkSO's files for {tag!r} in {folder / tag}: {wanted}; found in {place}: {there}. "
        "LinkSO is published at https://sites.google.com/view/linkso"
    )


def _prepare(
    files: Mapping[str, Mapping[str, Path]],
    out: Path,
    manifest: Manifest,
    dev_fraction: float | None,
    track: Track,
) -> Iterator[Written]:
    lists: dict[str, list[RankingList]] = {split: [] for split in _SPLITS}
    counts: dict[str, Counter[str]] = {split: Counter() for split in _SPLITS}
    for tag, of_tag in files.items():
        candidates = _candidates(of_tag["cosidf"])
        splits = _split_ids(of_tag, dev_fraction)
        wanted = {one.item for group in candidates.values() for one in group}.union(*splits.values())
        titles = _titles(track(read_lines(of_tag["qid2all"]), tag, None), of_tag["qid2all"], wanted)
        for split, ids in splits.items():
            for identifier in ids:
                one = _list(tag, identifier, candidates.get(identifier, ()), titles, counts[split])
                if one is not None:
                    lists[split].append(one)
                    counts[split]["also_in_test"] += split == "dev" and identifier in splits["test"]
    source = {tag: [fingerprint(path) for path in of_tag.values()] for tag, of_tag in files.items()}
    for split, made in lists.items():
        entry = manifest.part(split, {"source": source, "dev_fraction": dev_fraction})
        path = out / f"{split}.parquet"
        for one in made:
            count_list(one, counts[split])
        write_lists(made, path)
        entry.update(complete=True, counts=dict(counts[split]))
        manifest.save()
        yield Written(path, counts[split], SENTENCES)


def _split_ids(files: Mapping[str, Path], dev_fraction: float | None) -> dict[str, dict[str, int]]:
    """Question ids of each split with their lines, in the order of the file."""
    splits: dict[str, dict[str, int]] = {}
    for split in _SPLITS:
        ids: dict[str, int] = {}
        for number, line in read_lines(files[split]):
            identifier = line.strip()
            if len(identifier.split()) != 1:
                raise ValueError(f"{files[split]}, line {number}: expected one question id, found {line!r}")
            if identifier in ids:
                raise ValueError(
                    f"{files[split]}, line {number}: id {identifier!r} occurs before, on line {ids[identifier]}"
                )
            ids[identifier] = number
        if not ids:
            raise ValueError(f"{files[split]}: the file has no question ids")
        splits[split] = ids
    for split in ("dev", "test"):
        shared = splits["train"].keys() & splits[split].keys()
        if shared:
            identifier = min(shared, key=splits["train"].__getitem__)
            raise ValueError(
                f"{files['train']}, line {splits['train'][identifier]}: question {identifier!r} is in "
                f"{files[split].name} as well, line {splits[split][identifier]}"
            )
    if dev_fraction is not None:
        chosen = {i: n for i, n in splits["train"].items() if fraction(i, "dev") < dev_fraction}
        splits["dev"] = chosen
        splits["train"] = {i: n for i, n in splits["train"].items() if i not in chosen}
    return splits


def _candidates(path: Path) -> dict[str, list[_Candidate]]:
    """Candidates by question, the highest cosine first, equal ones as the lines stand."""
    lines = read_lines(path)
    number, header = next(lines, (1, ""))
    if tuple(header.split("\t")) != _HEADER:
        raise ValueError(
            f"{path}, line {number}: expected the header {' '.join(_HEADER)} (parted by tabs), found {header!r}"
        )
    found: dict[str, list[_Candidate]] = {}
    places: dict[tuple[str, str], int] = {}
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(_HEADER):
            raise ValueError(
                f"{path}, line {number}: expected {len(_HEADER)} fields ({' '.join(_HEADER)}), "
                f"found {len(fields)}"
            )
        query, item = fields[0].strip(), fields[1].strip()
        before = places.setdefault((query, item), number)
        if before != number:
            raise ValueError(
                f"{path}, line {number}: question {query!r} has candidate {item!r} before, on line {before}"
            )
        try:
            score, label = float(fields[2]), float(fields[3])
        except ValueError:
            raise ValueError(
                f"{path}, line {number}: expected numbers as score and label, got {fields[2:]}"
            ) from None
        found.setdefault(query, []).append(_Candidate(item, score, label))
    if not found:
        raise ValueError(f"{path}: the file has no candidates")
    for group in found.values():
        group.sort(key=lambda one: -one.score)
    return found


def _titles(lines: Iterable[tuple[int, str]], path: Path, wanted: Collection[str]) -> dict[str, str]:
    """One-line titles of the wanted questions, blank ones too."""
    titles: dict[str, str] = {}
    for number, line in lines:
        identifier, tab, rest = line.partition("\t")
        if not tab:
            raise ValueError(
                f"{path}, line {number}: expected question id, title, body and answer, parted by tabs; found "
                "no tab"
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
    kept = [one for one in candidates if titles.get(one.item)]
    counts["untitled_items"] += len(candidates) - len(kept)
    if not kept:
        counts["without_candidates"] += 1
        return None
    return RankingList(
        f"{tag}-{identifier}",
        titles[identifier],
        tuple(one.item for one in kept),
        tuple(titles[one.item] for one in kept),
        tuple(one.label for one in kept),
    )
