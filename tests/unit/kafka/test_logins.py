"""After a refused login: who waits, for how long, and who does not."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from dynamic_kafka.kafka import logins
from dynamic_kafka.kafka.clients import BackgroundErrors
from dynamic_kafka.kafka.logins import note_accepted, rest_after_refusal, without_token_answer

PROPERTIES = {"bootstrap.servers": "b:9092", "sasl.password": "${file:/run/secrets/password}"}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rest for 0.1, 0.2, 0.4 s, and forget every login."""
    monkeypatch.setattr(logins, "_REST_S", 0.1)
    monkeypatch.setattr(logins, "_LOOK_S", 0.01)
    monkeypatch.setattr(logins, "_accepted", set())


def rested(refusals: int = 1, timeout_s: float = 5.0, replaced_after_s: float = 60.0) -> tuple[bool, float]:
    """Return the answer, and the seconds that it took."""
    began = time.monotonic()
    found = rest_after_refusal(
        PROPERTIES, lambda: time.monotonic() - began > replaced_after_s, refusals, began + timeout_s
    )
    return found, time.monotonic() - began


def test_a_login_that_never_worked_is_not_tried_again() -> None:
    """It is wrong, and its error comes at once; whatever other properties have worked."""
    note_accepted(PROPERTIES | {"sasl.username": "another"})
    found, took_s = rested()
    assert not found
    assert took_s < 0.05


def test_a_new_secret_is_tried_at_once() -> None:
    """The file of the reference has changed."""
    note_accepted(PROPERTIES)
    found, took_s = rested(refusals=5, replaced_after_s=0.05)
    assert found
    assert 0.05 < took_s < 0.5


@pytest.mark.parametrize(("refusals", "least_s"), [(1, 0.1), (2, 0.2), (3, 0.4)])
def test_the_same_secret_is_tried_after_longer_and_longer_rests(refusals: int, least_s: float) -> None:
    """The cluster may be the one that is late."""
    note_accepted(PROPERTIES)
    found, took_s = rested(refusals)
    assert found
    assert least_s <= took_s < least_s + 0.3


def test_nothing_is_tried_after_the_deadline() -> None:
    """A rest that does not end before it is cut short, and not followed by a try."""
    note_accepted(PROPERTIES)
    found, took_s = rested(refusals=3, timeout_s=0.2)
    assert not found
    assert took_s < 0.4


def test_a_new_secret_shortly_before_the_deadline_counts() -> None:
    """Also in the last rest."""
    note_accepted(PROPERTIES)
    assert rested(refusals=3, timeout_s=0.3, replaced_after_s=0.1)[0]


NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ('{"error":"internal-admin-page: role-credentials=AKIA-INTERNAL"}', "no token (the answer is not shown)"),
        ("<html>\nroot:x:0:0", "no token (the answer is not shown)"),
        ("Could not resolve host: <b>AKIA", "no token (the answer is not shown)"),
        ("", "no token (the answer is not shown)"),
        ('{"error": "invalid_client", "error_description": "AKIA"}', "the error invalid_client"),
    ],
)
def test_the_answer_of_a_token_endpoint_is_not_shown(answer: str, shown: str) -> None:
    """The address may be that of an internal page. A standard code of OAuth says enough, as librdkafka's errors go on."""
    assert without_token_answer(NO_TOKEN + answer) == f"{NO_TOKEN}the token endpoint answered with {shown}"
    errors = BackgroundErrors()
    errors.note(KafkaError(KafkaError._AUTHENTICATION, NO_TOKEN + answer))
    assert "AKIA" not in errors.last


@pytest.mark.parametrize(
    "text",
    [
        NO_TOKEN + "Failed to connect to broker:9093 port 9093 after 0 ms: Could not connect to server",
        NO_TOKEN + "Could not resolve host: tokens.example.com",
        NO_TOKEN + "SSL certificate OpenSSL verify result: unable to get local issuer certificate (20)",
        "SASL authentication error: {x}",
    ],
)
def test_why_no_endpoint_answers_is_shown(text: str) -> None:
    """It is said by the client itself, and so is everything about other logins."""
    assert without_token_answer(text) == text
