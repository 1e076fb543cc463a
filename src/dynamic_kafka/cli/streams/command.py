"""`dynamic-kafka streams`: what the metadata service says, checked, and what it means for a query with a checkpoint."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from dynamic_kafka.cli.checks.findings import Finding, Result, error, ok, warning
from dynamic_kafka.cli.connection import (
    add_command,
    add_option_arguments,
    add_property_arguments,
    add_source,
    add_timeout,
    query_options_of,
    read_text,
)
from dynamic_kafka.cli.job import for_one_look, streams_of
from dynamic_kafka.cli.output import duration, show_json, show_line, show_table
from dynamic_kafka.cli.streams.checks import check_streams, quoted_list
from dynamic_kafka.cli.streams.next_start import NextStart, next_start, with_similar
from dynamic_kafka.errors import ConfigurationError, MetadataServiceError, listed, plural
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.subscriber import StreamSetSubscriber
from dynamic_kafka.source.configure import SUBSCRIPTIONS, SourceObjects, configure_source
from dynamic_kafka.source.document.checkpoint import Checkpoint, read_checkpoint
from dynamic_kafka.source.document.document import Document
from dynamic_kafka.source.driver.view import SourceView
from dynamic_kafka.source.rules.model import SourceSnapshot
from dynamic_kafka.source.settings import SourceSettings

__all__ = ["add_to"]

_EXAMPLES = """examples:
  dynamic-kafka streams -o metadata-service=file -o metadata-service.path=streams.yaml
  dynamic-kafka streams --options-file query.properties --diff s3a://bucket/checkpoints/orders
  dynamic-kafka streams -o kafka.bootstrap.servers=kafka:9092 -o subscribe=orders --diff /checkpoints/orders
  dynamic-kafka streams validate streams.yaml --strict
  dynamic-kafka streams validate streams.yaml -o 'metadata-service.allowed-references=file:/run/secrets/kafka/*'

The options are those of the query. Without one that says what to read, all streams are looked at; with --diff those of the
checkpoint. Without any option, `validate` notes what a query has to allow.

