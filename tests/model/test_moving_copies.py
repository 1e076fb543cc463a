"""No position promises more than is true, in a few thousand random worlds. The runner tries as many as one likes."""

from __future__ import annotations

import pytest

from dynamic_kafka.source.rules.comparison import Rest
from tests.model.moving_copies import run_many


def test_no_promise_is_wrong_and_exact_is_often_said() -> None:
    """Extra, missing, repeated, swapped and late records, markers, equal times, dead clusters, there and back."""
    found = run_many(range(2_000))
    assert not found.wrong, found.wrong[0]
    assert found.exact > 1_500
    assert found.exact > found.could / 2


@pytest.mark.slow
def test_honest_copies_are_called_exact() -> None:
    """Else a model without a wrong answer would prove nothing."""
    found = run_many(range(0, 4_000, 2))
    assert not found.wrong, found.wrong[0]
    assert found.exact > found.could * 0.6


def test_the_model_finds_an_answer_that_says_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at what follows the position, repeated records are read twice."""
    monkeypatch.setattr(
        "dynamic_kafka.source.rules.placement.look_after", lambda *_: Rest(0, (), (), None, (), follows=True)
    )
    assert run_many(range(600)).wrong
