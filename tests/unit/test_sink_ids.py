"""Whose a transactional id is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_kafka.sink.ids import belongs_to, transactional_id

OURS = ".dk-0123456789ab-0"

hosts = st.text("0123456789abcdef", min_size=12, max_size=12)
slots = st.integers(0, 10**6)
# Prefixes that look like ids, or like each other.
prefixes = st.lists(st.sampled_from(["p", "-", ".", "dk", ".dk-", OURS, "0", "\n", "é", "٣"]), min_size=1).map("".join)


@given(prefixes, hosts, slots)
def test_what_we_make_is_ours(prefix: str, host: str, slot: int) -> None:
    """Whatever the prefix looks like."""
    assert belongs_to(prefix, transactional_id(prefix, host, slot))


@given(prefixes, prefixes, hosts, slots)
@example("p", "p-eu", "0" * 12, 0)
@example("p", f"p{OURS}", "0" * 12, 0)
@example(f"p{OURS}", "p", "0" * 12, 0)
def test_a_neighbours_is_not(mine: str, other: str, host: str, slot: int) -> None:
    """Neither if its prefix begins with ours, nor if ours begins with its."""
    assert belongs_to(mine, transactional_id(other, host, slot)) == (mine == other)


@given(prefixes, hosts, slots, st.sampled_from(["", "-0", ".0", "0a", "\n", " ", "٣", OURS]))
def test_nothing_may_come_after_it(prefix: str, host: str, slot: int, more: str) -> None:
    """The id is read from the right, to its very end."""
    assert belongs_to(prefix, transactional_id(prefix, host, slot) + more) == (more == "")


@given(prefixes, st.integers(0, 10**6), st.integers(0, 10**6))
def test_flinks_ids_are_not_ours(prefix: str, subtask: int, offset: int) -> None:
    """Flink's TransactionalIdFactory: the prefix, the subtask, and a number, with dashes between them."""
    assert not belongs_to(prefix, f"{prefix}-{subtask}-{offset}")
    assert not belongs_to(prefix, f"{prefix}-{offset}")


@pytest.mark.parametrize(
    "name",
    [
        "p",
        "p.dk-",
        "p.dk-0123456789ab-",
        "p.dk-0123456789ab-x",
        "p.dk-0123456789ab-1-0",
        "p.dk-0123456789a-0",
        "p.dk-0123456789abc-0",
        "p.dk-0123456789AB-0",
        "pxdk-0123456789ab-0",
        "p.dk-0123456789ab-٣",
        "q.dk-0123456789ab-0",
        "P.dk-0123456789ab-0",
        "p-5f0c2d0e-0000-0000-0000-000000000000-1",
    ],
)
def test_what_only_looks_like_ours(name: str) -> None:
    """Another host part, another slot, Kafka Streams' names."""
    assert not belongs_to("p", name)
