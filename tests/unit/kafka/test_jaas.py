"""JAAS configurations are read as Kafka's JaasConfig reads them, and errors show nothing of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config.jaas import LoginModule, parse, render, sasl_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$-]{0,20}", fullmatch=True)
modules = st.builds(
    LoginModule,
    names,
    st.sampled_from(["required", "requisite", "sufficient", "optional"]),
    st.dictionaries(names, st.text()),
)


@given(modules)
def test_round_trip(module: LoginModule) -> None:
    """What is rendered is read back as it was, whatever characters the values have."""
    assert module == parse(render(module))


@given(st.text() | st.text(alphabet="ab=;\"'\\/* \n$") | modules.map(render).flatmap(lambda t: st.just(t[:-3])))
def test_never_crashes(text: str) -> None:
    """Any text is either a login module or a ConfigurationError with a position, in time."""
    message = None
    try:
        parse(text)
    except ConfigurationError as error:
        message = str(error)

    assert message is None or re.match(r"Property 'sasl\.jaas\.config', character \d+: ", message)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"  {PLAIN}\n\tRequired\r\n username='u'\n password='p' ; \n", {"username": "u", "password": "p"}),
        (f"{PLAIN} required username=u password=p;", {"username": "u", "password": "p"}),
        (rf'{PLAIN} required p="a\"b\\c\'d\n\t\101\q";', {"p": "a\"b\\c'd\n\tAq"}),
        (f"{PLAIN} required p='a\"b;c=d';", {"p": 'a"b;c=d'}),
        (f"/* one */ {PLAIN} required // two\n p = 1 /* three; */;", {"p": "1"}),
        (f"{PLAIN} required;", {}),
        (f"{PLAIN} required keyTab=/etc/a.keytab;", {"keyTab": "/etc/a.keytab"}),
    ],
)
def test_forms(text: str, options: dict[str, str]) -> None:
    """Quotes, escapes, white space and comments mean what they mean in Java."""
    assert LoginModule(PLAIN, "required", options) == parse(text)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 1, "the class of a login module"),
        ('"hunter2"', 1, "the class of a login module"),
        (PLAIN, len(PLAIN) + 1, "a control flag"),
        ("x hunter2 a=b;", 3, "a control flag"),
        ("x required a=hunter2", 21, "semicolon"),
        ("x required a;", 13, "'=' after the name of option 1"),
        ("x required a=;", 14, "the value of option 1"),
        ('x required a="hunter2', 14, "never closed"),
        ('x required a="hunt"er2";', 23, "never closed"),
        ('x required a="hunt"er2;', 23, "'=' after the name of option 2"),
        ("x required a=b; hunter2 required;", 17, "only one login module"),
    ],
)
def test_errors_say_where_and_show_nothing(text: str, position: int, problem: str) -> None:
    """The message has the position and what was expected there; no part of the text."""
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse(text)

    assert "hunter2" not in str(caught.value)
    assert "er2" not in str(caught.value)
    assert f"character {position}:" in str(caught.value)


def test_repr_shows_no_option() -> None:
    """A login module in a log or traceback shows nothing secret."""
    assert "hunter2" not in repr(parse(f"{PLAIN} required password=hunter2;"))


@pytest.mark.parametrize(
    ("text", "mechanism", "expected"),
    [
        (f"{PLAIN} required username=u password=p;", "PLAIN", {"sasl.username": "u", "sasl.password": "p"}),
        (
            f"org.apache.flink.kafka.shaded.{PLAIN} required username=u password=p;",
            "plain",
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        (f"{SCRAM} required username=u password=p;", "SCRAM-SHA-256", {"sasl.username": "u", "sasl.password": "p"}),
        (f"{SCRAM} required username=u password=p;", "SCRAM-SHA-512", {"sasl.username": "u", "sasl.password": "p"}),
        (
            f"{OAUTH} required clientId=i clientSecret=s scope='a b' extension_cluster=c;",
            "OAUTHBEARER",
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.extensions": "cluster=c",
            },
        ),
        (
            f"{OAUTH} required unsecuredLoginStringClaim_sub=alice;",
            "OAUTHBEARER",
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"},
        ),
        (f"{OAUTH} required;", "OAUTHBEARER", {}),
        (
            f"{KERBEROS} required useKeyTab=true storeKey=true keyTab='/k' principal='me@R' serviceName=kafka;",
            "GSSAPI",
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "me@R",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
    ],
)
def test_login_modules(text: str, mechanism: str, expected: dict[str, str]) -> None:
    """Kafka's login modules become librdkafka's properties, under relocated class names too."""
    assert expected == sasl_properties(parse(text), mechanism)


@pytest.mark.parametrize(
    ("text", "mechanism", "problem"),
    [
        (f"{PLAIN} required username=u password=hunter2;", "GSSAPI", "set sasl.mechanism to PLAIN"),
        (f"{SCRAM} required username=u password=hunter2;", "PLAIN", "SCRAM-SHA-256 or SCRAM-SHA-512"),
        (f"{PLAIN} required password=hunter2;", "PLAIN", "no option 'username'"),
        (f"{PLAIN} required username=u;", "PLAIN", "no option 'password'"),
        (f"{SCRAM} required username=u password=hunter2 tokenauth=true;", "SCRAM-SHA-256", "delegation token"),
        (f"{OAUTH} required clientId=i;", "OAUTHBEARER", "no option 'clientSecret'"),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "PLAIN", "set sasl.mechanism to AWS_MSK_IAM"),
        ("hunter2 required;", "PLAIN", "an unknown login module"),
    ],
)
def test_login_modules_that_cannot_be_used(text: str, mechanism: str, problem: str) -> None:
    """The error says what to change, and shows no secret."""
    with pytest.raises(ConfigurationError, match=problem) as caught:
        sasl_properties(parse(text), mechanism)

    assert "hunter2" not in str(caught.value)
