"""Latency and throughput of all rankers and of public cross-encoders, in one run on the same lists."""
