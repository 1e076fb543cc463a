"""What is suspicious in the metadata of streams, without asking any cluster. Pure.

An error is what a query would not accept. A warning is what is accepted, and is probably not meant. A note is often right.
No finding shows a property's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dynamic_kafka.cli.checks.findings import Finding, error, note, warning
from dynamic_kafka.errors import ConfigurationError, MetadataServiceError, listed
from dynamic_kafka.kafka.config.documents import DocumentRules, refused
from dynamic_kafka.kafka.config.properties import to_librdkafka
from dynamic_kafka.kafka.config.secrets import redact
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.snapshot import make_snapshot

__all__ = ["check_streams", "quoted_list"]

_HIDDEN = "***"
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


def check_streams(
    streams: Sequence[KafkaStream],
    rules: DocumentRules | None,
    given: Mapping[str, str] | None = None,
    *,
    by_pattern: bool = False,
) -> list[Finding]:
    """Return what is wrong or suspicious.

    Without rules, the metadata is the query's own. The properties of the query's options are None if they are not known, so
    that the query may allow more. If topics are read `by_pattern`, none has to be listed.
    """
    try:
        clusters = make_snapshot(streams).clusters
    except MetadataServiceError as problem:
        what, _, remedy = str(problem).partition("; ")
        return [error(what, remedy, "the document")]
    found = [*_empty(streams, by_pattern=by_pattern), *_alike(streams)]
    for name, cluster in clusters.items():
        found += _check_properties(name, cluster)
        found += () if rules is None else _check_rules(name, cluster, rules, given)
        found += _check_addresses(name, cluster)
    return [*found, *_continued(clusters), *_one_address_twice(clusters), *_one_topic_twice(streams)]


def _continued(clusters: Mapping[str, ClusterMetadata]) -> Iterator[Finding]:
    """Yield what is suspicious about clusters that continue others."""
    for name, cluster in clusters.items():
        continues = cluster.continues
        if continues is None:
            continue
        where, old = f"cluster '{name}'", clusters.get(continues.cluster)
        if unknown := sorted(set(continues.topics.values()) - cluster.topics):
            yield warning(
                f"it continues topics that it does not list: {listed(unknown, 5)}",
                "list them among its topics, or take them out of `continues`",
                where,
            )
        both = {t for t in cluster.topics if old is not None and continues.old_topic(t) in old.topics}
        if both and old is not None and old.continues is not None and old.continues.cluster == name:
            yield warning(f"it and '{continues.cluster}' continue each other", "let one continue the other", where)
        elif both:
            yield note(
                f"{quoted_list(sorted(both))} of it stands by, because '{continues.cluster}' is still read",
                f"to move, take the topic out of '{continues.cluster}'",
                where,
            )
        if continues.guarantee == "unproved":
            yield warning(
                f"it may continue '{continues.cluster}' without a proof, with records lost or repeated",
                "take `guarantee: unproved` away when it has moved",
                where,
            )


def _empty(streams: Sequence[KafkaStream], *, by_pattern: bool) -> Iterator[Finding]:
    if not streams:
        yield warning("there is no stream: a query would stop reading all", "check that nothing is left out")
    for stream in streams:
        if not stream.clusters:
            yield warning(
                "it has no cluster, so nothing is read", "add one, or delete the stream", f"stream '{stream.stream_id}'"
            )
        for name, cluster in stream.clusters.items():
            if not cluster.topics and not by_pattern:
                where = f"stream '{stream.stream_id}', cluster '{name}'"
                yield warning("no topics are listed, so nothing is read", "list them, or delete it", where)


def _alike(streams: Iterable[KafkaStream]) -> Iterator[Finding]:
    """Yield names that differ only in case or blanks, which is hard to see."""
    for what, names in (
        ("stream", {stream.stream_id for stream in streams}),
        ("cluster", {name for stream in streams for name in stream.clusters}),
    ):
        groups: dict[str, list[str]] = {}
        for name in sorted(names):
            groups.setdefault("".join(name.lower().split()), []).append(name)
        for same in groups.values():
            if len(same) > 1:
                yield warning(
                    "these names differ only in case or blanks, and are different ones",
                    "give them one name, or names that can be told apart",
                    f"{what} {quoted_list(same)}",
                )


def _check_properties(name: str, cluster: ClusterMetadata) -> Iterator[Finding]:
    where, properties = f"cluster '{name}'", cluster.properties
    try:
        to_librdkafka({key: value for key, value in properties.items() if key != "group.id"}, role="consumer")
    except ConfigurationError as problem:
        yield error(str(problem).partition("\n")[0], "correct the property", where)
    clear = [key for key, value in redact(properties).items() if _HIDDEN in value]
    if clear:
        yield warning(
            f"a secret in clear text: {listed(sorted(clear), 5)}", "refer to it: ${env:NAME} or ${file:/path}", where
        )
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))
    if protocol == "SASL_PLAINTEXT" and mechanism in ("PLAIN", "OAUTHBEARER"):
        what = "password" if mechanism == "PLAIN" else "token"
        yield warning(f"the {what} crosses the network in clear text", "use SASL_SSL, or SCRAM", where)
    logins = sorted(key for key in properties if key.startswith(("sasl.", "ssl.")))
    if protocol == "PLAINTEXT" and logins:
        yield warning(
            f"{listed(logins, 3)} without an effect: security.protocol is PLAINTEXT",
            "set security.protocol, for example to SASL_SSL",
            where,
        )
    unchecked = properties.get("enable.ssl.certificate.verification", "true").lower() == "false"
    if unchecked or properties.get("ssl.endpoint.identification.algorithm", "https") in ("", "none"):
        yield warning("the server's certificate is not fully checked", "check it; anybody may pose as it", where)
    if "group.id" in properties:
        yield warning("group.id is not used here", "set the query's option properties.group.id", where)


def _check_rules(
    name: str, cluster: ClusterMetadata, rules: DocumentRules, given: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Yield what a query does not accept from a document, or, if no query is known, what one has to allow."""
    try:
        for fault in refused(cluster.properties, given or {}, rules):
            allow = f"have the query allow it: {fault.option}" if fault.option else ""
            if given is None and allow:
                yield note(fault.what, allow, f"cluster '{name}'")
            else:
                yield error(fault.what, ", or ".join(filter(None, (fault.remedy, allow))), f"cluster '{name}'")
    except ConfigurationError:
        return  # a wrong property, which is found above


