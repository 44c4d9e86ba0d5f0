"""First-stage candidates of one query after the other, from run files of any size, in flat memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crossjem_pl.data.formats import ranked
from crossjem_pl.files import ending, existing, read_lines

__all__ = ["Candidates", "Grouping", "read_candidates", "run_files"]

RUN_ENDINGS = tuple(name + packed for name in (".txt", ".tsv", ".run", ".trec") for packed in ("", ".gz"))
LAYOUTS = (
    "a TREC run, six fields (query_id Q0 item_id rank score tag); three fields (query_id item_id rank); or the "
    "tab-separated text rows of HDCT's dev.d100.tsv (query_id, query, item_id, url, title, body, label)"
)
Entry = tuple[str, str, float]
Parse = Callable[[str], Entry | None]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one query.

    Args:
        query_id: the query.
        item_ids: ids of the candidates, best first, each once.
    """

    query_id: str
    item_ids: tuple[str, ...]


class Grouping:
    """Collects (query, item, number) entries and gives the candidates of a query when the next one starts.

    Args:
        unit: what the entries of a source are called: "line", "record".
        order: item ids by number, best first.
    """

    def __init__(self, unit: str, order: Callable[[dict[str, float]], list[str]]) -> None:
        self.order = order
        self._unit = unit
        self._seen: dict[str, tuple[str, int]] = {}
        self._query: str | None = None
        self._values: dict[str, float] = {}

    def add(self, query_id: str, item_id: str, value: float, source: str, number: int) -> Candidates | None:
        """Takes entry `number` of `source`; returns the query before, if this entry ends it.

        Raises:
            ValueError: the query had ended before, or has the item already; names both places.
        """
        done = None
        if query_id != self._query:
            done = self.end()
            if query_id in self._seen:
                raise ValueError(
                    f"{self._at(source, number)}: query {query_id!r} stands at "
                    f"{self._at(*self._seen[query_id])} already, with other "
                    "queries between; the entries of one query must stand together: sort them, for example "
                    "`sort -s -k1,1 RUN > SORTED`"
                )
            self._seen[query_id] = (source, number)
            self._query = query_id
        if item_id in self._values:
            raise ValueError(
                f"{self._at(source, number)}: query {query_id!r} has item {item_id!r} before; its candidates "
                f"start at {self._at(*self._seen[query_id])}"
            )
        self._values[item_id] = value
        return done

    def end(self) -> Candidates | None:
        """The query that was not given yet."""
        if self._query is None or not self._values:
            return None
        done = Candidates(self._query, tuple(self.order(self._values)))
        self._values = {}
        return done

    def _at(self, source: str, number: int) -> str:
        return f"{source}, {self._unit} {number}"


def run_files(path: Path) -> list[Path]:
    """The run file itself, or the run files of a folder in sorted order (HDCT comes as 000.txt, 001.txt, ...).

    Raises:
        FileNotFoundError: there is nothing.
        ValueError: a folder without run files, or with files of other endings between them.
    """
    existing(path, "run")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] != ".")
    foreign = [file.name for file in files if ending(file) not in RUN_ENDINGS]
    if not files or foreign:
        found = ", ".join(foreign[:3]) or "no files (folders inside are not searched)"
        raise ValueError(
            f"{path}: expected a folder of run files ({', '.join(RUN_ENDINGS)}) alone, found {found}"
        )
    return files


def read_candidates(path: Path) -> Iterator[Candidates]:
    """Streams the candidates of a run file, plain or gzip, or of a folder of run files.

    The layout of each file is told by its first line; see `LAYOUTS`. Order: TREC runs by score, ties by item
    id descending (`ranked`); three fields by rank, equal ranks as the lines stand; text rows as the lines stand.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file and line, for a malformed line, an item that a query has twice, lines of one
            query that do not stand together, damaged gzip data, or an empty file.
    """
    grouping = Grouping("line", ranked)
    for file in run_files(path):
        parse: Parse | None = None
        name = str(file)
        for number, line in read_lines(file):
            if parse is None:
                done = grouping.end()
                if done is not None:
                    yield done
                parse, grouping.order = _layout(name, number, line)
            entry = parse(line)
            if entry is None:
                raise ValueError(
                    f"{name}, line {number}: malformed, or of another layout than the first line"
                )
            done = grouping.add(*entry, name, number)
            if done is not None:
                yield done
        if parse is None:
            raise ValueError(f"{file}: the run is empty")
    done = grouping.end()
    if done is not None:
        yield done


def _layout(name: str, number: int, line: str) -> tuple[Parse, Callable[[dict[str, float]], list[str]]]:
    for parse, order in ((_by_score, ranked), (_by_rank, _ascending), (_text_row, list)):
        if parse(line) is not None:
            return parse, order
    raise ValueError(f"{name}, line {number}: not a line of a run; understood: {LAYOUTS}")


def _ascending(values: dict[str, float]) -> list[str]:
    return sorted(values, key=values.__getitem__)


def _by_score(line: str) -> Entry | None:
    fields = line.split()
    if len(fields) != 6:
        return None
    try:
        score = float(fields[4])
    except ValueError:
        return None
    return (fields[0], fields[2], score) if math.isfinite(score) else None


def _by_rank(line: str) -> Entry | None:
    fields = line.split()
    if len(fields) != 3 or not fields[2].isdecimal():
        return None
    return fields[0], fields[1], float(fields[2])


def _text_row(line: str) -> Entry | None:
    fields = line.split("\t")
    if len(fields) not in (6, 7) or not fields[0].strip() or not fields[2].strip():
        return None
    return fields[0].strip(), fields[2].strip(), 0.0
