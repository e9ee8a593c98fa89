"""Plug-ins: found by their entry points, and left out where their module is missing."""

from __future__ import annotations

from importlib import metadata

import pytest

from simplexdp import models, plugins
from simplexdp.models import registry


@pytest.fixture
def registered(monkeypatch):
    """Register entry points as installed packages would."""

    def register(**points: str) -> None:
        found = [metadata.EntryPoint(n, v, registry.GROUP) for n, v in points.items()]
        monkeypatch.setattr(metadata, "entry_points", lambda group: found)
        plugins._points.cache_clear()

    yield register
    plugins._points.cache_clear()


def test_what_is_registered_is_found_and_what_is_not_there_is_left_out(registered):
    registered(
        b="simplexdp.models.mlp:mlp", a="simplexdp.no_such_room:f", c="no_such_package.x.y:f"
    )
    assert plugins.names(registry.GROUP) == ("b",)
    assert plugins.load(registry.GROUP, "b")((3,), 2)[-1].out_features == 2
    with pytest.raises(KeyError):
        plugins.load(registry.GROUP, "a")


def test_a_network_of_a_plug_in_is_built_by_its_name_but_does_not_replace_ours(registered):
    registered(foreign="simplexdp.models.logistic:logistic", mlp="simplexdp.models.cnn:cnn")
    assert "foreign" in models.names()
    assert len(models.build("foreign", (4,), 3)) == 2
    assert models.build("mlp", (4,), 3)[1].in_features == 4
    with pytest.raises(ValueError, match=r"'foreigner' \(closest: foreign\)"):
        models.build("foreigner", (4,), 3)


def test_an_extra_that_is_missing_is_named_with_the_command_that_installs_it():
    assert plugins.extra("json", "any").__name__ == "json"
    with pytest.raises(ValueError, match=r'no_such_module .*pip install "simplexdp\[medical\]"'):
        plugins.extra("no_such_module", "medical")
