"""Same decisions as in Rust: the golden vectors of the conformance suite, line by line."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from throttlekit import Budget, Decision, Limit, Limiter, ManualClock, Rate

VECTORS = Path(__file__).resolve().parents[3] / "crates/throttlekit-conformance/vectors"

LINE = re.compile(
    r"(?P<secs>\d+)\.(?P<nanos>\d{9})s (?P<key>\S+) (?P<cost>\d+) -> (?P<verdict>allow|deny) "
    r"(?P<remaining>\d+)/(?P<limit>\d+) reset (?P<reset_secs>\d+)\.(?P<reset_nanos>\d{9})s retry (?P<retry>\S+)"
)

UNIT_NANOS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


class Row(NamedTuple):
    now_ns: int
    key: str
    cost: int
    expected: tuple[bool, int, int, int, int | str]


def parse(path: Path) -> tuple[str, list[Row]]:
    limit, rows = "", []
    for line in path.read_text().splitlines():
        if line.startswith("limit "):
            limit = line.removeprefix("limit ")
        elif line and not line.startswith("#"):
            found = LINE.fullmatch(line)
            assert found is not None, f"{path.name}: {line}"
            at = int(found["secs"]) * 10**9 + int(found["nanos"])
            reset = int(found["reset_secs"]) * 10**9 + int(found["reset_nanos"])
            left, most, retry = int(found["remaining"]), int(found["limit"]), retry_of(found["retry"])
            verdict = (found["verdict"] == "allow", left, most, reset, retry)
            rows.append(Row(at, found["key"], int(found["cost"]), verdict))
    return limit, rows


def seconds(text: str) -> float:
    found = retry_of(text)
    assert isinstance(found, int)
    return found / 1e9


def nanoseconds(text: str) -> int:
    whole, fraction = text.removesuffix("s").split(".")
    return int(whole) * 10**9 + int(fraction)


def offset(minutes: str) -> timedelta:
    return timedelta(minutes=int(minutes))


def built(text: str) -> Rate | Budget | Limit | None:
    """Returns the limit that a vector describes; `None` if Python has no name for it."""
    match text.split():
        case ["gcra", units, "per", period, "burst", burst]:
            return Rate(int(units), seconds(period), burst=int(burst))
        case ["token-bucket", capacity, "refill", units, "per", period]:
            return Limit.token_bucket(int(capacity), Rate(int(units), seconds(period)))
        case ["leaky-bucket", units, "per", period, "wait", wait]:
            return Limit.leaky_bucket(Rate(int(units), seconds(period)), seconds(wait))
        case ["window", units, "every", length, "anchor", anchor]:
            return Budget(int(units), seconds(length), anchor_ns=nanoseconds(anchor))
        case ["window", units, "day", "offset", minutes]:
            return Budget.per_day(int(units), utc_offset=offset(minutes))
        case ["window", units, "week", day, "offset", minutes]:
            return Budget.per_week(int(units), starts_on=day, utc_offset=offset(minutes))
        case ["window", units, "month", "offset", minutes]:
            return Budget.per_month(int(units), utc_offset=offset(minutes))
        case ["sliding-log", units, "in", length]:
            return Limit.sliding_log(int(units), seconds(length))
        case ["sliding-window", units, "in", length, "buckets", buckets, "retry", "exact"]:
            return Limit.sliding_window(int(units), seconds(length), buckets=int(buckets))
        case ["budget", units, "every", length, "anchor", "0.000000000s"]:
            return Limit.token_budget(int(units), seconds(length))
    return None


def summary(decision: Decision) -> tuple[bool, int, int, int, int | str]:
    retry = decision.retry if decision.retry != "after" else decision.retry_after_ns
    assert retry is not None
    return (decision.allowed, decision.remaining, decision.limit, decision.reset_at_ns, retry)


def retry_of(text: str) -> int | str:
    """Returns a wait in nanoseconds, or the advice."""
    found = re.fullmatch(r"(\d+)(ns|us|ms|s|m|h|d)", text)
    return text if found is None else int(found[1]) * UNIT_NANOS[found[2]]


FILES = sorted(VECTORS.glob("*.timeline"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_decisions_are_those_of_the_golden_vectors(path: Path) -> None:
    text, rows = parse(path)
    limit = built(text)
    if limit is None:
        assert path.stem in WITHOUT_A_NAME, f"{path.name}: {text}"
        return
    clock = ManualClock(rows[0].now_ns)
    limiter = Limiter(limit, clock=clock)
    for number, row in enumerate(rows, 1):
        clock.set_ns(row.now_ns)
        assert summary(limiter.check(row.key, row.cost)) == row.expected, f"{path.name}, row {number}"


# Rules whose settings have no name in Python.
WITHOUT_A_NAME = {"budget-month", "sliding-window-hint"}
