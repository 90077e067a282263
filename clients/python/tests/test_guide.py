"""The programs of the guide run as they are printed, and pages install the package by its name."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PAGES = [ROOT / "docs/guides/python.md", ROOT / "clients/python/README.md"]

BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_guide_runs(block: str) -> None:
    exec(compile(block, "guide", "exec"), {"__name__": "guide"})


def test_pages_name_the_package_as_it_is_built() -> None:
    project = (ROOT / "clients/python/pyproject.toml").read_text()
    named = re.search(r'^name = "(.+)"$', project, re.MULTILINE)
    assert named is not None
    name = named.group(1)
    assert importlib.metadata.metadata(name)["Name"] == name
    assert all(f"`{name}`" in page.read_text() or f"pip install {name}`" in page.read_text() for page in PAGES)
    others = r"pip install (?:dist/)?(throttlekit[\w-]*)"
    installed = {found for page in (ROOT / "docs").rglob("*.md") for found in re.findall(others, page.read_text())}
    # `throttlekit-py` is the client that others maintain.
    assert installed <= {name, name.replace("-", "_") + "-", "throttlekit-py"}
