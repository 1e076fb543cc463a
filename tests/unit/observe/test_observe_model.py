"""The model of what queries are doing: how reports are joined, when things are gone, and what becomes a series."""

from __future__ import annotations

import json

import pytest
from tests.observed import BEGAN_MS, cluster, metadata, read, sink, source, topic, worker

from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.reports import Report
from dynamic_kafka.observe.series import SERIES, Samples, samples


def model_of(*reports: Report, now_ms: int = BEGAN_MS) -> Model:
    """A model that has taken these reports."""
    model = Model(now_ms)
    for report in reports:
        model.report(report, now_ms)
    return model


def series_of(*reports: Report, now_ms: int = BEGAN_MS) -> Samples:
    """The samples after these reports."""
    return samples(model_of(*reports, now_ms=now_ms).status(now_ms))


def value(found: Samples, name: str, *labels: str) -> float | None:
    """The value of a series of the query "orders"."""
    return found.get(f"dynamic_kafka_{name}", {}).get(("orders", *labels))


def test_the_parts_of_a_query_are_joined_by_sparks_id() -> None:
    """A source does not know the id; its workers do, and so does the sink."""
    status = model_of(
        source(cluster()), worker(read({0: 5}), query_id="id-1", name="nightly"), sink(query_id="id-1")
    ).status(BEGAN_MS)
    (query,) = status["queries"]
    assert (query["query"], query["query_id"], query["state"]) == ("nightly", "id-1", "running")
    assert [s["records"] for s in query["sources"]] == [5]
    assert [s["sink"] for s in query["sinks"]] == ["invoices"]


def test_the_label_is_the_option_then_sparks_name_then_the_streams() -> None:
    """And the parts of a query are joined by the option, too."""
    assert [q["query"] for q in model_of(source(cluster())).status(BEGAN_MS)["queries"]] == ["orders"]
    assert [q["query"] for q in model_of(source(cluster()), worker(name="x")).status(BEGAN_MS)["queries"]] == ["x"]
    reports: list[Report] = [source(cluster(), label="mine"), worker(name="nightly"), sink(label="mine")]
    (query,) = model_of(*reports).status(BEGAN_MS)["queries"]
    assert (query["query"], len(query["sinks"])) == ("mine", 1)


def labels_at(model: Model, now_ms: int) -> dict[str, str]:
    """The labels by the queries' ids, or by their runs."""
    found = model.status(now_ms)["queries"]
    return {q["query_id"] or q["sources"][0]["run"]: q["query"] for q in found}


def test_a_label_stays_with_its_query_when_another_one_ends_and_starts_again() -> None:
    """Both read the same topic and have no name. The first one is stopped, forgotten, and comes back."""
    model = model_of(source(cluster(), reporter="a1"), source(cluster(), reporter="b1"))
    assert labels_at(model, BEGAN_MS) == {"a1": "orders", "b1": "orders (run b1)"}
    model.report(worker(run="a1", query_id="A"), BEGAN_MS)
    model.report(worker(run="b1", query_id="B", reporter="other"), BEGAN_MS)
    assert labels_at(model, BEGAN_MS) == {"A": "orders", "B": "orders (2)"}
    for later_ms in range(BEGAN_MS, BEGAN_MS + 20 * 60_000, 60_000):  # only B reports
        model.report(source(cluster(), reporter="b1", sequence=later_ms), later_ms)
        model.tick(later_ms)
    assert labels_at(model, later_ms) == {"B": "orders (2)"}
    model.report(source(cluster(), reporter="a2"), later_ms)
    assert labels_at(model, later_ms) == {"B": "orders (2)", "a2": "orders (run a2)"}
    model.report(worker(run="a2", query_id="A", reporter="third"), later_ms)
    assert labels_at(model, later_ms) == {"B": "orders (2)", "A": "orders"}


