"""Transactional ids: `<prefix>.dk-<host>-<slot>`, read from the right, so that no other prefix is taken for ours. Pure."""

from __future__ import annotations

import re

__all__ = ["belongs_to", "transactional_id"]

_OURS = re.compile(r"(?P<prefix>.*)\.dk-[0-9a-f]{12}-[0-9]+", re.DOTALL)


def transactional_id(prefix: str, host: str, slot: int) -> str:
    """The id of a slot.

    Args:
        prefix: The user's.
        host: Twelve hexadecimal digits, the same for all workers that share the slots.
        slot: From 0.
    """
    return f"{prefix}.dk-{host}-{slot}"


def belongs_to(prefix: str, name: str) -> bool:
    """Whether a transactional id is one of this very prefix: `orders` does not own what `orders-eu` has opened."""
    match = _OURS.fullmatch(name)
    return match is not None and match["prefix"] == prefix
