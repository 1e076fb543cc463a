"""Queries over the tables of an environment: which tables they name, and what they need of them."""
