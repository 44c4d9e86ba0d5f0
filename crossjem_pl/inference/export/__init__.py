"""Trained rankers whose network runs in ONNX Runtime or OpenVINO instead of torch."""