def test_numbers_of_clients_go_with_their_processes() -> None:
    """A process that has not reported for a minute is forgotten, however many there were."""
    numbers = {"east": {"requests_total": 1.0, "queued_messages": 2.0}}
    model = model_of(source(cluster()))
    for second in range(600):
        now_ms = BEGAN_MS + 1000 * second
        model.report(source(cluster(), sequence=second + 2), now_ms)
        model.report(worker(reporter=f"process {second}", clients=numbers), now_ms)
        if second % 5 == 0:
            model.tick(now_ms)
    (part,) = model._sources.values()
    assert len(part.clients["east"]) <= 66
    (seen,) = model.status(now_ms)["queries"][0]["sources"][0]["clusters"]
    assert seen["clients"]["requests_total"] == 600


def test_long_texts_are_cut_and_say_how_long_they_were() -> None:
    """An error of 100 kB is not sent to each reader of the page once a second."""
    long = "x" * 100_000
    down = cluster("east", state="unreachable", reason=long, missing=[long])
    failing = metadata(failures=1, consecutive_failures=1, last_error=long)
    events = [{"time_ms": BEGAN_MS, "level": "error", "text": long}]
    status = model_of(
        source(down, metadata=failing, events=events, reason=long), sink(reason=long, phase="failed")
    ).status(BEGAN_MS)
    assert "(100000 characters; the log of the driver has them all)" in status["queries"][0]["reason"]
    assert len(json.dumps(status)) < 60_000


def test_queries_are_shown_worst_first() -> None:
    """Those that have failed, then those that do not work, then the late ones, then the others as they were started."""
    late = topic(end=(30,), behind_since_ms=(BEGAN_MS - 100_000,))
    down = cluster("west", state="unreachable", reason="no broker answers")
    reports = [
        source(cluster(), reporter="a", label="fine"),
        source(cluster("east", late), reporter="b", label="late"),
        source(down, reporter="c", label="degraded"),
        source(cluster(), reporter="d", label="also fine"),
        source(cluster(), reporter="e", label="failed", state="failed", reason="why"),
    ]
    queries = model_of(*reports).status(BEGAN_MS)["queries"]
    assert [q["query"] for q in queries] == ["failed", "degraded", "late", "fine", "also fine"]


def test_a_query_of_which_only_a_sink_is_known_runs_for_a_minute_after_it_reported() -> None:
    """Then nobody here knows whether it still runs."""
    model = model_of(sink(name="nightly"))
    assert model.status(BEGAN_MS + 59_000)["queries"][0]["state"] == "running"
    (query,) = model.status(BEGAN_MS + 61_000)["queries"]
    assert query["state"] == "unknown"
    assert query["reason"] == "its sink has not committed for 61 s, and nothing else of it reports here"


def test_lag_is_the_time_since_the_end_was_seen_beyond_the_position() -> None:
    """What was there before this run looked has the age of the last record that was read."""
    behind = cluster(
        "east", topic(current=(10, 10, 10), end=(10, 30, 12), behind_since_ms=(None, BEGAN_MS, BEGAN_MS + 4000))
    )
    found = series_of(source(behind), now_ms=BEGAN_MS + 5000)
    assert [value(found, "source_lag_seconds", "east", "orders", p) for p in "012"] == [0.0, 5.0, 1.0]
    assert [value(found, "source_pending_records", "east", "orders", p) for p in "012"] == [0, 20, 2]
    at_start = cluster("east", topic(end=(30,), behind_since_ms=(BEGAN_MS,)), watched_since_ms=BEGAN_MS)
    old = worker(read({0: 1}, timestamp_ms=BEGAN_MS - 3_600_000))
    found = series_of(source(at_start), old, now_ms=BEGAN_MS + 5000)
    assert value(found, "source_lag_seconds", "east", "orders", "0") == 3605.0


