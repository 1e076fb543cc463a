"""Windows of time: TUMBLE, HOP, SESSION and CUMULATE, as tables, and but for the last in GROUP BY.

Flink's windows are aligned to the wall clock of the session's time zone, Spark's to UTC. In a time zone with clock changes,
Flink has windows of the wall time. Batches have the same. Streams have windows of the point in time, as Spark knows a
watermark of nothing else.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from functools import lru_cache
from zoneinfo import ZoneInfo

from pyspark.sql.types import DataType
from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import called
from dynamic_kafka.sql.dialect.scope import Window
from dynamic_kafka.sql.dialect.writer import Writer
from dynamic_kafka.sql.tables.types import DAY_UNITS, UNITS_US, kind_of

__all__ = ["GROUP_WINDOWS", "aligned", "group_window", "length_us", "offsets_us", "table_window"]

GROUP_WINDOWS = {
    f"{kind}{suffix}": (kind, suffix)
    for kind in ("TUMBLE", "HOP", "SESSION")
    for suffix in ("", "_START", "_END", "_ROWTIME", "_PROCTIME")
}
"""The functions of windows in GROUP BY, and what they ask of a window."""
_STEPS = 300
"""The most steps of CUMULATE: Spark makes a row of each row for each of them."""


def table_window(t: Writer, call: exp.Anonymous) -> tuple[exp.Expr, Window]:
    """Return the table and the window of a window table function."""
    kind = str(call.this)
    names = {
        "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
        "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
        "SESSION": ("DATA", "TIMECOL", "GAP"),
        "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    }[kind]
    given: dict[str, exp.Expr] = {}
    for name, argument in zip(names, call.expressions, strict=False):
        if isinstance(argument, exp.Kwarg):
            given[argument.this.name.upper()] = argument.expression
        else:
            given[name] = argument
    needed = [name for name in names if name != "OFFSET"]
    if len(call.expressions) > len(names) or any(name not in given for name in needed):
        raise t.refuse(call, f"{kind} needs {', '.join(needed)}, in this order or by these names")
    column = given["TIMECOL"]
    if called(column) != "DESCRIPTOR" or len(column.expressions) != 1:
        raise t.refuse(column, f"The time column of {kind} is written DESCRIPTOR(column)")
    size = length_us(t, given["SIZE" if kind != "SESSION" else "GAP"])
    step = {"HOP": "SLIDE", "CUMULATE": "STEP"}.get(kind)
    slide = size if step is None else length_us(t, given[step])
    shift = length_us(t, given["OFFSET"], negative=True) if "OFFSET" in given else 0
    return given["DATA"], Window(kind, t.sql(column.expressions[0]), size, slide, shift)


def group_window(t: Writer, call: exp.Anonymous) -> Window:
    """Return the window of a function in GROUP BY, or of one that asks for its start or end."""
    kind, _ = GROUP_WINDOWS[called(call)]
    lengths = [length_us(t, length) for length in call.expressions[1:]]
    if len(lengths) != (2 if kind == "HOP" else 1):
        raise t.refuse(call, f"{kind} needs a time column and {'two intervals' if kind == 'HOP' else 'an interval'}")
    window = Window(kind, t.sql(call.expressions[0]), lengths[-1], lengths[0])
    return aligned(t, call, window, t.type_or_none(call.expressions[0]))


def aligned(t: Writer, call: exp.Expr, window: Window, found: DataType | None) -> Window:
    """Return a window that is shifted by what the wall clock of the time zone is behind UTC, too.

    A TIMESTAMP has no time zone, and its windows are not shifted. `found` is the type of the time, None if it is not known.
    """
    size, slide = window.size_us, window.slide_us
    zone = "UTC" if found is not None and kind_of(found) == "TimestampNTZType" else t.zone
    if found is not None and len(offsets_us(zone)) > 1 and t.times_of is None and window.kind != "SESSION":
        zone, window = "UTC", replace(window, time=f"CAST({window.time} AS TIMESTAMP_NTZ)", of_wall=True)
    if size % slide and window.kind == "HOP":
        raise t.refuse(call, "The size of HOP has to be a multiple of its slide, as in Flink")
    if window.kind == "CUMULATE":
        if size % slide:
            raise t.refuse(call, "The size of CUMULATE has to be a multiple of its step, as in Flink")
        if size > _STEPS * slide:
            raise t.refuse(
                call,
                f"CUMULATE with more than {_STEPS} steps costs too much in Spark, where each row becomes one for each step. "
                "Take longer steps, or aggregate over TUMBLE with the step as its size and add up the results",
            )
        slide = size  # what all windows of a period begin with
    offset = 0 if window.kind == "SESSION" else _alignment_us(slide, zone)
    if offset is None:
        raise t.refuse(
            call,
            f"Windows of this size begin with the day or hour of the time zone {zone} in Flink, and its distance from UTC "
            "changes. Spark's windows of a stream do not follow it: SET 'table.local-time-zone' = 'UTC', use shorter "
            "windows, or read a batch",
        )
    if offset and found is None:
        raise t.refuse(call, "Whether the time of this window has a time zone is not known: CAST it to TIMESTAMP(3)")
    return replace(window, offset_us=(offset + window.offset_us) % slide)


def _alignment_us(slide: int, zone: str) -> int | None:
    """Return what windows are shifted by, to begin with the wall clock of a time zone; None if it changes over the years."""
    shifts = {-offset % slide for offset in offsets_us(zone)}
    return shifts.pop() if len(shifts) == 1 else None


@lru_cache(maxsize=16)
def offsets_us(zone: str) -> frozenset[int]:
    """Return the distances of a time zone from UTC between 2000 and 2040; none if the zone is not known."""
    if re.fullmatch(r"(?i)UTC|GMT|Z|Etc/UTC", zone):
        return frozenset((0,))
    fixed = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", zone)
    if fixed:
        minutes = int(fixed[2]) * 60 + int(fixed[3] or 0)
        return frozenset((minutes * 60_000_000 * (1 if fixed[1] == "+" else -1),))
    try:
        where = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return frozenset()
    days = (dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=7 * week) for week in range(52 * 40))
    return frozenset(
        int((day.astimezone(where).utcoffset() or dt.timedelta()).total_seconds()) * 1_000_000 for day in days
    )


def length_us(t: Writer, interval: exp.Expr, *, negative: bool = False) -> int:
    """Return the length of an interval such as `INTERVAL '10' MINUTES`."""
    sign = 1
    if negative and isinstance(interval, exp.Neg):
        sign, interval = -1, interval.this
    if isinstance(interval, exp.Interval) and interval.this is not None and interval.args.get("unit") is not None:
        unit = str(interval.args["unit"].name or interval.args["unit"]).upper()
        unit = unit.removesuffix("S") if unit.removesuffix("S") in DAY_UNITS else unit
        number = re.fullmatch(r"(-?)(\d+)(?:\.(\d{1,6}))?", interval.this.name.strip())
        if unit in DAY_UNITS and number and (negative or not number[1]):
            fraction = int((number[3] or "").ljust(6, "0")) * UNITS_US[unit] // 1_000_000
            found = int(number[2]) * UNITS_US[unit] + fraction
            if found or negative:
                return sign * (-found if number[1] else found)
    raise t.refuse(interval, "Expected an interval of seconds, minutes, hours or days, such as INTERVAL '10' MINUTES")
