"""Trained rankers whose tensor part runs in ONNX Runtime or OpenVINO instead of torch."""
