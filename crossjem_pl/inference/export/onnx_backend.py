"""ONNX Runtime on the CPU."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossjem_pl.inference.export.backend import Array, Backend, Session
from crossjem_pl.inference.export.extra import extra

__all__ = ["OnnxBackend"]

_PRODUCTS = ("MatMul", "Gemm")


class OnnxBackend(Backend):
    """`model.onnx`, run by ONNX Runtime's CPU provider.

    int8 is its dynamic quantisation: weights to 8 bits with one scale per output channel when the model is
    written, activations to 8 bits at each run. The weights use 7 of the 8 bits (`reduce_range`): on CPUs with
    AVX2 or AVX-512 but without VNNI the products of full 8-bit values would overflow their 16-bit sums
    without notice.
    """

    name = "onnx"
    files = ("model.onnx",)
    packages = ("onnx", "onnxruntime")
    precisions = ("float32",)

    def write(self, graph: Path, folder: Path, int8: bool) -> None:
        target = folder / self.files[0]
        if not int8:
            shutil.move(graph, target)
            return
        onnx, quantization = extra("onnx"), extra("onnxruntime.quantization")
        model = onnx.load(str(graph))
        # the quantiser transposes weights of Gemm and then trips over the shapes noted here
        model.graph.ClearField("value_info")
        onnx.save(model, str(graph))
        matrices = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
        products = [node for node in model.graph.node if node.op_type in _PRODUCTS]
        root = logging.getLogger()
        before = root.level
        root.setLevel(logging.ERROR)  # it advises a step that changes nothing for these graphs
        try:
            quantization.quantize_dynamic(
                str(graph),
                str(target),
                op_types_to_quantize=list(_PRODUCTS),
                # the runtime has no per-channel product with a vector
                nodes_to_exclude=[node.name for node in products if node.input[1] not in matrices],
                per_channel=True,
                reduce_range=True,
                weight_type=quantization.QuantType.QInt8,
            )
        finally:
            root.setLevel(before)

    def open(self, folder: Path, precision: str, threads: int) -> Session:
        runtime = extra("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = runtime.InferenceSession(
            str(folder / self.files[0]), options, providers=["CPUExecutionProvider"]
        )

        def run(inputs: Mapping[str, Array]) -> Array:
            outputs: list[Any] = session.run(None, dict(inputs))
            return outputs[0]

        return run
