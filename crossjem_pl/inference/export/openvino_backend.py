"""OpenVINO on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crossjem_pl.inference.export.backend import Array, Backend, Session
from crossjem_pl.inference.export.extra import extra

__all__ = ["OpenVINOBackend"]

_GROUP = 32


class OpenVINOBackend(Backend):
    """`model.xml` and `model.bin`, run by OpenVINO's CPU plugin.

    int8 stores the weights of the matrix products as 8-bit integers with one scale per output channel; where
    the CPU has 8-bit instructions the plugin quantises the activations at each run, in groups of 32 values.
    """

    name = "openvino"
    files = ("model.xml", "model.bin")
    packages = ("onnx", "openvino")
    precisions = ("float32", "bfloat16")

    def write(self, graph: Path, folder: Path, int8: bool) -> None:
        runtime = extra("openvino")
        # not convert_model: that reports its use over the network
        model = runtime.Core().read_model(str(graph))
        if int8:
            _compress_weights(model)
        runtime.save_model(model, str(folder / self.files[0]), compress_to_fp16=False)

    def open(self, folder: Path, precision: str, threads: int) -> Session:
        core = extra("openvino").Core()
        compiled = core.compile_model(
            str(folder / self.files[0]),
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
                "INFERENCE_NUM_THREADS": threads,
                "PERFORMANCE_HINT": "LATENCY",
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(_GROUP),
            },
        )
        own = threading.local()  # a request serves one thread at a time

        def run(inputs: Mapping[str, Array]) -> Array:
            if not hasattr(own, "request"):
                own.request = compiled.create_infer_request()
            return own.request.infer(dict(inputs))[0].copy()

        return run


def _compress_weights(model: Any) -> None:
    """Puts int8 constants times a scale in the place of the float32 matrices that products take as weights.

    Symmetric, one scale per output channel c: q = round(w / s_c), s_c = max |w_c| / 127.
    """
    ops = extra("openvino.opset13")
    for op in model.get_ordered_ops():
        if op.get_type_name() != "MatMul":
            continue
        constant = op.input_value(1).get_node()
        if constant.get_type_name() != "Constant" or len(constant.get_output_shape(0)) != 2:
            continue
        weight = constant.data
        inputs_axis = 1 if op.get_attributes()["transpose_b"] else 0
        scale = np.maximum(np.abs(weight).max(axis=inputs_axis, keepdims=True), 1e-12) / 127
        codes = np.clip(np.rint(weight / scale), -127, 127).astype(np.int8)
        values = ops.multiply(
            ops.convert(ops.constant(codes, dtype=np.int8), "f32"), ops.constant(scale.astype(np.float32))
        )
        op.input(1).replace_source_output(values.output(0))
    model.validate_nodes_and_infer_types()
