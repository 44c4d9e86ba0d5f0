"""The runtimes that exported models run in: ONNX Runtime and OpenVINO, on the CPU."""

from __future__ import annotations

import importlib
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["BACKENDS", "Backend", "Session", "extra"]

Array = np.ndarray[Any, Any]
Session = Callable[[Mapping[str, Array]], Array]
"""One run of the graph: named inputs to scores, float32 [n]. Several threads may call it at once."""


def extra(module: str) -> Any:
    """The module of that name, imported.

    Raises:
        ImportError: if it is not there; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} could not be imported, which exported models need: "
            f"pip install 'crossjem_pl[export]' ({error})"
        ) from error


_PRODUCTS = ("MatMul", "Gemm")
_GROUP = 32


def _write_onnx(graph: Path, folder: Path, int8: bool) -> None:
    """`model.onnx`, run by ONNX Runtime's CPU provider.

    int8 is its dynamic quantisation: weights to 8 bits with one scale per output channel when the model is written,
    activations at each run. The weights use 7 of the 8 bits (`reduce_range`): on CPUs with AVX2 or AVX-512 but without
    VNNI the products of full 8-bit values would overflow their 16-bit sums without notice.
    """
    target = folder / "model.onnx"
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


def _open_onnx(folder: Path, precision: str, threads: int) -> Session:
    runtime = extra("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )

    def run(inputs: Mapping[str, Array]) -> Array:
        outputs: list[Any] = session.run(None, dict(inputs))
        return outputs[0]

    return run


def _write_openvino(graph: Path, folder: Path, int8: bool) -> None:
    """`model.xml` and `model.bin`, run by OpenVINO's CPU plugin.

    int8 stores the weights of the matrix products as 8-bit integers with one scale per output channel; where the CPU
    has 8-bit instructions the plugin quantises the activations at each run, in groups of 32 values.
    """
    runtime = extra("openvino")
    # not convert_model: that reports its use over the network
    model = _core(runtime).read_model(str(graph))
    if int8:
        _compress_weights(model)
    runtime.save_model(model, str(folder / "model.xml"), compress_to_fp16=False)


def _open_openvino(folder: Path, precision: str, threads: int) -> Session:
    compiled = _core(extra("openvino")).compile_model(
        str(folder / "model.xml"),
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


@cache
def _core(runtime: Any) -> Any:
    """OpenVINO's core, one for the process, which is never freed.

    Its CPU plugin sets an alternate signal stack for the thread that loads it. When one of several cores is freed, the
    stack that the other restores may be unmapped already: the next signal (a DataLoader worker that ends, Ctrl-C) then
    ends the process with a segmentation fault and no traceback.
    """
    return runtime.Core()


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


@dataclass(frozen=True)
class Backend:
    """A runtime on the CPU.

    Args:
        files: what it writes into the folder, the graph first.
        packages: the distributions whose versions are recorded.
        precisions: what it can compute in.
        write: writes the files from an ONNX graph in float32, which may be moved, to a folder that exists; whether the
            weights of the matrix products become 8-bit integers.
        open: a session over the files of a folder, in one of the precisions, with so many threads for a run.
    """

    files: tuple[str, ...]
    packages: tuple[str, ...]
    precisions: tuple[str, ...]
    write: Callable[[Path, Path, bool], None]
    open: Callable[[Path, str, int], Session]


BACKENDS = {
    "onnx": Backend(("model.onnx",), ("onnx", "onnxruntime"), ("float32",), _write_onnx, _open_onnx),
    "openvino": Backend(
        ("model.xml", "model.bin"),
        ("onnx", "openvino"),
        ("float32", "bfloat16"),
        _write_openvino,
        _open_openvino,
    ),
}
