"""Same decisions as in Rust: the golden vectors of the conformance suite, line by line."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from throttlekit import Budget, Decision, Limit, Limiter, ManualClock, Rate

VECTORS = Path(__file__).resolve().parents[3] / "crates/throttlekit-conformance/vectors"

LINE = re.compile(
    r"(?P<at>\S+) (?P<key>\S+) (?P<cost>\d+) -> (?P<verdict>allow|deny) "
    r"(?P<remaining>\d+)/(?P<limit>\d+) reset (?P<reset>\S+) retry (?P<retry>\S+)"
)

UNIT_NANOS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


class Row(NamedTuple):
    now_ns: int
    key: str
    cost: int
    expected: tuple[bool, int, int, int, int | str]


class Timeline(NamedTuple):
    built_ns: int
    limit: str
    rows: list[Row]


def parse(text: str) -> Timeline:
    limit, rows, built_ns = "", [], None
    for line in text.splitlines():
        if line.startswith("built "):
            built_ns = int(line.removeprefix("built "))
        elif line.startswith("limit "):
            limit = line.removeprefix("limit ")
        elif line and not line.startswith("#"):
            found = LINE.fullmatch(line)
            assert found is not None, line
            at, reset = nanoseconds(found["at"]), nanoseconds(found["reset"])
            left, most, retry = int(found["remaining"]), int(found["limit"]), retry_of(found["retry"])
            verdict = (found["verdict"] == "allow", left, most, reset, retry)
            rows.append(Row(at, found["key"], int(found["cost"]), verdict))
    return Timeline(rows[0].now_ns if built_ns is None else built_ns, limit, rows)


def repeat(timeline: Timeline) -> bool:
    """Repeats the decisions of a timeline. Returns false if Python has no name for its limit."""
    limit = built(timeline.limit)
    if limit is None:
        return False
    clock = ManualClock(timeline.built_ns)
    limiter = Limiter(limit, clock=clock)
    for number, row in enumerate(timeline.rows, 1):
        clock.set_ns(row.now_ns)
        assert summary(limiter.check(row.key, row.cost)) == row.expected, f"{timeline.limit}, row {number}"
    return True


def nanoseconds(text: str) -> int:
    whole, fraction = text.removesuffix("s").split(".")
    return int(whole) * 10**9 + int(fraction)


def offset(minutes: str) -> timedelta:
    return timedelta(minutes=int(minutes))


def window(units: str, cadence: list[str]) -> Budget:
    match cadence:
        case ["every", length, "anchor", anchor]:
            return Budget(int(units), length, anchor_ns=nanoseconds(anchor))
        case ["day", "offset", minutes]:
            return Budget.per_day(int(units), utc_offset=offset(minutes))
        case ["week", day, "offset", minutes]:
            return Budget.per_week(int(units), starts_on=day, utc_offset=offset(minutes))
        case ["month", "offset", minutes]:
            return Budget.per_month(int(units), utc_offset=offset(minutes))
    raise ValueError(cadence)


def built(text: str) -> Rate | Budget | Limit | None:
    """Returns the limit that a vector describes; `None` if Python has no name for it."""
    match text.split():
        case ["gcra", units, "per", period, "burst", burst]:
            return Rate(int(units), period, burst=int(burst))
        case ["token-bucket", capacity, "refill", units, "per", period]:
            return Limit.token_bucket(int(capacity), Rate(int(units), period))
        case ["leaky-bucket", units, "per", period, "wait", wait]:
            return Limit.leaky_bucket(Rate(int(units), period), wait)
        case ["window", units, *cadence]:
            return window(units, cadence)
        case ["budget", units, *cadence]:
            return window(units, cadence).tokens()
        case ["sliding-log", units, "in", length]:
            return Limit.sliding_log(int(units), length)
        case ["sliding-window", units, "in", length, "buckets", buckets, "retry", "exact"]:
            return Limit.sliding_window(int(units), length, buckets=int(buckets))
        case ["sliding-window", *_, "retry", "next-bucket"]:
            return None
    raise ValueError(text)


def summary(decision: Decision) -> tuple[bool, int, int, int, int | str]:
    retry = decision.retry if decision.retry != "after" else decision.retry_after_ns
    assert retry is not None
    return (decision.allowed, decision.remaining, decision.limit, decision.reset_at_ns, retry)


def retry_of(text: str) -> int | str:
    """Returns a wait in nanoseconds, or the advice."""
    found = re.fullmatch(r"(\d+)(ns|us|ms|s|m|h|d)", text)
    return text if found is None else int(found[1]) * UNIT_NANOS[found[2]]


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.timeline")), ids=lambda path: path.stem)
def test_decisions_are_those_of_the_golden_vectors(path: Path) -> None:
    assert repeat(parse(path.read_text())) == (path.stem not in WITHOUT_A_NAME)


def test_decisions_are_those_of_the_core_on_random_timelines() -> None:
    timelines = os.environ.get("THROTTLEKIT_RUST_SCENARIOS")
    if timelines is None:
        pytest.fail("THROTTLEKIT_RUST_SCENARIOS is not set: build the example rust_scenarios, and set its path")
    done = subprocess.run([timelines, str(TIMELINES)], capture_output=True, text=True, check=True, timeout=300)
    texts = ["built " + text for text in done.stdout.split("built ")[1:]]
    parsed = [timeline for timeline in map(parse_any, texts) if timeline is not None]
    repeated = sum(map(repeat, parsed))
    assert len(texts) == TIMELINES and repeated > TIMELINES * 3 // 4, repeated


def parse_any(text: str) -> Timeline | None:
    """Parses a timeline, unless it has no requests."""
    return parse(text) if "->" in text else None


# The hint of version 1, which Python does not have.
WITHOUT_A_NAME = {"sliding-window-hint"}

TIMELINES = 10_000
