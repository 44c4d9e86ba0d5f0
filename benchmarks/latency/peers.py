"""Public cross-encoders on the same lists: sentence-transformers here, lightning-ir in an environment of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.latency.contenders import Contender, InProcess
from benchmarks.measuring.work import Work, pair_work, shape_of
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.encoders import resolve

__all__ = [
    "LIGHTNING_IR",
    "SENTENCE_TRANSFORMERS",
    "LightningIR",
    "SentenceTransformers",
    "missing_peers",
]

SENTENCE_TRANSFORMERS = "sentence-transformers"
LIGHTNING_IR = "lightning-ir"

_WORKER = Path(__file__).with_name("lightning_ir_worker.py")


def missing_peers(lightning_ir: Path | None) -> dict[str, str]:
    """The peers that cannot be measured here, and why."""
    out = {}
    if importlib.util.find_spec("sentence_transformers") is None:
        out[SENTENCE_TRANSFORMERS] = "is not installed: pip install 'crossjem_pl[bench]'"
    if lightning_ir is None:
        out[LIGHTNING_IR] = (
            "needs --lightning-ir PYTHON, an interpreter that has lightning-ir with transformers 4: version 0.0.6 "
            "installs beside transformers 5 but cannot load a tokenizer there (TypeError: type 'BertTokenizer' is "
            "not subscriptable)"
        )
    return out


class SentenceTransformers(InProcess):
    """`CrossEncoder.rank` of sentence-transformers as its users call it, on the same encoder with a fresh head.

    It sorts the pairs by the length of their text, tokenises and scores 32 (its default) at a time. Several queries
    go through `predict` together, and are sorted query by query afterwards. In lower precision the weights are
    loaded in it, as its documentation says.

    Args:
        name: in the tables.
        encoder: as for the rankers.
        device: where it runs.
        precision: of weights and products.
        batch_size: pairs that go through the encoder together.
    """

    def __init__(
        self, name: str, encoder: str, device: torch.device, precision: str = "float32", batch_size: int = 32
    ) -> None:
        super().__init__(name, precision)
        from sentence_transformers import CrossEncoder

        self.device, self.batch_size = device, batch_size
        self.model = CrossEncoder(
            resolve(encoder),
            num_labels=1,
            device=device.type,
            model_kwargs={"dtype": getattr(torch, precision)},
        )

    def rank(self, lists: Sequence[RankingList]) -> object:
        if len(lists) == 1:
            one = lists[0]
            return self.model.rank(one.query, list(one.items), batch_size=self.batch_size)
        pairs = [(one.query, text) for one in lists for text in one.items]
        scores = self.model.predict(pairs, batch_size=self.batch_size, show_progress_bar=False)
        ends = np.cumsum([len(one) for one in lists])[:-1]
        return [np.argsort(-own, kind="stable") for own in np.split(scores, ends)]

    def work(self, lists: Sequence[RankingList]) -> Work:
        pairs = [(one.query, text) for one in lists for text in one.items]
        pairs.sort(key=lambda pair: -len(pair[0]) - len(pair[1]))
        tokenizer: Any = self.model.tokenizer
        lengths = [len(ids) for ids in tokenizer(pairs, truncation=True).input_ids]
        groups = [lengths[i : i + self.batch_size] for i in range(0, len(lengths), self.batch_size)]
        shape = shape_of(self.model[0].model.config)
        return pair_work(shape, [(len(group), max(group)) for group in groups])


class LightningIR(Contender):
    """lightning-ir's mono cross-encoder in a process of its own, with the interpreter of another environment.

    The process sleeps while others are measured and times its own calls: what passes between the processes is not
    in them. It scores all items of a query at once, `CrossEncoderModule.score(query, items)`, and sorts.

    Args:
        name: in the tables.
        python: the interpreter.
        encoder: as for the rankers.
        device: where it runs.

    Raises:
        RuntimeError: if the process does not start, with what it said.
    """

    def __init__(self, name: str, python: Path, encoder: str, device: torch.device) -> None:
        super().__init__(name)
        command = [str(python), str(_WORKER), resolve(encoder), device.type, str(torch.get_num_threads())]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `close`; a pipe could fill up
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        self.version = str(self._answer()["version"])

    def milliseconds(self, lists: Sequence[RankingList]) -> float:
        assert self._process.stdin is not None
        request = {"queries": [one.query for one in lists], "items": [list(one.items) for one in lists]}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["milliseconds"])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.communicate()  # the end of its input ends it
        self._said.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._said.seek(0)
            raise RuntimeError(f"lightning-ir's process ended: {self._said.read()[-1000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer
