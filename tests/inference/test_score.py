"""Scores of whole files of lists: each list exactly once, whatever stops the work and whoever shares it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow.fs import S3FileSystem

from crossjem_pl.cli import main
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.teacher import join_scores, read_provenance, read_scores
from crossjem_pl.files import as_path
from crossjem_pl.inference import Reranker
from crossjem_pl.inference import score as module
from crossjem_pl.inference.score import Job, Part, _Scoring, estimate, score
from crossjem_pl.inference.teach import teach
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoT5
from crossjem_pl.rankers.folder import save_ranker
from tests.conftest import example_lists, root

LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_item_tokens": 16}


@pytest.fixture(scope="module")
def model(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    save_ranker(CrossJEM(tiny_bert, max_union_tokens=128, **LIMITS), folder)
    return str(folder)


@pytest.fixture(scope="module")
def lists() -> list[RankingList]:
    return example_lists(23, seed=6)


@pytest.fixture(scope="module", params=["jsonl", "parquet", "shards"])
def source(
    request: pytest.FixtureRequest, lists: list[RankingList], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path: Path = tmp_path_factory.mktemp("lists") / f"lists.{request.param}"
    if request.param == "jsonl":
        write_lists(lists, path)
    elif request.param == "parquet":
        write_shards(lists, path.with_suffix(".folder"), 100, row_group=4)
        path = path.with_suffix(".folder") / "000000.parquet"
    else:
        write_shards(lists, path, 7, row_group=2)
    return path


def expected(model: str, lists: list[RankingList]) -> dict[tuple[str, str], float]:
    scores = Reranker(model, "cpu").score(lists)
    return {
        (one.query_id, item): value
        for one, row in zip(lists, scores, strict=True)
        for item, value in zip(one.item_ids, row.tolist(), strict=True)
    }


def stored(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def test_every_list_is_scored_once(
    model: str, source: Path, lists: list[RankingList], tmp_path: Path
) -> None:
    out = tmp_path / "scores"
    command = [
        "score",
        model,
        str(source),
        "--out",
        str(out),
        "--lists-per-part",
        "5",
        "--precision",
        "float32",
    ]
    assert main(command) == 0
    parts = sorted(out.glob("*.parquet"))
    assert len(parts) >= 4
    assert read_scores(out) == pytest.approx(expected(model, lists), abs=1e-5)
    joined = list(join_scores([replace(one, scores=None) for one in lists], out, exact=True))
    assert [one.query_id for one in joined] == [one.query_id for one in lists]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["complete"]
    assert sum(shard["lists"] for shard in manifest["shards"]) == len(lists)
    before = stored(out)
    assert main(command) == 0
    assert stored(out) == before, "nothing is done twice"


def test_what_another_call_did_is_not_done_again(model: str, source: Path, tmp_path: Path) -> None:
    """Whether the other one was interrupted, or goes on in another process."""
    whole, shared = (Job(model, source, tmp_path / name, 5) for name in ("whole", "shared"))
    assert len(list(score(whole))) == len(list(whole.out.glob("*.parquet")))
    first = score(shared)
    parts = [next(first)]
    assert not json.loads((shared.out / "manifest.json").read_text())["complete"]
    with pytest.raises(ValueError, match="not complete"):
        read_scores(shared.out)
    parts += list(score(shared))
    assert list(first) == []
    assert len({part.number for part in parts}) == len(parts)
    assert stored(shared.out) == stored(whole.out)


def test_a_job_that_is_killed_goes_on(model: str, lists: list[RankingList], tmp_path: Path) -> None:
    """SIGKILL in the middle of a part: no file is cut, none is left out."""
    source = tmp_path / "lists.jsonl"
    write_lists(lists, source)
    out, whole = tmp_path / "out", tmp_path / "whole"
    code = f"""