def test_an_end_that_is_not_known_has_no_lag() -> None:
    """Absence of knowledge is not a number."""
    found = series_of(source(cluster("east", topic(end=(None,)))))
    assert value(found, "source_pending_records", "east", "orders", "0") is None
    assert value(found, "source_lag_seconds", "east", "orders", "0") is None
    assert value(found, "source_current_offset", "east", "orders", "0") == 10
    assert value(found, "source_committed_offset", "east", "orders", "0") is None


def test_what_a_source_reports_no_more_has_no_series() -> None:
    """A cluster that was removed, and then all numbers of the query when its process has ended."""
    model = model_of(source(cluster("east"), cluster("west")))
    model.report(source(cluster("east"), sequence=2), BEGAN_MS)
    found = samples(model.status(BEGAN_MS))
    assert {labels[1] for labels in found["dynamic_kafka_source_pending_records"]} == {"east"}
    model.gone("run", BEGAN_MS)
    assert len(model.status(BEGAN_MS + 1_000)["queries"]) == 1, "it may connect again"
    left = {"dynamic_kafka_query_info", "dynamic_kafka_query_state"}
    assert samples(model.status(BEGAN_MS + 10_000)).keys() == left
    model.tick(BEGAN_MS + 16 * 60_000)
    assert samples(model.status(BEGAN_MS + 16 * 60_000)) == {}


def test_a_query_whose_reader_ends_without_a_word_has_ended() -> None:
    """It was stopped, or failed somewhere else. It is shown for a quarter of an hour, or until it runs again."""
    model = model_of(source(cluster()), worker(query_id="id-1"), sink(query_id="id-1"))
    model.gone("run", BEGAN_MS)
    (query,) = model.status(BEGAN_MS + 4_000)["queries"]
    assert query["state"] == "running", "its process may connect again"
    model.tick(BEGAN_MS + 10_000)
    (query,) = model.status(BEGAN_MS + 10_000)["queries"]
    assert query["state"] == "ended"
    assert "the log of the driver says which" in query["reason"]
    fresh = cluster(seen_ms=BEGAN_MS + 20_000)
    again: list[Report] = [source(fresh, reporter="again"), worker(reporter="other", run="again", query_id="id-1")]
    for report in again:
        model.report(report, BEGAN_MS + 20_000)
    (query,) = model.status(BEGAN_MS + 20_000)["queries"]
    assert (query["state"], len(query["sources"])) == ("running", 1)


def test_a_query_that_ends_after_a_batch_was_not_written_has_failed() -> None:
    """The sink knows why."""
    failed = sink("third", query_id="id-1", phase="failed", reason="1 of 1 tasks failed")
    model = model_of(source(cluster()), worker(query_id="id-1"), failed)
    model.gone("run", BEGAN_MS)
    (query,) = model.status(BEGAN_MS + 10_000)["queries"]
    assert (query["state"], query["reason"]) == ("failed", "the last batch was not written: 1 of 1 tasks failed")


def test_a_query_that_has_ended_says_what_did_not_work_then() -> None:
    """The sink only saw that its task failed: the task had waited for a cluster that was dead."""
    down = cluster("west", state="unreachable", reason="Cluster 'west': no broker answers", failing_since_ms=BEGAN_MS)
    failed = sink("third", query_id="id-1", phase="failed", reason="1 of 1 tasks failed")
    model = model_of(source(cluster("east"), down), worker(query_id="id-1"), failed)
    model.gone("run", BEGAN_MS)
    (query,) = model.status(BEGAN_MS + 10_000)["queries"]
    batch = "the last batch was not written: 1 of 1 tasks failed"
    assert query["reason"] == f"{batch}. When it ended: Cluster 'west': no broker answers"


def test_a_topic_that_does_not_exist_degrades_its_query() -> None:
    """Nothing of it is read, and nobody would see that in numbers."""
    text = "Topic 'ordres' does not exist on cluster 'east'; did you mean 'orders'?"
    model = model_of(source(cluster(missing=[text])))
    (query,) = model.status(BEGAN_MS)["queries"]
    assert (query["state"], query["reason"]) == ("degraded", text)
    assert value(samples(model.status(BEGAN_MS)), "source_missing_topics", "east") == 1


