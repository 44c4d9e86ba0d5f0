"""Accuracy against cost: the joint scorer, its variants and its rivals on the same lists and in the same time."""
