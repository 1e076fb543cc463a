"""Following the metadata: what is read from where, and what is said, after the metadata and the clusters have changed.

following_stories.txt has the stories, in the words of `play` and `state`. What they cannot say is in test_following_rules.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stories import read_stories
from tests.unit.source.rules.test_following_rules import DAY_MS, TP, Query, view

from dynamic_kafka.errors import CheckpointError, DataLossError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, initializer_from_json
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, ReadPolicy

OPTIONS: dict[str, dict[str, object]] = {
    "no retention": {"retention_ms": 0},
    "a day's retention": {"retention_ms": DAY_MS},
    "loss tolerated": {"fail_on_data_loss": False},
    "drain": {"drain": True},
}
BEGINNINGS = {
    "drained": "earliest, drain: c t=10 | read c t0 4 | -c t=10",
    "old": "earliest: old t=100 | read old t0 40",
    "two": "latest to latest: c t=100 u=100,- w=-; d~c v=100 x=- | read c u0 140 | read d v0 101",
}
CLUSTER = re.compile(
    r"(?P<removed>-?)(?P<name>\w+)(?P<away>\??)(?P<silent>!?)(?P<inactive>\*?)(~(?P<kafka_id>\w+))?"
    r"(@(?P<start>\w*)(>(?P<stop>\w+))?)?"
)
TOPIC = re.compile(r"(?P<removed>-?)(?P<name>\w+)(?P<id>['^]?)(?P<quiet>\.?)(=(?P<ends>[\d,?x!-]*))?")


def play(story: str) -> Query:
    """Play the steps of a story.

    `latest to latest, drain: c t=100,- | wait 6 | read c t0 40 | d~c@earliest t u=?`: with these options, cluster c shows
    topic t with an end and a partition without a leader. Six days later its partition 0 is read up to 40, and d is found.
    d is the Kafka cluster that c was and has starting offsets of its own (its stops would follow after `>`), t is not seen
    there and u does not exist.

    Clusters: `-c` is not in the metadata (any more), `c?` does not answer, `c!` shows its topics but answers no question
    about offsets, `c*` is called inactive by the metadata service. Topics: `-t` is not in the metadata (any more), `t'` was
    made again, `t^` has no topic id, `t.` has been quiet, `t=x` may not be seen. Ends: `-30` has no leader and ended at 30,
    `?30` does not exist any more and ended at 30, `8!6` is believed to have gone back to 6. Steps: `now 7` is the time,
    `options: ...` are new options, `idle ...` is a look that makes no batch.
    """
    options, steps = story.split(": ", 1)
    query = Query()
    query.policy = policy(options)
    for step in map(str.strip, steps.split("|")):
        match step.split():
            case ["now", time_ms]:
                query.now_ms = int(time_ms)
            case ["wait", days]:
                query.now_ms += int(days) * DAY_MS
            case ["read", cluster, split, end]:
                query.read(cluster, TP(split[0], int(split[1:])), int(end))
            case ["options:", *_]:
                query.policy = policy(step.removeprefix("options: "))
            case _:
                look(query, step)
    return query


def policy(options: str) -> ReadPolicy:
    """The policy of a query with these options."""
    offsets, *more = options.split(", ")
    start, _, stop = offsets.partition(" to ")
    choices = {key: value for name in more for key, value in OPTIONS[name].items()}
    return Query(initializer(start), stopping=initializer(stop) if stop else None, **choices).policy


def initializer(word: str) -> KafkaOffsetsInitializer:
    """Offsets by a word, or by a time."""
    return initializer_from_json({"timestamp": int(word)} if word.isdigit() else word)


def look(query: Query, step: str) -> None:
    """Look at clusters, and once more: what has not changed asks nothing and makes no batch."""
    desired, views = {}, {}
    silent, inactive, quiet, regressed = set(), set(), set(), {}
    for text in filter(None, step.removeprefix("idle ").split("; ")):
        first, *rest = text.split()
        cluster = CLUSTER.fullmatch(first)
        assert cluster is not None, first
        topics = [topic for one in rest if (topic := TOPIC.fullmatch(one))]
        assert len(topics) == len(rest), rest
        name = cluster["name"]
        if not cluster["removed"]:
            own = {key: initializer(cluster[key]) for key in ("start", "stop") if cluster[key]}
            named = frozenset(topic["name"] for topic in topics if not topic["removed"])
            desired[name] = DesiredCluster(named, {}, starting=own.get("start"), stopping=own.get("stop"))
        if not cluster["away"]:
            views[name] = seen(f"k{cluster['kafka_id'] or name}", topics)
        silent |= {name} if cluster["silent"] else set()
        inactive |= {name} if cluster["inactive"] else set()
        quiet |= {(name, topic["name"]) for topic in topics if topic["quiet"]}
        for topic in topics:
            for partition, end in enumerate((topic["ends"] or "").split(",")):
                if "!" in end:
                    regressed[name, TP(topic["name"], partition)] = int(end.split("!")[1])
    before = query.document
    changed = query.look(desired, views, silent=silent, inactive=inactive, quiet=quiet, regressed=regressed).changed
    assert not (changed and step.startswith("idle ")), step
    said = query.said
    if before is not None or changed:
        again = query.look(desired, views, silent=silent, inactive=inactive, quiet=quiet, regressed=regressed)
        assert not again.changed, step
        assert query.asked == []
    query.said = said


def seen(kafka_id: str, topics: list[re.Match[str]]) -> ClusterView:
    """What a cluster shows."""
    ends: dict[str, list[int | None]] = {}
    ids: dict[str, str] = {}
    last_ends: dict[TP, int] = {}
    missing, denied = set(), set()
    for topic in topics:
        name, text = topic["name"], topic["ends"]
        if text is None:
            continue
        if text == "x":
            denied.add(name)
        elif text.startswith("?"):
            missing.add(name)
            last_ends |= {TP(name, p): int(end) for p, end in enumerate(text[1:].split(",")) if end}
        else:
            known = [end.split("!")[0] for end in text.split(",")]
            ends[name] = [None if end.startswith("-") else int(end) for end in known]
            last_ends |= {TP(name, p): int(end[1:]) for p, end in enumerate(known) if end.startswith("-") and end[1:]}
            ids[name] = {"'": "id-new", "^": "", "": f"id-{name}"}[topic["id"]]
    return replace(
        view(kafka_id, **ends),
        topics=ids,
        missing=frozenset(missing),
        denied=frozenset(denied),
        last_ends=last_ends,
    )


def state(query: Query) -> str:
    """Where each cluster's partitions stand, in the words of the steps.

    `t=4<10,-` stands at 4 and ends at 10, and its next partition waits for its start. `~t` is drained, `(t=4)` retained.
    """
    assert query.document is not None
    found = []
    for name, cluster in sorted(query.document.clusters.items()):
        parts: dict[TP, str] = dict.fromkeys(cluster.unresolved, "-")
        parts |= {tp: str(end) for tp, (_, end) in cluster.ranges.items()}
        parts |= {tp: f"{parts.get(tp, '_')}<{stop}" for tp, stop in cluster.stops.items()}
        topics = {topic: {tp.partition: parts[tp] for tp in parts if tp.topic == topic} for topic, _ in sorted(parts)}
        texts = [
            f"{'~' * (topic in cluster.draining)}{topic}={','.join(of.get(p, '_') for p in range(max(of) + 1))}"
            for topic, of in topics.items()
        ]
        texts += [
            f"({topic}={','.join(str(kept.offsets.get(p, '_')) for p in range(max(kept.offsets, default=-1) + 1))})"
            for topic, kept in sorted(cluster.retained.items())
        ]
        found.append(" ".join((name, *texts)))
    return "; ".join(found) + " done" * bool(query.document.done)


@pytest.mark.parametrize(
    ("steps", "end", "said"), read_stories(Path(__file__).with_name("following_stories.txt"), BEGINNINGS)
)
def test_a_query_follows_the_metadata_as_its_story_says(steps: str, end: str, said: list[str]) -> None:
    """It ends in the state that the story says, or with an error, and all that it says last is expected."""
    if " of " in end:
        with pytest.raises((CheckpointError, DataLossError)) as caught:
            play(steps)
        assert (f"{type(caught.value).__name__} of {caught.value.cluster_id}", [str(caught.value)]) == (end, said)
        return
    query = play(steps)
    assert (state(query), query.said) == (end, said)