def test_the_records_of_a_topic_never_fall() -> None:
    """Also if it is not read any more, and may come back."""
    gone = topic(state="retained", partitions=[], current=(), committed=[], end=(), behind_since_ms=())
    report = source(cluster("east", gone), sequence=2)
    found = series_of(source(cluster()), worker(read({0: 5})), report)
    assert found["dynamic_kafka_source_records_total"] == {("orders", "east", "orders"): 5}


def test_topics_that_have_not_changed_are_not_reported_again() -> None:
    """A server that does not have them asks for all."""
    model = model_of(source(cluster("east", topic(end=(15,)))))
    same = cluster("east", seen_ms=BEGAN_MS + 1000) | {"topics": None}
    assert model.report(source(same, sequence=2), BEGAN_MS)
    (seen,) = model.status(BEGAN_MS)["queries"][0]["sources"][0]["clusters"]
    assert (seen["seen_ms"], seen["pending_records"]) == (BEGAN_MS + 1000, 5)
    same["topics"] = None
    assert not Model(BEGAN_MS).report(source(same, sequence=3), BEGAN_MS)


def test_a_failed_query_keeps_its_reason_and_loses_its_numbers() -> None:
    """It is shown for a quarter of an hour, or until it runs again."""
    failed = source(cluster(), sequence=2, state="failed", reason="Cluster 'east' does not answer")
    model = model_of(source(cluster()), worker(query_id="id-1"), failed)
    model.gone("run", BEGAN_MS)
    (query,) = model.status(BEGAN_MS + 60_000)["queries"]
    assert (query["state"], query["reason"]) == ("failed", "Cluster 'east' does not answer")
    assert samples(model.status(BEGAN_MS + 60_000)).keys() == {"dynamic_kafka_query_info", "dynamic_kafka_query_state"}
    assert model.status(BEGAN_MS + 16 * 60_000)["queries"] == []
    model.report(source(cluster(), reporter="again"), BEGAN_MS)
    model.report(worker(reporter="other", run="again", query_id="id-1"), BEGAN_MS)
    (query,) = model.status(BEGAN_MS)["queries"]
    assert (query["state"], len(query["sources"])) == ("running", 1)


def test_a_query_is_degraded_while_a_cluster_or_the_service_fails() -> None:
    """The reasons are told."""
    down = cluster("west", state="unreachable", reason="Cluster 'west': no broker answers", failing_since_ms=BEGAN_MS)
    failing = metadata(failures=1, consecutive_failures=1, last_error="HTTP 500")
    (query,) = model_of(source(cluster("east"), down, metadata=failing)).status(BEGAN_MS + 3000)["queries"]
    assert query["state"] == "degraded"
    assert query["reason"] == "Cluster 'west': no broker answers; the metadata service fails: HTTP 500"
    worst = query["sources"][0]["clusters"][0]
    assert (worst["cluster"], worst["failing_for_s"]) == ("west", 3.0)


def test_the_watermark_waits_for_the_slowest_partition_unless_it_is_idle() -> None:
    """It never goes back."""
    slow, quick = read({0: 1}, timestamp_ms=BEGAN_MS - 9000), read({1: 1}, timestamp_ms=BEGAN_MS)
    model = model_of(
        source(cluster("east", topic(current=(1, 1), end=(1, 1)))), worker(slow), worker(quick, reporter="b")
    )
    assert model.status(BEGAN_MS)["queries"][0]["sources"][0]["watermark_lag_s"] == 9.0
    late = read({0: 2}, timestamp_ms=BEGAN_MS - 20_000)
    model.report(worker(late, sequence=2), BEGAN_MS)
    assert model.status(BEGAN_MS)["queries"][0]["sources"][0]["watermark_ms"] == BEGAN_MS - 9000
    later_ms = BEGAN_MS + 61_000
    model.report(source(cluster(), sequence=2), later_ms)
    fresh = read({1: 5}, timestamp_ms=later_ms) | {"read_ms": [later_ms]}
    model.report(worker(fresh, reporter="b", sequence=2), later_ms)
    assert model.status(later_ms)["queries"][0]["sources"][0]["watermark_lag_s"] == 0.0


