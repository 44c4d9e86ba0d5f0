"""Rankers that read the query and an item together."""
