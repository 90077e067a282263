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
    assert installed <= {name, name.replace("-", "_") + "-"}


CALLS_OF_A_SERVER = {
    "README.md": (
        "## As a service, for any language",
        ["bob may call: True", "tokens left: 1100", "tokens left: 200", "tokens left: 0", "tokens left: none, stop"],
    ),
    "docs/start/python.md": (
        "## 3. Call it with the package",
        [
            "carol: [True, True, True, True, True, False]",
            *["tokens left: 1100", "tokens left: 200", "tokens left: 0", "tokens left: none, stop"],
            "jobs: True True False concurrency",
        ],
    ),
}


@pytest.mark.parametrize("page", CALLS_OF_A_SERVER)
def test_a_page_calls_a_server(page: str, fresh_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    heading, expected = CALLS_OF_A_SERVER[page]
    section = (ROOT / page).read_text().split(heading)[1]
    block = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    # Another address, and a deadline for a busy machine.
    shown = r'Client\("http://localhost:50051"(, deadline=0\.25)?\)'
    block, clients = re.subn(shown, f'Client("http://{fresh_server}", deadline=5)', block)
    assert clients == 1
    exec(compile(block, page, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.splitlines() == expected