def test_messages_that_cannot_be_decoded_have_series_where_they_are_counted() -> None:
    """Of a query whose values only Spark decodes nothing is known, so there is no series."""
    found = series_of(source(cluster()), worker(read({0: 5})))
    assert "dynamic_kafka_source_decode_errors_total" not in found
    model = model_of(source(cluster(), cluster("west")), worker(decode_errors=[]))
    for sequence, records in ((2, 3), (3, 4)):
        errors = [{"cluster": "east", "topic": "orders", "records": records}]
        model.report(worker(sequence=sequence, decode_errors=errors), BEGAN_MS)
    model.report(worker(reporter="other", decode_errors=errors), BEGAN_MS)
    found = samples(model.status(BEGAN_MS))
    assert value(found, "source_decode_errors_total", "east", "orders") == 8
    assert value(found, "source_decode_errors_total", "west", "orders") == 0
    cut = source(cluster("east", topic("a"), topic("orders")), max_partitions=1)
    found = series_of(cut, worker(decode_errors=errors))
    assert value(found, "source_decode_errors_total", "east", "") == 4


def test_more_partitions_than_allowed_are_cut_to_topics_and_then_to_clusters() -> None:
    """And a series says so."""
    topics = [topic(f"t{i}", current=(5,) * 10, end=(7,) * 10) for i in range(10)]
    for most, cut, count in ((100, 0, 100), (99, 1, 10), (9, 2, 1)):
        found = series_of(source(cluster("east", *topics), max_partitions=most))
        pending = found["dynamic_kafka_source_pending_records"]
        assert (len(pending), sum(pending.values())) == (count, 200)
        assert value(found, "source_series_cut") == cut
        assert ("dynamic_kafka_source_current_offset" in found) == (cut == 0)


def test_clients_numbers_are_joined_by_their_kind() -> None:
    """Totals are added up and outlive their process, of seconds the greatest counts, and other numbers are sums."""
    one = {"east": {"requests_total": 5.0, "round_trip_seconds": 0.1, "queued_messages": 2.0}}
    two = {"east": {"requests_total": 7.0, "round_trip_seconds": 0.3, "queued_messages": 3.0}}
    reports: list[Report] = [source(cluster("east")), worker(clients=one), worker(clients=two, reporter="other")]
    found = series_of(*reports)
    assert value(found, "consumer_requests_total", "east") == 12
    assert value(found, "consumer_round_trip_seconds", "east") == 0.3
    assert value(found, "consumer_queued_messages", "east") == 5
    model = model_of(*reports)
    (query,) = model.status(BEGAN_MS + 120_000)["queries"]
    assert query["sources"][0]["clusters"][0]["clients"] == {"requests_total": 12}


def test_a_sink_is_one_whatever_process_reports_it() -> None:
    """Spark may commit each batch in another process. A batch of which all tasks failed does not tell the query's id."""
    failed = sink("third", batches=0, records={}, bytes={}, phase="failed", reason="2 of 2 tasks failed")
    first, second = (
        sink(r, name="nightly", query_id="id-1", dead_letters=n) for r, n in (("committer", 3), ("second", 2))
    )
    reports = [first, second, failed]
    (query,) = model_of(*reports).status(BEGAN_MS)["queries"]
    (seen,) = query["sinks"]
    assert (seen["batches"], seen["records"], query["query"]) == (2, 200, "nightly")
    assert seen["dead_letters"] == 5
    assert (query["state"], query["reason"]) == ("degraded", "the last batch was not written: 2 of 2 tasks failed")