def _check_addresses(name: str, cluster: ClusterMetadata) -> Iterator[Finding]:
    where = f"cluster '{name}'"
    for server in _servers(cluster):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            yield warning(f"'{server}' is not host:port", "name the port; the usual one is 9092", where)
        elif host.lower() in _LOCAL:
            yield warning(f"'{server}' is the machine of each reader itself", "use the broker's address", where)


def _servers(cluster: ClusterMetadata) -> list[str]:
    return [server.strip() for server in cluster.properties["bootstrap.servers"].split(",") if server.strip()]


def _one_address_twice(clusters: Mapping[str, ClusterMetadata]) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for name, cluster in clusters.items():
        for server in _servers(cluster):
            names.setdefault(server.lower(), []).append(name)
    together: dict[tuple[str, ...], list[str]] = {}
    for server, some in names.items():
        if len(some) > 1:
            together.setdefault(tuple(sorted(set(some))), []).append(server)
    for same, servers in together.items():
        if len(same) > 1:
            yield warning(
                f"they have {listed(servers, 3)} in common, so they seem to be one Kafka cluster",
                "give it one name; a topic under two names is read once",
                f"clusters {quoted_list(same)}",
            )


def _one_topic_twice(streams: Iterable[KafkaStream]) -> Iterator[Finding]:
    """Yield a note on each stream with a topic on several clusters, and a warning on topics that two streams share."""
    owners: dict[tuple[str, str], list[str]] = {}
    for stream in streams:
        clusters: dict[str, list[str]] = {}
        for name, cluster in stream.clusters.items():
            for topic in cluster.topics:
                clusters.setdefault(topic, []).append(name)
                owners.setdefault((name, topic), []).append(stream.stream_id)
        shared = sorted(topic for topic, names in clusters.items() if len(names) > 1)
        if shared:
            yield note(
                f"{quoted_list(shared)} is read from several clusters: {listed(sorted(clusters[shared[0]]), 5)}",
                "right if they hold different records, wrong if one is a mirror of another",
                f"stream '{stream.stream_id}'",
            )
    for (name, topic), ids in sorted(owners.items()):
        if len(set(ids)) > 1:
            yield note(
                f"it belongs to the streams {quoted_list(sorted(set(ids)))}",
                "a query that reads several of them reads the topic once",
                f"cluster '{name}', topic '{topic}'",
            )


def quoted_list(names: Iterable[str]) -> str:
    """Return up to five names in quotes."""
    return listed([f"'{name}'" for name in names], 5)