import os, signal
from pathlib import Path
from crossjem_pl.inference import score
from crossjem_pl.inference.score import Job
write = score.write_scores
def dying(rows, path, provenance):
    if path.name == "000002.parquet":
        path.with_name("." + path.name + ".1.aa.tmp").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    write(rows, path, provenance)
score.write_scores = dying
list(score.score(Job({model!r}, Path({str(source)!r}), Path({str(out)!r}), 5)))
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=root(), env={**os.environ}).returncode == -9
    list(score(Job(model, source, out, 5)))
    list(score(Job(model, source, whole, 5)))
    visible = {name: content for name, content in stored(out).items() if not name.startswith(".")}
    assert visible == stored(whole)


def test_scores_of_another_kind_are_refused(
    model: str, tiny_bert: str, lists: list[RankingList], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are joined with scores of the very same kind only, hub models included."""
    path = tmp_path / "lists.jsonl"
    write_lists(lists, path)
    torch.manual_seed(1)
    hub = {"some/teacher": model, "other/teacher": str(tmp_path / "other")}
    save_ranker(CrossJEM(tiny_bert, max_union_tokens=128, **LIMITS), hub["other/teacher"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.__getitem__)
    job = Job("some/teacher", path, tmp_path / "out", 5)
    next(iter(score(job)))
    for change, named in (
        ({"model": "other/teacher"}, "weights_sha256="),
        ({"precision": "bfloat16"}, "precision='float32'"),
        ({"lists_per_part": 6}, "lists_per_part=5"),
        ({"top_k": 2}, "top_k=None"),
        ({"probabilities": True}, "score_kind="),
    ):
        with pytest.raises(ValueError, match=f"made with {named}"):
            list(score(replace(job, **change)))
    assert list(score(replace(job, model=model))), "the same weights from a folder"
    write_lists(example_lists(5, seed=7), path)
    with pytest.raises(ValueError, match="made with lists_digest"):
        list(score(job))
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "mine.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"no manifest\.json"):
        list(score(replace(job, out=stranger)))


def test_the_best_of_each_list(model: str, source: Path, lists: list[RankingList], tmp_path: Path) -> None:
    list(score(Job(model, source, tmp_path / "best", 5, top_k=2)))
    found = list(read_scores(tmp_path / "best").items())
    reranker = Reranker(model, "cpu")
    for number, one in enumerate(lists):
        best = reranker.rank(one.query, one.items, top_k=2)
        rows = found[2 * number : 2 * number + 2]
        assert [pair for pair, _ in rows] == [(one.query_id, one.item_ids[item.index]) for item in best]
        assert [value for _, value in rows] == pytest.approx([item.score for item in best], abs=1e-5)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_bad_rows_are_an_error_or_named_and_left_out(
    kind: str, model: str, lists: list[RankingList], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = RankingList("mute", "red", ("a", "b"), ("shoes", "\u200b\u200d"))  # an item without tokens
    source = tmp_path / f"lists.{kind}"
    write_lists([*lists[:9], bad, *lists[9:]], source)
    problems = ["has no tokens"]
    if kind == "jsonl":
        source.write_text(
            source.read_text() + '{"query_id": "x", "query": "", "item_ids": [], "items": []}\n'
        )
        problems.append("line 25")
    out = tmp_path / "out"
    command = ["score", model, str(source), "--out", str(out), "--lists-per-part", "5"]
    assert main(command) == 2
    assert problems[-1] in capsys.readouterr().err
    command[4] = str(tmp_path / "skipping")
    assert main([*command, "--skip-bad"]) == 0
    assert f"{len(problems)} bad rows or lists were left out" in capsys.readouterr().out
    told = "".join(path.read_text() for path in sorted((tmp_path / "skipping").glob("bad-*.txt")))
    assert all(problem in told for problem in problems)
    assert read_scores(tmp_path / "skipping").keys() == expected(model, lists).keys()


def test_parts_without_a_good_list_are_written_and_measured(
    model: str, lists: list[RankingList], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "lists.jsonl", tmp_path / "out"
    bad = [RankingList(f"mute {i}", "red", ("a",), ("\u200b\u200d",)) for i in range(5)]
    write_lists([*bad, *lists[:5]], source)
    command = ["score", model, str(source), "--out", str(out), "--lists-per-part", "5", "--skip-bad"]
    assert main([*command, "--dry-run"]) == 0
    assert main(command) == 0
    assert "5 bad rows or lists" in capsys.readouterr().out
    assert read_scores(out).keys() == expected(model, lists[:5]).keys()
    write_lists(bad[:1], tmp_path / "bad.parquet")
    command[2] = str(tmp_path / "bad.parquet")
    assert main([*command, "--dry-run"]) == 0, "read, if not scored"


def test_the_best_are_chosen_by_scores_that_probabilities_cannot_tell_apart(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RankingList("q", "red", ("a", "b", "c"), ("shoes", "boots", "sofa"))
    write_lists([one], tmp_path / "one.jsonl")
    scores = torch.tensor([40.0, 60.0, 50.0])
    monkeypatch.setattr(Reranker, "score", lambda self, lists: [scores for _ in lists])
    list(score(Job(model, tmp_path / "one.jsonl", tmp_path / "out", top_k=2, probabilities=True)))
    assert list(read_scores(tmp_path / "out")) == [("q", "b"), ("q", "c")]
    with pytest.raises(ValueError, match="min_score must be a number, got nan"):
        Job(model, tmp_path / "one.jsonl", tmp_path / "out", min_score=np.nan)


def test_an_estimate_leaves_out_what_is_done_once(
    model: str, lists: list[RankingList], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing the weights is no part of writing lists."""
    write_lists(lists, tmp_path / "lists.jsonl")
    monkeypatch.setattr(module, "weights_sha256", lambda ranker: time.sleep(1.0) or "hash")
    assert estimate(Job(model, tmp_path / "lists.jsonl", tmp_path / "out")).writing < 1.0


def test_scores_below_a_limit_are_left_out(
    model: str, source: Path, lists: list[RankingList], tmp_path: Path
) -> None:
    """Parts from which nothing is kept are there, and count their lists."""
    values = expected(model, lists)
    for lowest in (float(np.median([*values.values()])), sorted(values.values())[-1]):
        out = tmp_path / str(lowest)
        assert sum(part.lists for part in score(Job(model, source, out, 5, min_score=lowest))) == len(lists)
        assert read_scores(out) == pytest.approx({k: v for k, v in values.items() if v >= lowest}, abs=1e-5)
        assert sum(
            shard["lists"] for shard in json.loads((out / "manifest.json").read_text())["shards"]
        ) == len(lists)
    assert not list(score(Job(model, source, out, 5, min_score=lowest))), "all parts are there"


def test_lists_and_scores_behind_a_url(
    model: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same files as here, and the same resumption."""
    url = f"file://{tmp_path}/there"
    assert len(list(score(Job(model, source, tmp_path / "here", 5)))) > 3
    job = Job(model, as_path(f"file://{source}"), as_path(url), 5)
    done = next(iter(score(job)))
    command = ["score", model, f"file://{source}", "--out", url, "--lists-per-part", "5"]
    assert main(command) == 0
    assert f"wrote {url}" in capsys.readouterr().out
    assert done.bytes == (tmp_path / "there" / f"{done.number:06d}.parquet").stat().st_size
    here, there = stored(tmp_path / "here"), stored(tmp_path / "there")
    assert {name: here[name] for name in here if name.endswith(".parquet")} == {
        name: there[name] for name in there if name.endswith(".parquet")
    }
    assert here.keys() == there.keys()
    assert read_scores(as_path(url)) == read_scores(tmp_path / "here")
    with pytest.raises(FileNotFoundError, match=r"file:///.*/none"):
        list(score(replace(job, lists=as_path(f"{url}/none"))))
    with pytest.raises(ValueError, match=r"nowhere://bucket: cannot be opened"):
        list(score(replace(job, lists=as_path("nowhere://bucket/lists"))))


def test_lists_and_scores_in_an_object_store(
    model: str, lists: list[RankingList], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a real S3 server, where moto[server] is installed: read, stopped, resumed, refused, read again."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION"):
        monkeypatch.setenv(f"AWS_{name}", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    try:
        S3FileSystem(endpoint_override=address, allow_bucket_creation=True).create_dir("of-tests")
        write_shards(lists, tmp_path / "lists", 7, row_group=2)
        write_shards(lists, as_path("s3://of-tests/lists"), 7, row_group=2)
        here = Job(model, tmp_path / "lists", tmp_path / "here", 5)
        there = replace(here, lists=as_path("s3://of-tests/lists"), out=as_path("s3://of-tests/deep/out"))
        list(score(here))
        first = next(iter(score(there)))
        assert first.number not in {part.number for part in score(there)}
        names = sorted(path.name for path in there.out.iterdir())
        assert names == sorted(stored(here.out)), "no temporary object is left"
        for name in names:
            assert (there.out / name).open("rb").read() == stored(here.out)[name]
        with pytest.raises(ValueError, match=r"s3://of-tests/deep/out: .* made with top_k=None"):
            list(score(replace(there, top_k=2)))
        assert read_scores(there.out) == read_scores(here.out)
        write_lists(lists, as_path("s3://of-tests/lists.jsonl.gz"))
        assert [one.query_id for one in read_lists("s3://of-tests/lists.jsonl.gz")] == [
            one.query_id for one in lists
        ]
    finally:
        server.stop()


def test_progress_says_rates_and_what_is_left(
    model: str,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crossjem_pl.cli.score._SECONDS", -1.0)
    assert main(["score", model, str(source), "--out", str(tmp_path / "out"), "--lists-per-part", "5"]) == 0
    told = capsys.readouterr()
    parts = len(list((tmp_path / "out").glob("*.parquet")))
    lines = [line for line in told.err.splitlines() if " left (" in line]
    assert [line.partition(" left (")[2] for line in lines] == [
        f"{n} of {parts} parts)" for n in range(1, parts + 1)
    ]
    assert all(unit in lines[-1] for unit in ("23 lists", "lists/s", "pairs/s", "MB", "0:00:00 left"))
    assert "at the 95th percentile" in told.out


def test_a_dry_run_writes_nothing(
    model: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["score", model, str(source), "--out", str(tmp_path / "out"), "--price", "1e9"]
    assert main([*command, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "23 lists: 0.00 hours in one process, at " in told
    assert re.search(
        r", cost [\d,]+\.\d\d\nmeasured on 21 lists: reading \d+%, scoring \d+%, writing \d+%", told
    )
    assert not (tmp_path / "out").exists()
    assert main(command) == 2
    assert "--price is for --dry-run" in capsys.readouterr().err


def test_ray_scores_bit_for_bit_the_same(
    model: str, lists: list[RankingList], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor that is killed in the middle of its work costs nothing but time."""
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root()), *sys.path]))
    many = [one for seed in range(10) for one in example_lists(200, seed=seed)]
    write_shards(many, tmp_path / "lists", 200, row_group=10)
    here, there = (Job(model, tmp_path / "lists", tmp_path / name, 10) for name in ("here", "there"))
    assert len(list(score(here))) == 200
    victims: list[int] = []
    for part in score(there, on="ray", workers=2):
        actors = (int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _is_actor(path))
        if not victims and part.lists and (victim := next(actors, None)) is not None:
            os.kill(victim, signal.SIGKILL)
            victims.append(victim)
    assert victims
    assert stored(there.out) == stored(here.out)
    write_lists(lists, tmp_path / "lists.jsonl")
    with pytest.raises(ValueError, match=r"crossjem convert .* --shard-size"):
        list(score(replace(here, lists=tmp_path / "lists.jsonl", out=tmp_path / "other"), on="ray"))


