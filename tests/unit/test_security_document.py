"""docs/guides/security.md has a row for each case that tests/integration checks on real brokers."""

from __future__ import annotations

from tests.security.document import first_cells
from tests.security.ways import KERBEROS, NO_TICKET, WAYS, WRONG


def test_the_document_has_all_ways_in() -> None:
    """In the order of the tests, which compare the rest of each row (`SECURITY_TABLES=write` writes them)."""
    assert first_cells("ways") == [way.name for way in (*WAYS, *KERBEROS)]
    assert first_cells("wrong") == [*(wrong.name for wrong in WRONG), NO_TICKET]
    assert len(first_cells("rights")) > 10
