"""Public datasets and click logs, turned into ranking lists once. One module a source, the rest shared."""