def _is_actor(path: Path) -> bool:
    """Whether a process of this test run is a worker that scores."""
    try:
        return path.read_bytes().startswith(b"ray::MapWorker(MapBatches(Worker)")
    except OSError:
        return False


# --- teach -------------------------------------------------------------------------------------------------


def test_teach_writes_one_file_of_probabilities(
    model: str, source: Path, lists: list[RankingList], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scores.parquet"
    command = ["teach", model, str(source), "--out", str(out), "--lists-per-part", "5"]
    assert main(command) == 0
    found = read_scores(out)
    wanted = {pair: torch.tensor(value).sigmoid().item() for pair, value in expected(model, lists).items()}
    assert found == pytest.approx(wanted, abs=1e-5)
    assert read_provenance(out)["score_kind"] == "probability"
    assert [path.name for path in tmp_path.iterdir()] == [out.name], "the parts are gone"
    assert main(command) == 0, "there already"
    other = tmp_path / "other.jsonl"
    write_lists(lists[:3], other)
    assert main(["teach", model, str(other), "--out", str(out)]) == 2
    assert read_scores(out) == found
    pq.write_table(pq.read_table(out).slice(0, 0), out)
    assert main(command) == 2
    assert "has no scores; remove it" in capsys.readouterr().err


def test_what_another_process_joined_is_not_taught_again(
    model: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "scores.parquet"
    first = teach(model, source, out, 5)
    next(first)
    assert len(list(teach(model, source, out, 5))) > 1
    written = out.read_bytes()
    assert not list(first)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]

    scored, parts = module.score, tmp_path / "scores.parquet.parts"

    def joined_meanwhile(job: Job) -> Iterator[Part]:
        yield from scored(job)
        out.write_bytes(written)
        shutil.rmtree(parts)

    def partly_gone(job: Job) -> Iterator[Part]:
        yield from scored(job)
        next(parts.glob("*.parquet")).unlink()

    out.unlink()
    monkeypatch.setattr("crossjem_pl.inference.teach.score", joined_meanwhile)
    list(teach(model, source, out, 5))
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    out.unlink()
    monkeypatch.setattr("crossjem_pl.inference.teach.score", partly_gone)
    with pytest.raises(ValueError, match=r"is missing, but manifest\.json lists it"):
        list(teach(model, source, out, 5))
    assert not out.exists()


def test_teach_takes_log_probabilities_for_what_they_are(tiny_models_folder: Path, tmp_path: Path) -> None:
    """monoT5's score is log P(true): its exponential is the probability, a sigmoid would squeeze it into (0, 1/2)."""
    torch.manual_seed(0)
    teacher = MonoT5(str(tiny_models_folder / "t5"), max_query_tokens=8, max_item_tokens=8)
    save_ranker(teacher, tmp_path / "teacher")
    some = example_lists(3, seed=6)
    write_lists(some, tmp_path / "lists.jsonl")
    list(teach(tmp_path / "teacher", tmp_path / "lists.jsonl", tmp_path / "s.parquet"))
    found = read_scores(tmp_path / "s.parquet")
    for one, scores in zip(some, Reranker(teacher, "cpu").score(some), strict=True):
        assert [found[one.query_id, i] for i in one.item_ids] == pytest.approx(
            scores.exp().tolist(), rel=1e-5
        )


def test_lists_are_read_again_where_a_part_needs_them(
    model: str, lists: list[RankingList], tmp_path: Path
) -> None:
    write_lists(lists, tmp_path / "lists.jsonl")
    scoring = _Scoring(Job(model, tmp_path / "lists.jsonl", tmp_path / "out", 5))
    found = [scoring.lists(scoring.source.read(number))[0] for number in (1, 0)]
    assert list(read_lists(tmp_path / "lists.jsonl"))[5].query_id == found[0][0].query_id
    assert [one.query_id for one in found[1]] == [one.query_id for one in lists[:5]]
