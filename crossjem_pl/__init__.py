"""Fast and accurate re-ranking of short texts: CROSS-JEM and its baselines on PyTorch Lightning."""

__version__ = "0.1.0"
