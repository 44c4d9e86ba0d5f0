"""CROSS-JEM: the model, its batch, its attention and its scoring heads."""
