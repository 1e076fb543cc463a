"""Fixtures for tests of formats."""

from __future__ import annotations

from tests.unit.formats.registries import registry

__all__ = ["registry"]
