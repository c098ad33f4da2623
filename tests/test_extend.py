"""The module that authors of plug-ins import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from millrace import extend


@pytest.mark.parametrize("name", extend.__all__)
def test_every_name_is_exported_with_a_docstring(name: str) -> None:
    exported = getattr(extend, name)
    if inspect.isclass(exported) or inspect.isfunction(exported):
        assert inspect.getdoc(exported)


def test_type_checkers_see_what_is_imported_at_run_time() -> None:
    tree = ast.parse(Path(extend.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    declared = {
        alias.name: node.module or ""
        for node in imports
        for alias in node.names
        if (node.module or "").startswith("millrace.")
    }
    assert declared == {name: module for module, names in extend._MODULES.items() for name in names}
    assert sorted(declared) == sorted(extend.__all__)


def test_importing_it_loads_neither_spark_nor_a_client_of_kafka() -> None:
    code = "import sys, millrace.extend; print({'pyspark', 'confluent_kafka', 'pyarrow'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"


def test_importing_a_sink_loads_no_spark() -> None:
    code = "import sys; from millrace.extend import Source, Sink, Feed, Format; print('pyspark' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "False"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        extend.no_such_name  # noqa: B018
