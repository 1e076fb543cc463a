"""`dynamic-kafka offsets translate`: where the positions of a checkpoint are on another cluster, and what proves it."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import replace
from typing import Any, get_args

from dynamic_kafka.cli.connection import GROUP, query_options_of
from dynamic_kafka.cli.job import snapshot_of
from dynamic_kafka.cli.output import show_json, show_line, show_table, warn
from dynamic_kafka.continuation import Continues, Way
from dynamic_kafka.errors import CheckpointError, ClusterUnavailableError, ConfigurationError, listed
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.cluster import ClusterConnection
from dynamic_kafka.metadata.snapshot import Snapshot
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.document.checkpoint import read_checkpoint
from dynamic_kafka.source.document.document import ClusterOffsets
from dynamic_kafka.source.document.evidence import MoveRequest, Placement
from dynamic_kafka.source.driver.movers import answer
from dynamic_kafka.source.driver.record_log import OffsetSyncs

__all__ = ["WAYS", "topic_pair", "translate_positions"]

WAYS = get_args(Way)


def topic_pair(text: str) -> tuple[str, str]:
    """Parse `old=new` for argparse."""
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError("expected OLD=NEW, the names of a topic on the two clusters")
    return old, new


def translate_positions(args: argparse.Namespace) -> int:
    """`offsets translate`: nothing is changed. Return 0 if each partition has the wanted guarantee."""
    checkpoint = read_checkpoint(args.checkpoint)
    batch = checkpoint.last_batch()
    state = batch.document(batch.source(args.source)).clusters.get(args.old)
    if state is None or not state.ranges:
        raise CheckpointError(f"The checkpoint has no positions on cluster '{args.old}'")
    options = query_options_of(args)
    if not options:
        raise ConfigurationError("Give the options of the query with -o or --options-file: they lead to the metadata")
    settings = configure_source(options)
    snapshot = snapshot_of(settings)
    if args.new not in snapshot.clusters:
        raise ConfigurationError(
            f"The metadata does not name cluster '{args.new}'; it has {listed(snapshot.clusters, 5)}"
        )
    continues = _continues(args, snapshot)
    known = snapshot.clusters.get(args.old)
    properties = {
        args.old: settings.cluster_properties(state.properties if known is None else known.properties),
        args.new: settings.cluster_properties(snapshot.clusters[args.new].properties),
    }
    timeout_ms = int(args.timeout * 1000)
    readable = _answers(args.old, properties[args.old], state, timeout_ms)
    found: dict[MoveRequest, Placement] = {}
    syncs = OffsetSyncs()
    for topic in sorted(snapshot.clusters[args.new].topics):
        old_topic = continues.old_topic(topic)
        for tp, (_, position) in sorted(state.ranges.items()):
            if tp.topic == old_topic:
                request = MoveRequest(
                    args.new,
                    KafkaTopicPartition(topic, tp.partition),
                    args.old,
                    tp,
                    position,
                    continues.by,
                    continues.offset_syncs,
                    readable,
                    state.marks.get(tp, ()),
                )
                found[request] = answer(request, properties, syncs, group_id=GROUP, timeout_s=args.timeout)
    if not found:
        raise ConfigurationError(
            f"No topic of '{args.new}' in the metadata continues one of '{args.old}' in the checkpoint; say which with "
            "--topic OLD=NEW"
        )
    moves = all(p.position is not None and continues.allows(p.guarantee) for p in found.values())
    _show(args, continues, found, moves=moves)
    return 0 if moves else 1


def _continues(args: argparse.Namespace, snapshot: Snapshot) -> Continues:
    """Return what the metadata says, changed by the arguments."""
    said = snapshot.clusters[args.new].continues
    if said is None or said.cluster != args.old:
        if args.by is None:
            raise ConfigurationError(
                f"The metadata does not say that '{args.new}' continues '{args.old}'; say how with --by, one of "
                f"{', '.join(WAYS)}"
            )
        said = Continues(args.old, args.by)
    return replace(said, by=args.by or said.by, topics=dict(args.topic) or said.topics)


def _answers(name: str, properties: dict[str, str], state: ClusterOffsets, timeout_ms: int) -> bool:
    """Return whether the old cluster answers, and is the one that was read."""
    with closing(ClusterConnection(name, properties, group_id=GROUP, timeout_ms=timeout_ms)) as connection:
        try:
            kafka_id = connection.kafka_id()
        except ClusterUnavailableError as error:
            warn(f"{error}. The marks in the checkpoint are used instead")
            return False
    if kafka_id and state.kafka_id and kafka_id != state.kafka_id:
        warn(
            f"cluster '{name}' is another one now (cluster.id {kafka_id}). The marks in the checkpoint are used instead"
        )
        return False
    return True


def _show(args: argparse.Namespace, continues: Continues, found: dict[MoveRequest, Placement], *, moves: bool) -> None:
    entries = [_entry(request, placement) for request, placement in found.items()]
    if args.output == "json":
        show_json({"from": args.old, "to": args.new, "by": continues.by, "moves": moves, "partitions": entries})
        return
    rows = [{name.upper().replace("_", " "): value for name, value in entry.items()} for entry in entries]
    show_table([{**row, "GUARANTEE": row["GUARANTEE"] or "none"} for row in rows])
    if moves:
        show_line(f"A query that moves from '{args.old}' to '{args.new}' by {continues.by} goes on there.")
    else:
        show_line(
            f"A query would wait: not every partition reaches the guarantee '{continues.guarantee}'. Nothing was changed."
        )


def _entry(request: MoveRequest, placement: Placement) -> dict[str, Any]:
    return {
        "topic": request.old_partition.topic,
        "partition": request.old_partition.partition,
        "position": request.position,
        "new_topic": request.partition.topic,
        "new_position": placement.position,
        "guarantee": None if placement.position is None else placement.guarantee,
        "read_again": placement.overlap,
        "evidence": placement.evidence,
    }
