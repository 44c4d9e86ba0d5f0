"""Programs that measure: latency, training speed, scaling, accuracy against rivals and the papers' tables."""
