"""The model card: README.md of a model folder, from the ranker and from the run that trained it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import crossjem_pl
from crossjem_pl.files import read_yaml
from crossjem_pl.hashing import weights_sha256
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import PACKAGED, read_json

__all__ = ["median_latencies", "model_card"]

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LIMITS = {
    "max_query_tokens": "tokens of a query; longer ones are cut",
    "max_item_tokens": "tokens of an item; longer ones are cut",
    "max_items_per_pass": "items in one pass; longer lists take several",
    "max_union_tokens": "distinct item tokens in one pass; more take several",
}


class Measured(NamedTuple):
    """One metric on one split.

    Args:
        split: "val" or "test".
        name: of the metric, as ir-measures writes it.
        mean, low, high: its mean over queries and the 95% bootstrap interval of the mean.
        queries: how many lists were judged.
    """

    split: str
    name: str
    mean: float
    low: float
    high: float
    queries: int


def model_card(
    ranker: Ranker,
    folder: Path,
    run: Path | None = None,
    *,
    license: str | None = None,
    latencies: Mapping[int, float] | None = None,
    repository: str | None = None,
) -> str:
    """The card in Markdown, with the metadata that the Hugging Face hub reads. What is not known is left out.

    Args:
        ranker: the model.
        folder: the model folder that was written from it.
        run: the run folder that trained it, with `summary.json`, `config.yaml` and the metrics of its splits. It is
            not used if its model has other weights.
        license: of the weights, by its name on the hub ("apache-2.0").
        latencies: median milliseconds by number of items, see `median_latencies`.
        repository: what the examples load; None for the name of `folder`.

    Raises:
        ValueError: naming the file, for a malformed one of the run folder.
    """
    import jinja2
    import yaml

    written = read_json(folder / "config.json")
    if run is not None and _digest(read_json(run / "model" / "config.json")) != _digest(written):
        run = None
    summary = {} if run is None else read_json(run / "summary.json")
    config: dict[str, Any] = {}
    if run is not None and (run / "config.yaml").is_file():
        config = read_yaml(run / "config.yaml")
    base = ranker.init_args.get("encoder", "")
    base = "sentence-transformers/all-MiniLM-L6-v2" if base == PACKAGED else base
    base = base if _HUB_ID.fullmatch(base) and not Path(base).exists() else None
    metadata = {
        "library_name": "crossjem_pl",
        "pipeline_tag": "text-ranking",
        "tags": ["reranking", ranker.name],
        "license": license,
        "base_model": base,
    }
    machine = None
    if latencies:
        from crossjem_pl.training.run_folder import describe_machine

        machine = describe_machine()
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = environment.from_string(Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8"))
    return template.render(
        metadata=yaml.safe_dump({k: v for k, v in metadata.items() if v}, sort_keys=False).strip(),
        ranker=ranker,
        reads=_reader(folder, written),
        what=" ".join((type(ranker).__doc__ or "").split("\n\n")[0].split()),
        parameters=sum(p.numel() for p in ranker.parameters()),
        base=base,
        repository=repository or folder.resolve().name,
        training=list(_training(summary, config)),
        measured=[] if run is None else list(_measured(run, ranker)),
        latencies=latencies or {},
        machine=machine,
        limits={_LIMITS[name]: value for name, value in ranker.init_args.items() if name in _LIMITS},
        versions={
            "crossjem_pl": crossjem_pl.__version__,
            **{name: version(name) for name in ("torch", "transformers", "lightning")},
        },
    )


def median_latencies(
    score: Callable[[Sequence[Any]], Any], sizes: Sequence[int] = (10, 100, 700)
) -> dict[int, float]:
    """Median milliseconds from texts to scores of one simulated list, by its number of items."""
    from crossjem_pl.data.simulator import simulate
    from crossjem_pl.inference.timing import take_turns

    return {size: take_turns({"": score}, [[one] for one in simulate(6, size)])[""].median for size in sizes}


def _digest(config: Mapping[str, Any]) -> object:
    """The checksum of the weights that a model folder's config.json holds."""
    return config.get("crossjem_pl", {}).get("files", {}).get("model.safetensors")


def _reader(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The class of sentence-transformers that reads the folder; None if there is none."""
    if (folder / "modules.json").exists():
        return "SentenceTransformer"
    return "CrossEncoder" if "sentence_transformers" in config else None


def _training(summary: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the run folder says of the training, as rows of a table."""
    from crossjem_pl.evaluation.page import training_time

    data, model = config.get("data") or {}, config.get("model") or {}
    lists = summary.get("training_data") or {}
    if data.get("train"):
        yield "training lists from", f"`{_described(data['train'])}`"
    for name, text in _STATISTICS.items():
        if name in lists:
            yield text, f"{lists[name]:,}"
    if data.get("teacher_scores"):
        yield "teacher's scores", f"`{Path(data['teacher_scores']).name}`"
    if loss := model.get("loss"):
        yield "loss", f"`{_described(loss)}` on {model.get('targets')}"
    for name in ("lr", "head_lr", "weight_decay", "warmup"):
        if model.get(name) is not None:
            yield name, f"{model[name]:g}"
    for part in ("optimizer", "lr_scheduler"):
        if model.get(part):
            yield part, f"`{_described(model[part])}`"
    if data:
        processes = summary.get("processes", 1)
        each = f" in each of {processes} processes" if processes > 1 else ""
        yield "lists a step", f"{data.get('batch_size')}{each}"
        yield "items drawn of a list", str(data.get("n_items") or "all that fit a pass")
    for name, text in (("trained_lists", "lists trained on, repeats counted"), ("epochs", "epochs")):
        if name in summary:
            yield text, f"{summary[name]:,}"
    if "train_seconds" in summary:
        yield "time", f"{training_time(summary['train_seconds'])} on {summary.get('machine')}"
    for name in ("precision", "seed"):
        if name in summary:
            yield name, str(summary[name])


_STATISTICS = {
    "lists": "distinct lists",
    "items_per_list": "items of a list, mean",
    "relevant_per_list": "relevant items of a list, mean",
    "query_words": "words of a query, mean",
    "item_words": "words of an item, mean",
}


def _described(value: Any) -> str:
    """A part of a configuration in one line: classes with their arguments, files without their folders."""
    if isinstance(value, str):
        return Path(value).name
    if isinstance(value, list):
        return f"[{', '.join(map(_described, value))}]"
    if not isinstance(value, Mapping):
        return str(value)
    named = "class_path" in value
    given = ((value.get("init_args") or {}) if named else value).items()
    equals = "=" if named else ": "
    inside = ", ".join(f"{name}{equals}{_described(one)}" for name, one in given if one is not None)
    return f"{value['class_path'].rpartition('.')[2]}({inside})" if named else f"{{{inside}}}"


def _measured(run: Path, ranker: Ranker) -> Iterator[Measured]:
    """The metrics of the run's splits with their intervals, where these weights wrote the split's scores."""
    from crossjem_pl.evaluation.runs import model_of
    from crossjem_pl.evaluation.significance import bootstrap_interval

    for split in ("val", "test"):
        scores = run / f"{split}.trec"
        if not scores.is_file() or model_of(scores) != weights_sha256(ranker)[:12]:
            continue
        path = run / f"{split}_metrics.json"
        content = read_json(path)
        queries = content.get("per_query", {})
        try:
            for name, mean in content.get("means", {}).items():
                values = [row[name] for row in queries.values() if row.get(name) is not None]
                low, high = bootstrap_interval(values)
                yield Measured(split, name, float(mean), float(low), float(high), len(values))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not the metrics of a split ({error})") from None
