"""Rankers over words and hashed features."""