Exit codes: 0 if there is no error, and with --diff if the next start goes on with the same topics and warns of nothing;
1 for an error, and with --diff if the next start would end with one; 2 for wrong usage; 3 with --diff if something differs.
"""
_DIFFERS = 3
_WORST_FIRST = (Result.ERROR, Result.WARNING, Result.NOTE, Result.OK)


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    text = "Check what the metadata service says, and what a query would do with it."
    parser = add_command(commands, "streams", text, _run, _EXAMPLES)
    _add_common(parser)
    parser.add_argument("--diff", metavar="CHECKPOINT", help="say what the next start with this checkpoint would do")
    add_source(parser)
    parser.add_argument("--all", action="store_true", help="also show what is right")
    actions = parser.add_subparsers(metavar="validate", title="another action")
    text = "Check a metadata document, for the CI of its owners. No cluster is asked, unless --connect is given."
    validating = add_command(actions, "validate", text, _validate)
    validating.add_argument("file", metavar="FILE", help="the YAML or JSON document; - reads standard input")
    validating.add_argument("--strict", action="store_true", help="end with 1 for warnings, too")
    validating.add_argument("--connect", action="store_true", help="ask the clusters for the topics as well")
    _add_common(validating)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_option_arguments(parser)
    add_property_arguments(parser)
    add_timeout(parser, 10.0)


def _settings(args: argparse.Namespace, options: Mapping[str, str], document: Document | None) -> SourceSettings:
    """Return the settings of the query for one look; streams that are not named are all, or those of the checkpoint."""
    options, objects = dict(options), SourceObjects()
    if not SUBSCRIPTIONS & {key.lower() for key in options}:
        if document is not None and document.streams:
            objects = SourceObjects(subscriber=StreamSetSubscriber(document.streams))
        else:
            options["stream-pattern"] = ".*"
    return for_one_look(configure_source(options, objects), args.timeout)


# --- what the metadata service says ---------------------------------------------------------------------------------------


def _run(args: argparse.Namespace) -> int:
    if args.diff is not None:
        return _diff(args)
    options = query_options_of(args)
    if not options:
        raise ConfigurationError(
            "No options are given. Give those of the query with -o or --options-file, such as -o metadata-service=file -o "
            "metadata-service.path=streams.yaml"
        )
    settings = _settings(args, options, None)
    streams = streams_of(settings)
    by_pattern = settings.pattern is not None
    findings = check_streams(streams, settings.document_rules, settings.properties, by_pattern=by_pattern)
    if not any(finding.result is Result.ERROR for finding in findings):
        findings += _asked(settings)
    return _show_findings(args, streams, findings, every=args.all, by_pattern=by_pattern)


def _asked(settings: SourceSettings) -> list[Finding]:
    """Ask the clusters for their topics, and return what is found."""
    view = SourceView(replace(settings, cluster_failure_mode="isolate"))
    with closing(view):
        seen = view.collect(None, at_once=True)
        return list(_topics_found(settings, seen, view))


def _topics_found(settings: SourceSettings, seen: SourceSnapshot, view: SourceView) -> Iterator[Finding]:
    ids: dict[str, list[str]] = {}
    if isinstance(settings.subscriber, StreamSetSubscriber):
        for stream in sorted(settings.subscriber.stream_ids - seen.streams.keys()):
            yield error("the metadata service does not know it", "check the id", f"stream '{stream}'")
    for name, desired in seen.desired.items():
        where = f"cluster '{name}'"
        found = seen.views.get(name)
        if found is None:
            what = str(view.monitors[name].error or "it has not answered").removeprefix(f"Cluster '{name}' ")
            topics = f"{plural(len(desired.topics), 'topic')} not checked"
            yield error(what, f"{topics}; dynamic-kafka doctor finds the step that fails", where)
            continue
        if found.kafka_id:
            ids.setdefault(found.kafka_id, []).append(name)
        if settings.pattern is not None and not desired.topics:
            what = f"no topic matches the pattern '{settings.pattern.pattern}', so nothing is read"
            yield warning(what, "correct the pattern, or create a topic", where)
        missing = sorted(desired.topics & (found.missing | found.unconfirmed))
        for topic, similar in with_similar(missing, name, view, settings):
            hint = f"did you mean '{similar}'?" if similar else "create it, or correct the name"
            yield error("it does not exist, say the brokers", hint, f"{where}, topic '{topic}'")
        for topic in sorted(desired.topics & found.denied):
            yield error(
                "this user may not describe it",
                "grant Describe and Read on it; dynamic-kafka doctor checks all rights",
                f"{where}, topic '{topic}'",
            )
        for topic in sorted(desired.topics & found.topics.keys()):
            count = found.partitions[topic]
            without = [p for p in range(count) if (topic, p) not in found.ends]
            partitions = plural(count, "partition")
            if without:
                what = f"{partitions}, of which {listed(map(str, without), 5)} did not answer: no leader"
                yield error(what, "look at the brokers of the cluster", f"{where}, topic '{topic}'")
            else:
                yield ok(partitions, where=f"{where}, topic '{topic}'")
    for kafka_id, names in ids.items():
        if len(names) > 1:
            yield warning(
                f"they are one Kafka cluster (cluster.id {kafka_id})",
                "give it one name; a topic under two names is read once",
                f"clusters {quoted_list(names)}",
            )


# --- a document -----------------------------------------------------------------------------------------------------------


def _validate(args: argparse.Namespace) -> int:
    from dynamic_kafka.metadata.document import parse_document

    name = "standard input" if args.file == "-" else args.file
    try:
        text = read_text(args.file)
    except ConfigurationError as problem:  # for a script, the document is not valid
        raise MetadataServiceError(str(problem)) from None
    try:
        streams = list(parse_document(text, name))
    except MetadataServiceError as problem:
        return _show_findings(args, None, list(_faults(problem, name)), every=False)
    given = query_options_of(args)
    options = given | {"metadata-service": "file", "metadata-service.path": args.file}
    query = _settings(args, options, None)
    findings = check_streams(streams, query.document_rules, query.properties if given else None)
    if args.connect and not any(finding.result is Result.ERROR for finding in findings):
        if args.file == "-":
            raise ConfigurationError("--connect needs a file, not standard input")
        findings += _asked(query)
    return _show_findings(args, streams, findings, every=False)


def _faults(invalid: MetadataServiceError, name: str) -> Iterator[Finding]:
    for line in str(invalid).removeprefix(f"Metadata document '{name}' is invalid: ").splitlines():
        where, colon, what = line.partition(": ")
        yield error(what if colon else line, "", where if colon else "the document")


def _show_findings(
    args: argparse.Namespace,
    streams: Sequence[KafkaStream] | None,
    findings: Sequence[Finding],
    *,
    every: bool,
    by_pattern: bool = False,
) -> int:
    """Show findings and their counts, and return the exit code. Without streams, the document has none that is known."""
    # A whole cluster comes before a topic.
    findings = sorted(findings, key=lambda f: (_WORST_FIRST.index(f.result), "topic '" in f.where))
    counts = Counter(finding.result for finding in findings)
    if args.output == "json":
        show_json(
            {
                "streams": streams
                if streams is None
                else {s.stream_id: {n: sorted(c.topics) for n, c in s.clusters.items()} for s in streams},
                "findings": [finding._asdict() for finding in findings],
            }
        )
    else:
        shown = [finding for finding in findings if finding.result is not Result.OK or every]
        show_table([{"RESULT": f.result, "WHERE": f.where, "FOUND": f.what, "WHAT TO DO": f.remedy} for f in shown])
        if streams is not None:
            clusters = {name for stream in streams for name in stream.clusters}
            topics = {(n, topic) for stream in streams for n, c in stream.clusters.items() for topic in c.topics}
            shown_topics = "topics by a pattern" if by_pattern else plural(len(topics), "topic")
            show_line(
                f"{plural(len(streams), 'stream')}, {plural(len(clusters), 'cluster')}, {shown_topics}: "
                f"{plural(counts[Result.ERROR], 'error')}, {plural(counts[Result.WARNING], 'warning')}"
            )
    return 1 if counts[Result.ERROR] or (getattr(args, "strict", False) and counts[Result.WARNING]) else 0


# --- the next start -------------------------------------------------------------------------------------------------------


def _diff(args: argparse.Namespace) -> int:
    checkpoint = read_checkpoint(args.diff)
    batch = checkpoint.last_batch()
    document = batch.document(batch.source(args.source))
    options = query_options_of(args)
    if not options:
        raise ConfigurationError(
            "No options are given. Give those of the query with -o or --options-file: a checkpoint does not have them"
        )
    settings = _settings(args, options, document)
    streams_of(settings)  # a service that fails is an error at once, and not after the query's patience
    found = next_start(settings, document)
    stops = found.error is not None or bool(found.unreachable and settings.cluster_failure_mode == "fail")
    differs = any(change.change != "goes on" for change in found.changes) or any(
        level == "warning" for level, _ in found.events
    )
    if args.output == "json":
        show_json(
            {
                "checkpoint": checkpoint.files.location,
                "batch": checkpoint.last,
                "finished": not checkpoint.is_unfinished,
                "stops": stops,
                "differs": differs,
                "error": found.error and {"type": type(found.error).__name__, "text": str(found.error)},
                "unreachable": dict(found.unreachable),
                "changes": [change._asdict() for change in found.changes],
                "events": [{"level": level, "text": text} for level, text in found.events],
            }
        )
    else:
        _show_next(args, checkpoint, settings, found)
    return 1 if stops else _DIFFERS if differs else 0


def _show_next(args: argparse.Namespace, checkpoint: Checkpoint, settings: SourceSettings, found: NextStart) -> None:
    shown = [change for change in found.changes if change.change != "goes on" or args.all]
    headings = ("CHANGE", "CLUSTER", "TOPIC", "PARTITIONS", "READS", "BEFORE")
    show_table(
        [dict(zip(headings, [cell if cell != "" else None for cell in change], strict=True)) for change in shown]
    )
    for level, text in found.events:
        show_line(f"{level}: {text}")
    if checkpoint.is_unfinished:
        show_line(f"Batch {checkpoint.last} is not finished: the next start first runs it again as it was planned.")
    if found.error is not None:
        text = str(found.error).partition("\n")[0]
        show_line(f"The next start ends with {type(found.error).__name__}: {text}")
        return
    for reason in found.unreachable.values():
        show_line(f"error: {reason}")
    if found.unreachable and settings.cluster_failure_mode == "fail":
        show_line(
            f"The next start ends with ClusterUnavailableError if {quoted_list(found.unreachable)} does not answer by then: "
            "cluster-failure-mode=fail."
        )
    going = [change for change in found.changes if change.change == "goes on"]
    show_line(
        f"{plural(len(going), 'topic')} {'goes' if len(going) == 1 else 'go'} on as before; the first batch has "
        f"{plural(sum(change.unread for change in found.changes), 'offset')} to read without limits."
    )
    if any(change.change == "removed" for change in found.changes):
        show_line(
            f"Positions of what is removed are kept for {duration(settings.retention_ms)}, in case it comes back."
        )
