"""The examples run, fit a screen or two, and are typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

NEED_REDIS = {"async_limiter", "leases"}

EXPECTED = {
    "basic": ["5: allowed, 0 left", "6: denied, retry after 12 s", "batch: [True, False, True]", "bob has 2 left"],
    "async_limiter": ["5: allowed", "6: denied", "(exact)", "turn 3"],
    "leases": ["process 4: ", "of 20000: never more than the limit"],
    "concurrency": ["denied by the concurrency limit", "at most 3 at a time", "acme again: None"],
    "llm_budget": ["acme: 200 tokens", "acme: stopped after", "acme: denied by cost", "zoo: 200 tokens", "budget: "],
}


@pytest.mark.parametrize("example", sorted(EXPECTED))
def test_an_example_prints_what_its_guide_shows(example: str, redis_url: str) -> None:
    args = [redis_url] if example in NEED_REDIS else []
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for expected in EXPECTED[example]:
        assert expected in done.stdout, done.stdout


def test_every_example_is_run_and_is_short() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    assert all(len(path.read_text().splitlines()) <= 80 for path in EXAMPLES.glob("*.py"))


def test_examples_and_package_are_typed() -> None:
    package = EXAMPLES.parent / "python/throttlekit"
    command = [sys.executable, "-m", "mypy", "--strict", str(EXAMPLES), str(package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_examples_pass_pyright() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(EXAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
