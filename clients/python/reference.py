"""Builds the API reference: `python reference.py FOLDER`. Fails if a public name has no docstring."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pdoc
import pdoc.doc
import pdoc.doc_pyi
import pdoc.render

MODULES = [
    "throttlekit",
    "throttlekit.service",
    "throttlekit.contrib.asgi",
    "throttlekit.contrib.celery",
    "throttlekit.contrib.django",
    "throttlekit.contrib.fastapi",
    "throttlekit.contrib.flask",
    "throttlekit.contrib.httpx",
    "throttlekit.contrib.litellm",
    "throttlekit.contrib.requests",
    "throttlekit.contrib.wsgi",
]


def undocumented(module: Any) -> Iterator[str]:
    """Returns the public names of a module that have no docstring of their own."""
    if not module.__doc__:
        yield module.__name__
    names = getattr(module, "__all__", None)
    for name, value in vars(module).items():
        is_public = name in names if names is not None else defined_in(module, name, value)
        if not is_public or not (inspect.isclass(value) or callable(value)):
            continue
        if not value.__doc__:
            yield f"{module.__name__}.{name}"
        if inspect.isclass(value):
            yield from (f"{module.__name__}.{name}.{member}" for member in undocumented_members(value))


def defined_in(module: Any, name: str, value: Any) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def undocumented_members(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        is_member = callable(value) or isinstance(value, (property, staticmethod, classmethod))
        is_member = is_member or inspect.isgetsetdescriptor(value)
        if is_member and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
            yield name


def build(folder: Path) -> None:
    """Renders the modules as HTML."""
    native = importlib.import_module("throttlekit._native")
    # The types of the classes are in the stub of the module that implements them.
    stub = pdoc.doc_pyi.find_stub_file(native.__name__)
    assert stub is not None, "the wheel has no stub"
    top = pdoc.doc.Module(importlib.import_module("throttlekit"))
    types = pdoc.doc.Module(pdoc.doc_pyi._import_stub_file(native.__name__, stub))
    pdoc.doc_pyi._patch_doc(top, types)
    pdoc.render.configure(docformat="markdown", footer_text="ThrottleKit for Python")
    modules = {name: pdoc.doc.Module(importlib.import_module(name)) for name in MODULES[1:]}
    all_modules = {"throttlekit": top, **modules}
    for name, module in all_modules.items():
        page = folder.joinpath(*name.split(".")).with_suffix(".html")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pdoc.render.html_module(module, all_modules))
    (folder / "index.html").write_text(pdoc.render.html_index(all_modules))
    (folder / "search.js").write_text(pdoc.render.search_index(all_modules))


def main() -> int:
    import django.conf

    # Without it, LiteLLM downloads a file when it is imported.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    django.conf.settings.configure()
    missing = [name for module in MODULES for name in undocumented(importlib.import_module(module))]
    for name in missing:
        print(f"{name}: no docstring", file=sys.stderr)
    if missing:
        return 1
    folder = Path(sys.argv[1])
    build(folder)
    print(folder / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
