"""The API reference is complete and can be built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import throttlekit

PROJECT = Path(__file__).resolve().parents[1]


def test_every_public_name_has_a_docstring_and_the_reference_is_built(tmp_path: Path) -> None:
    folder = Path(os.environ.get("THROTTLEKIT_PYTHON_DOCS", tmp_path))
    command = [sys.executable, str(PROJECT / "reference.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    page = (folder / "throttlekit.html").read_text()
    for name in throttlekit.__all__:
        assert f'id="{name}"' in page, name
    assert "timedelta" in page, "types are those of the stub"


def test_a_name_without_a_docstring_is_found() -> None:
    code = "import reference, throttlekit; throttlekit.Denied.__doc__ = None; print(*reference.undocumented(throttlekit))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=PROJECT)
    assert done.stdout == "throttlekit.Denied\n", done.stdout + done.stderr
