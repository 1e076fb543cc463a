"""The cost of planning a batch grows linearly with partitions and clusters: measured in CPU time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
from benchmarks.simulation import micro_batch

from dynamic_kafka.initializer import KafkaOffsetsInitializer, KafkaTopicPartition
from dynamic_kafka.source.document.collector import without_collector
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.rules.model import ClusterView, DesiredCluster, OffsetAnswers, ReadPolicy, SourceSnapshot
from dynamic_kafka.source.rules.reconcile import reconcile

# At four times the size, a linear cost is four times as high and a quadratic one sixteen times. Between them is eight:
# a machine that does other work meanwhile was seen to give 5.0 for a linear cost.
MOST = 8.0


def growth(*steps: Callable[[], object], rounds: int = 5) -> float:
    """The ratio of the least CPU times of two steps, taken in turns: what else runs disturbs both alike."""
    gc.collect()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for step, taken in zip(steps, times, strict=True):
            began = time.process_time()
            step()
            taken.append(time.process_time() - began)
    print([round(min(taken), 4) for taken in times])
    return min(times[1]) / min(times[0])


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ((2_500, 100, 1), (10_000, 100, 1)),
        ((2_500, 1, 1), (10_000, 1, 1)),
        ((5_000, 10, 50), (20_000, 10, 200)),
        ((20_000, 10, 100), (20_000, 10, 400)),
    ],
    ids=["partitions", "one-partition topics", "clusters", "the same partitions on more clusters"],
)
def test_four_times_the_size_costs_about_four_times_as_much(
    small: tuple[int, int, int], large: tuple[int, int, int]
) -> None:
    """No rule compares each partition or cluster with each other one.

    The sizes fit the processor's caches: 160,000 partitions of one cluster cost 1.6 times as much each as 40,000, because
    looking an entry up in a large dictionary takes longer. So a ratio of larger ones would measure the machine.
    """
    steps = micro_batch(*small), micro_batch(*large)
    ratio = growth(*steps)
    if ratio > MOST:  # something else ran meanwhile, or it is true
        ratio = min(ratio, growth(*steps))
    assert ratio <= MOST


def change(topics: int, what: str) -> Callable[[], object]:
    """A step in which all topics of a cluster are removed, deleted or recreated, or the cluster has another name."""
    names = [f"topic-{i:05d}" for i in range(topics)]
    tps = [KafkaTopicPartition(name, 0) for name in names]
    state = ClusterOffsets(
        kafka_id="k",
        discovered=True,
        topics=dict.fromkeys(names, "id"),
        ranges=dict.fromkeys(tps, (0, 5)),
        draining=set(names) if what == "drained" else set(),
    )
    previous = Document({"stream": {"c": frozenset(names)}}, {"c": state})
    name = "d" if what == "renamed" else "c"
    found = {} if what == "deleted" else dict.fromkeys(names, "other" if what == "recreated" else "id")
    view = ClusterView(
        "k", found, dict.fromkeys(found, 1), dict.fromkeys(tps, 5), missing=frozenset(names) - found.keys()
    )
    wanted = frozenset[str]() if what in ("removed", "drained") else frozenset(names)
    policy = ReadPolicy(KafkaOffsetsInitializer.earliest(), None, fail_on_data_loss=False, retention_ms=1, drain=True)
    answers = OffsetAnswers(start={(name, tp): 0 for tp in tps})

    def step() -> object:
        document = reconcile(
            previous,
            SourceSnapshot(
                {"stream": {name: wanted}},
                {name: DesiredCluster(wanted, {"bootstrap.servers": "c:9092"})},
                {name: view},
                fresh=True,
                quiet={(name, topic) for topic in names} if what == "drained" else (),
            ),
            policy,
            answers,
            now_ms=0,
        ).document
        left = document.clusters[name]
        assert len(left.topics) == (0 if what in ("drained", "deleted") else topics)
        assert len(left.draining) == (topics if what == "removed" else 0)
        return document

    return step


@pytest.mark.parametrize("what", ["removed", "drained", "deleted", "recreated", "renamed"])
def test_a_change_of_all_topics_of_a_cluster_grows_like_their_number(what: str) -> None:
    """No rule looks at all partitions of a cluster for each of its topics."""
    steps = change(2_000, what), change(8_000, what)
    ratio = growth(*steps)
    if ratio > MOST:
        ratio = min(ratio, growth(*steps))
    assert ratio <= MOST


@pytest.mark.slow
def test_a_million_partitions_on_a_thousand_clusters_cost_about_as_much_each_as_ten_thousand() -> None:
    """In CPU time of one core. Larger dictionaries cost up to 1.6 times as much for each entry.

    The time itself is the machine's: the same code took 3.2 s on one and 4.4 to 7 s on others.
    """
    assert growth(micro_batch(10_000, 100, 10), micro_batch(1_000_000, 100, 1_000), rounds=2) <= 100 * 3


def test_the_collector_is_as_it_was_afterwards() -> None:
    """Also after an error, and if the caller does without it."""

    @without_collector
    def divide(by: int) -> bool:
        return 1 // by > 0 and gc.isenabled()

    assert gc.isenabled()
    assert divide(1) is False
    with pytest.raises(ZeroDivisionError):
        divide(0)
    assert gc.isenabled()
    gc.disable()
    try:
        divide(1)
        assert not gc.isenabled()
    finally:
        gc.enable()
