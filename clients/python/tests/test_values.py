"""Values, and the errors of values that cannot work."""

from datetime import timedelta

import pytest
from throttlekit import Budget, BuildError, Concurrency, Guard, Limit, Limiter, Rate


@pytest.mark.parametrize(
    "text",
    ["100/minute", "100/m", "100 per minute", "100/60s", "100 / 1 minute", "100/1m", "100/60000ms"],
)
def test_a_rate_as_text_is_that_of_numbers(text: str) -> None:
    assert Rate(text) == Rate(100, 60) == Rate(100, timedelta(minutes=1)) == Rate.per_minute(100)


def test_a_burst_is_part_of_the_text_or_an_argument() -> None:
    assert Rate("5/second; burst 20") == Rate(5, 1.0, burst=20) == Rate.per_second(5).burst(20)
    assert Rate("1_000/hour") == Rate.per_hour(1000)
    assert Rate.every("90s") == Rate(1, timedelta(seconds=90))


@pytest.mark.parametrize("text", ["", "100", "100/", "/minute", "100/fortnight", "-1/minute", "1/m; bursts 2", "1.5/m"])
def test_an_invalid_rate_states_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected units and a period"):
        Rate(text)


def test_errors_state_what_to_change() -> None:
    with pytest.raises(BuildError, match="expected 1 to"):
        Limiter("0/second")
    with pytest.raises(BuildError, match="invalid name"):
        Limiter("1/second", limits={"a b": "1/second"})
    with pytest.raises(BuildError, match="bounds must be at least 1"):
        Guard(Concurrency.adaptive(5, 4))
    with pytest.raises(TypeError, match="expected a Rate, a Budget, a Limit"):
        Limiter(100)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected 0 s or more"):
        Budget(1, -1)
    with pytest.raises(ValueError, match="invalid duration"):
        Budget(1, "5 minuts")


def test_limits_report_their_units_and_period() -> None:
    limit = Limit.sliding_window(7, timedelta(seconds=3))
    assert (limit.units, limit.period) == (7, timedelta(seconds=3))
