"""Property names: which librdkafka knows, by client, which of Java's it can do without, which hold no secret.

`IN_DOCUMENTS` says which of them a metadata document may set. All others are for the options of a query.
"""

# ruff: noqa: SIM905  (as lists the names would fill three hundred lines)

from __future__ import annotations

from typing import Literal

__all__ = [
    "ADDRESSES",
    "ALL_NAMES",
    "CHECKED",
    "COMMON",
    "CONSUMER",
    "IGNORED",
    "IN_DOCUMENTS",
    "JAVA_CODE",
    "JAVA_CODE_UNDERSTOOD",
    "PRODUCER",
    "RENAMED",
    "STORABLE",
    "STORES",
]

ADDRESSES = ("bootstrap.servers", "metadata.broker.list")
"""The properties that hold brokers' addresses: Java's name, and librdkafka's old one."""

# From CONFIGURATION.md of librdkafka 2.16, without callbacks and share groups; a test asks librdkafka for each.
COMMON = frozenset(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup
    client.id client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location https.ca.pem
    internal.termination.signal log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location
    ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
    ssl.sigalgs.list statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """.split()
)
"""librdkafka's properties of every client."""

CONSUMER = frozenset(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms offset.store.method
    offset.store.path offset.store.sync.interval.ms partition.assignment.strategy queued.max.messages.kbytes
    queued.min.messages session.timeout.ms
    """.split()
)
"""librdkafka's properties of consumers."""

PRODUCER = frozenset(
    """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms message.send.max.retries
    message.timeout.ms partitioner produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms queuing.strategy
    request.required.acks request.timeout.ms retries sticky.partitioning.linger.ms transaction.timeout.ms
    transactional.id
    """.split()
)
"""librdkafka's properties of producers."""

RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "compression.codec": "compression.type",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "max.request.size": "message.max.bytes",
    "buffer.memory": "queue.buffering.max.kbytes",
    "partitioner.class": "partitioner",
}
"""Java's names, and librdkafka's second names for one thing (so that two spellings of it are noticed), to the name used."""

STORES = frozenset(
    {
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
    }
)
"""Java's key stores in files; translated by reading them."""

JAVA_CODE: dict[str, str] = {
    "ssl.engine.factory.class": "use the ssl.truststore.* and ssl.keystore.* properties",
    "sasl.login.class": "use sasl.jaas.config with Kafka's own login modules",
    "sasl.login.callback.handler.class": "use Kafka's OAuthBearerLoginCallbackHandler, AWS MSK's or Google Cloud's "
    "handler, a function of your own in Python (package.module:function), SCRAM or certificates",
    "sasl.client.callback.handler.class": "use Kafka's OAuthBearerLoginCallbackHandler, AWS MSK's or Google Cloud's "
    "handler, SCRAM or certificates",
    "sasl.oauthbearer.jwt.retriever.class": "use Kafka's ClientCredentialsJwtRetriever",
    "security.providers": "for FIPS, set OpenSSL's configuration on each machine (the variable OPENSSL_CONF)",
    "ssl.provider": "for FIPS, set OpenSSL's configuration on each machine (the variable OPENSSL_CONF)",
}
"""Properties that name Java classes that matter, and what to do instead."""

JAVA_CODE_UNDERSTOOD = frozenset(
    {
        "OAuthBearerLoginCallbackHandler",
        "OAuthBearerUnsecuredLoginCallbackHandler",
        "OAuthBearerSaslClientCallbackHandler",
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "DefaultLogin",
        "IAMClientCallbackHandler",
        "IAMOAuthBearerLoginCallbackHandler",
        "GcpLoginCallbackHandler",
    }
)
"""Classes for JAVA_CODE that do what librdkafka does anyway, or what `tokens` does."""

# Java's classes and metrics, waits of calls that block only in Java, and what the connector answers itself.
IGNORED = frozenset(
    """
    auto.include.jmx.reporter bootstrap.controllers client.id.prefix commit.offsets.on.checkpoint
    default.api.timeout.ms exclude.internal.topics interceptor.classes
    internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported key.deserializer
    key.serializer max.block.ms max.poll.records metadata.max.idle.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.discovery.interval.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.ignore.keys
    register.consumer.metrics register.producer.metrics sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope.claim.name socket.connection.setup.timeout.max.ms
    ssl.keymanager.algorithm
    ssl.secure.random.implementation ssl.trustmanager.algorithm zookeeper.connect
    value.deserializer value.serializer
    """.split()
)
"""Properties of Java's clients and of Flink's connector that change nothing in librdkafka."""

CHECKED = frozenset({"ssl.enabled.protocols", "ssl.protocol"})
"""Java's properties that librdkafka does not have. A value is refused unless connections do what it says: see `tls`."""

ALL_NAMES = COMMON | CONSUMER | PRODUCER | IGNORED | STORES | CHECKED | {*RENAMED, *JAVA_CODE, "sasl.jaas.config"}
"""All names that are known."""

STORABLE = frozenset(
    """
    bootstrap.servers metadata.broker.list security.protocol
    sasl.mechanism sasl.mechanisms sasl.username
    sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.keytab
    sasl.oauthbearer.method sasl.oauthbearer.grant.type sasl.oauthbearer.token.endpoint.url
    sasl.oauthbearer.client.id sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.scope
    sasl.login.callback.handler.class sasl.client.callback.handler.class
    ssl.truststore.location ssl.truststore.type ssl.truststore.certificates ssl.ca.location ssl.ca.pem
    ssl.keystore.location ssl.keystore.type ssl.keystore.certificate.chain
    ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.crl.location
    https.ca.location https.ca.pem
    ssl.endpoint.identification.algorithm enable.ssl.certificate.verification ssl.enabled.protocols
    ssl.protocol ssl.cipher.suites ssl.curves.list ssl.sigalgs.list
    client.id client.id.prefix client.rack client.dns.lookup broker.address.family
    group.id group.instance.id isolation.level check.crcs allow.auto.create.topics auto.offset.reset
    socket.keepalive.enable socket.nagle.disable metadata.recovery.strategy
    """.split()
)
"""Properties that say how to reach a cluster and hold no secret, in Java's and librdkafka's names."""

_TEXT_IN_DOCUMENTS = """
    bootstrap.servers security.protocol sasl.mechanism sasl.mechanisms sasl.username
    sasl.kerberos.min.time.before.relogin sasl.login.callback.handler.class sasl.client.callback.handler.class
    sasl.oauthbearer.method sasl.oauthbearer.grant.type sasl.oauthbearer.client.id
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.scope sasl.oauthbearer.extensions
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub
    ssl.truststore.type ssl.keystore.type ssl.endpoint.identification.algorithm
    enable.ssl.certificate.verification ssl.cipher.suites ssl.curves.list ssl.sigalgs.list
    ssl.enabled.protocols ssl.protocol
    client.id client.id.prefix client.rack client.dns.lookup broker.address.family broker.address.ttl
    group.id group.instance.id auto.offset.reset
    api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.version.fallback
    connections.max.idle.ms message.copy.max.bytes
    message.max.bytes max.request.size metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms receive.buffer.bytes send.buffer.bytes
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse topic.metadata.propagation.max.ms
    fetch.error.backoff.ms fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms max.partition.fetch.bytes queued.max.messages.kbytes
    queued.min.messages heartbeat.interval.ms session.timeout.ms max.poll.interval.ms
    request.timeout.ms message.timeout.ms delivery.timeout.ms linger.ms queue.buffering.max.ms
    batch.num.messages batch.size buffer.memory
    queue.buffering.max.kbytes queue.buffering.max.messages compression.codec compression.type compression.level
    compression.gzip.level compression.lz4.level compression.zstd.level
    sticky.partitioning.linger.ms transaction.timeout.ms
"""
_NAMES_IN_DOCUMENTS = "sasl.kerberos.service.name sasl.kerberos.principal"
_SECRETS_IN_DOCUMENTS = """
    sasl.jaas.config sasl.password sasl.oauthbearer.client.secret
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem ssl.truststore.password ssl.keystore.password ssl.key.password
    ssl.keystore.key ssl.key.pem ssl.keystore.certificate.chain ssl.certificate.pem ssl.truststore.certificates
    ssl.ca.pem https.ca.pem
"""
_FILES_IN_DOCUMENTS = """
    ssl.truststore.location ssl.keystore.location ssl.ca.location ssl.certificate.location ssl.key.location
    ssl.crl.location https.ca.location sasl.kerberos.keytab sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
"""
_URLS_IN_DOCUMENTS = "sasl.oauthbearer.token.endpoint.url"

InDocument = Literal["text", "name", "secret", "file", "url"]
IN_DOCUMENTS: dict[str, InDocument] = {
    **dict.fromkeys(sorted(IGNORED), "text"),
    **dict.fromkeys(_TEXT_IN_DOCUMENTS.split(), "text"),
    **dict.fromkeys(_NAMES_IN_DOCUMENTS.split(), "name"),
    **dict.fromkeys(_SECRETS_IN_DOCUMENTS.split(), "secret"),
    **dict.fromkeys(_FILES_IN_DOCUMENTS.split(), "file"),
    **dict.fromkeys(_URLS_IN_DOCUMENTS.split(), "url"),
}
"""What a metadata document may set, and the kind of its value. `documents` has the rule of each kind.

What decides which records are read or acknowledged, and in which order, is the query's (`isolation.level`, `acks`,
`retries`, `partitioner`). A `text` goes to the client as it is. A `name` goes into the shell command of Kerberos. Only a
`secret` (or a certificate) may hold references. A `file` is read, and a `url` is called, by the process that makes the
client.
"""
