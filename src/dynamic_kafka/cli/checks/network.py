"""Checks of a cluster: its properties, its addresses one by one, the brokers behind them, its topics and its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dynamic_kafka.cli.checks.findings import Finding, error, of_error, ok, unknown, warning
from dynamic_kafka.cli.checks.visit import NotAnsweredError, TopicState, Visit
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, MissingDependencyError, listed
from dynamic_kafka.kafka.clients import check_properties as check_consumer
from dynamic_kafka.kafka.config.properties import client_config
from dynamic_kafka.kafka.probing import Clock, Probe
from dynamic_kafka.kafka.transactions.connection import Step
from dynamic_kafka.kafka.transactions.security import ConnectionSettings, cluster_settings, connection_settings

__all__ = [
    "check_addresses",
    "check_answer",
    "check_clock",
    "check_listeners",
    "check_properties",
    "check_topics",
    "judge_address",
    "judge_clock",
    "judge_listeners",
    "judge_topics",
]

_APART_MS = 5_000
_SHOWN = 5

_REMEDIES = {
    Step.DNS: "check the name, and the resolver of this machine (/etc/resolv.conf, /etc/hosts)",
    Step.TCP: "check that the broker runs there, and the firewalls and routes in between",
    Step.TLS: "check security.protocol and the port, ssl.truststore.* (or ssl.ca.location), and the broker's certificate",
    Step.VERSIONS: "check security.protocol: the port may want TLS or a login, or is no broker's",
    Step.LOGIN: "check sasl.mechanism, user and password (sasl.jaas.config), and the user's credentials on the brokers",
}


# --- the properties -----------------------------------------------------------------------------------------------------


def check_properties(visit: Visit) -> Iterator[Finding]:
    """Check that clients can be made of the properties: names, values, secrets, certificates, libraries."""
    try:
        check_consumer(visit.target.properties)
        config = client_config(visit.target.properties, role="admin")
    except (ConfigurationError, MissingDependencyError) as problem:
        visit.stop = "its properties are wrong"
        yield of_error(problem)
        return
    yield ok("clients can be made of its properties")
    try:
        visit.settings = cluster_settings(visit.target.properties)
    except DynamicKafkaError as problem:
        visit.can_log_in = False
        visit.settings = _without_login(config)
        if visit.job.purposes.get("exactly-once"):
            yield of_error(problem)
        else:
            yield unknown(f"its login is tried by librdkafka only, and exactly-once is not possible: {problem}")


def _without_login(config: Mapping[str, str]) -> ConnectionSettings | None:
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    try:
        return connection_settings({**config, "security.protocol": "SSL" if protocol.endswith("SSL") else "PLAINTEXT"})
    except DynamicKafkaError:
        return None


# --- the addresses ------------------------------------------------------------------------------------------------------


def check_addresses(visit: Visit) -> Iterator[Finding]:
    """Connect to each bootstrap server by itself. A login that was refused is not tried again at another address."""
    settings = visit.settings
    if settings is None:
        yield unknown("its addresses cannot be tried one by one with this security; see 'answer'")
        return
    probes = visit.probe_all(list(settings.servers), login=not settings.sasl)
    if settings.sasl:
        refused = False
        for i, before in enumerate(probes):
            if not before.problem and not refused:
                probes[i] = visit.probe_all([before.address], login=True)[0]
                refused = probes[i].refused
    visit.probes = probes
    reached = [p for p in probes if not p.problem]
    for found in probes:
        yield judge_address(found, others=bool(reached))
    if any(p.refused and p.steps[-1] is Step.LOGIN for p in probes):
        visit.stop = "the login was refused"
    elif not reached:
        visit.stop = "none of its addresses can be used"


def judge_address(found: Probe, *, others: bool) -> Finding:
    """Judge what was found at an address; `others` says whether another one can be used."""
    host = f"{found.address[0]}:{found.address[1]}"
    steps = ", ".join(found.steps)
    if not found.problem:
        return ok(f"{host}: {steps} in {found.seconds * 1000:.0f} ms")
    step = found.steps[-1] if found.steps else Step.DNS
    problem = _reason(found, host)
    judge = warning if others and not found.refused else error
    return judge(f"{host}: {step} fails: {problem}", _REMEDIES[step])


def _reason(found: Probe, host: str) -> str:
    """Return the problem at an address, without the advice in it: the step has a better one."""
    return found.problem.removeprefix(f"{host}: ").partition("; check ")[0]


def check_listeners(visit: Visit) -> Iterator[Finding]:
    """Connect to each broker at the address by which it wants to be reached."""
    if visit.settings is None:
        yield unknown("the brokers cannot be tried one by one with this security")
        return
    nodes = next((p.brokers for p in visit.probes if p.brokers), None)
    if nodes is None:  # the login was left to librdkafka
        nodes = {node.id: (str(node.host), int(node.port)) for node in visit.described.nodes}
    seen = {p.address: p for p in visit.probes}
    rest = [address for address in nodes.values() if address not in seen or seen[address].problem]
    seen |= {p.address: p for p in visit.probe_all(rest, login=visit.can_log_in)}
    yield from judge_listeners({broker: seen[address] for broker, address in nodes.items()})


def judge_listeners(found: Mapping[int, Probe]) -> Iterator[Finding]:
    """Judge the addresses that brokers advertise, by broker."""
    for broker, at in sorted(found.items()):
        if at.problem:
            host = f"{at.address[0]}:{at.address[1]}"
            step = at.steps[-1] if at.steps else Step.DNS
            yield error(
                f"broker {broker} is advertised as {host}, where {step} fails: {_reason(at, host)}",
                "its partitions cannot be reached: set advertised.listeners of the broker to what this machine can reach, "
                "or open the way there",
            )
    good = [f"{p.address[0]}:{p.address[1]}" for _, p in sorted(found.items()) if not p.problem]
    if good:
        yield ok(f"{len(good)} of {len(found)} brokers are reached where they are advertised: {listed(good, _SHOWN)}")


def check_answer(visit: Visit) -> Iterator[Finding]:
    """Check that librdkafka, which the query uses, is answered."""
    try:
        found = visit.described
    except NotAnsweredError as refused:
        visit.stop = "librdkafka gets no answer"
        yield error(
            f"librdkafka gets no answer within {visit.timeout_s:g} s: {refused}",
            "check security.protocol, sasl.* and ssl.*, and the advertised listeners of the brokers",
        )
        return
    yield ok(f"librdkafka is answered: cluster.id {found.cluster_id or 'not said'}, brokers: {len(found.nodes)}")


# --- topics and clock ---------------------------------------------------------------------------------------------------


def check_topics(visit: Visit) -> Iterator[Finding]:
    """Check that the topics exist and have leaders."""
    if not visit.target.topics and visit.target.pattern is None:
        yield ok("no topics are named here")
        return
    try:
        found = {name: state for name, state in visit.topics.items() if name != visit.job.log_topic}
    except NotAnsweredError as refused:
        yield unknown(f"the topics cannot be described: {refused}")
        return
    yield from judge_topics(found)


def judge_topics(found: Mapping[str, TopicState]) -> Iterator[Finding]:
    """Judge topics by name."""
    missing = [name for name, state in sorted(found.items()) if not state.partitions and not state.hidden]
    hidden = [name for name, state in sorted(found.items()) if state.hidden]
    leaderless = {name: state.leaderless for name, state in sorted(found.items()) if state.leaderless}
    if missing:
        yield warning(
            f"these topics do not exist: {listed(missing, _SHOWN)}", "check their names in the options or the metadata"
        )
    if hidden:
        yield unknown(f"this user may not see these topics: {listed(hidden, _SHOWN)}", "grant Describe on them")
    if leaderless:
        shown = listed([f"{name} ({count})" for name, count in leaderless.items()], _SHOWN)
        yield error(f"partitions without a leader: {shown}", "start the brokers that have their replicas")
    there = [state for state in found.values() if state.partitions]
    if there:
        yield ok(f"topics: {len(there)}, with partitions: {sum(state.partitions for state in there)}")
    elif not found:
        yield warning("no topic matches the pattern", "check the pattern; it has to match the whole name")


def check_clock(visit: Visit) -> Iterator[Finding]:
    """Compare this machine's clock with that of the cluster's controller, which tells its time (KIP-836)."""
    yield judge_clock(
        [p.clock for p in visit.probes if p.clock is not None], [p.no_clock for p in visit.probes if p.no_clock]
    )


def judge_clock(clocks: Sequence[Clock], reasons: Sequence[str]) -> Finding:
    """Judge the times that controllers told, or why they told none."""
    if not clocks:
        return unknown(
            f"the time of the brokers is not known: {reasons[0] if reasons else 'nobody was asked'}",
            "grant Describe on the Cluster to have it checked; or compare the clocks (chronyc tracking)",
        )
    best = min(clocks, key=lambda clock: clock.after_ms - clock.before_ms)
    apart_ms = best.least_apart_ms
    if abs(apart_ms) >= _APART_MS:
        way = "ahead of" if apart_ms > 0 else "behind"
        return warning(
            f"the clock of controller {best.controller} is {abs(apart_ms) / 1000:.1f} s {way} this machine's",
            "set both by NTP (chrony): lags in seconds and the time left of transactions are wrong by as much",
        )
    at_most = max(abs(best.there_ms - best.before_ms), abs(best.after_ms - best.there_ms))
    return ok(f"the clock of controller {best.controller} is at most {at_most} ms apart from this machine's")