def test_a_sink_goes_with_the_source_of_its_query() -> None:
    """Both are shown for a quarter of an hour after the end. So is a sink whose query has no such source."""
    other = sink("other", query_id="id-2", name="alone")
    model = model_of(source(cluster()), worker(query_id="id-1"), sink(query_id="id-1"), other)
    model.gone("run", BEGAN_MS)
    model.tick(BEGAN_MS + 10_000)
    assert {q["query"] for q in model.status(BEGAN_MS + 20_000)["queries"]} == {"orders", "alone"}
    model.tick(BEGAN_MS + 16 * 60_000)
    assert model.status(BEGAN_MS + 16 * 60_000)["queries"] == []


def test_every_sample_has_the_labels_of_its_declaration() -> None:
    """And every declared series has samples, so that none is only on paper."""
    from dynamic_kafka.observe.series import CLIENTS

    numbers = dict.fromkeys(CLIENTS, 1.0)
    left = {"location": "/h", "rows": 9, "rows_left": 5, "files_left": 1, "bytes_left": 70}
    found = series_of(
        source(cluster("east", topic(committed=[9])), metadata=metadata(), history_left=left),
        worker(
            read({0: 1}),
            emit_lag_s={"east": 0.5},
            clients={"east": numbers},
            query_id="id-1",
            decode_errors=[],
        ),
        sink(query_id="id-1", clients={"east": numbers}),
    )
    assert found.keys() == {series.name for series in SERIES}
    for series in SERIES:
        assert {len(labels) for labels in found[series.name]} == {len(series.all_labels)}, series.name


def test_history_has_rates_and_backlog_over_time() -> None:
    """For the page that was opened just now."""
    model = model_of(source(cluster("east", topic(end=(15,)))))
    for i in range(1, 5):
        now_ms = BEGAN_MS + 5000 * i
        model.report(source(cluster("east", topic(end=(15,)), seen_ms=now_ms), sequence=1 + i), now_ms)
        model.report(worker(read({0: 50 * i}), sequence=i), now_ms)
        model.tick(BEGAN_MS + 5000 * i)
    (seen,) = model.status(BEGAN_MS + 20_000)["queries"][0]["sources"]
    assert seen["history"]["records_per_s"] == [None, 10.0, 10.0, 10.0]
    assert seen["history"]["pending_records"] == [5, 5, 5, 5]
    assert seen["records_per_s"] == seen["clusters"][0]["records_per_s"] == 10.0


def test_a_history_has_series_of_its_own() -> None:
    """What is left is the source's to say; what was read is a total of all workers, and part of the source's rates."""
    left = {"location": "/h", "rows": 100, "rows_left": 60, "files_left": 2, "bytes_left": 700}
    model = model_of(source(cluster(), history_left=left))
    for sequence, rows in enumerate((10, 30), 1):
        for name in ("w1", "w2"):
            so_far = {"rows": rows, "bytes": 5 * rows, "read_ms": BEGAN_MS + rows}
            model.report(worker(reporter=name, sequence=sequence, history_read=so_far), BEGAN_MS)
        model.tick(BEGAN_MS + 5_000 * sequence)
    status = model.status(BEGAN_MS + 10_000)
    found = samples(status)
    names = ("rows_total", "bytes_total", "rows_left", "bytes_left", "files_left")
    assert [value(found, f"source_history_{name}") for name in names] == [60, 300, 60, 700, 2]
    (of_source,) = status["queries"][0]["sources"]
    assert (of_source["records"], of_source["records_per_s"]) == (0, 8.0)
    assert of_source["idle_s"] == pytest.approx(10 - 0.03)
    without = series_of(source(cluster()))
    assert not any("source_history" in name for name in without)
