"""Rankers that encode queries and items apart."""
