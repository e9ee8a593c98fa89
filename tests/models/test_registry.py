from __future__ import annotations

import pytest
from torch import nn

from simplexdp import models


def tiny(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A user's factory."""
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0] * input_shape[1], classes))


def not_a_model(input_shape: tuple[int, ...], classes: int) -> str:
    return "a string"


NUMBER = 5


@pytest.fixture
def own(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> str:
    import sys
    import types

    module = types.ModuleType("a_users_module")
    module.tiny, module.not_a_model, module.NUMBER = tiny, not_a_model, NUMBER  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_users_module", module)
    return "a_users_module"


def test_the_names_are_sorted_and_hold_our_networks() -> None:
    assert list(models.names()) == sorted(models.names())
    assert {"resnet18", "resnet9", "mlp", "logistic", "cnn"} <= set(models.names())


def test_an_unknown_name_lists_the_names_and_the_closest() -> None:
    with pytest.raises(ValueError, match=r"'resnet-18' \(closest: resnet18\).*logistic") as error:
        models.build("resnet-18", (3, 32, 32), 10)
    assert "\n" not in str(error.value)
    assert all(name in str(error.value) for name in models.names())


def test_a_name_like_nothing_has_no_closest() -> None:
    with pytest.raises(ValueError, match="no model 'xq'") as error:
        models.build("xq", (3, 32, 32), 10)
    assert "closest" not in str(error.value)


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="no normalisation 'layer': use one of group, batch, none"):
        models.build("cnn", (1, 28, 28), 10, "layer")


@pytest.mark.parametrize("name", ["cnn", "resnet18", "resnet9"])
def test_an_image_network_refuses_a_table(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} takes images.*shape \(30,\)"):
        models.build(name, (30,), 2)


@pytest.mark.parametrize("name", ["mlp", "logistic"])
def test_the_dense_networks_take_a_table(name: str) -> None:
    models.check(models.build(name, (30,), 2), (30,), 2)


def test_a_users_factory_is_called_with_shape_and_classes(own: str) -> None:
    model = models.build(f"{own}:tiny", (3, 4), 6)
    assert model[1].weight.shape == (6, 12)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module_here:f", "cannot load the model 'no_such_module_here:f'"),
        ("a_users_module:missing", "cannot load the model 'a_users_module:missing'"),
        ("a_users_module:NUMBER", "is not callable"),
        ("a_users_module:not_a_model", "gave a str, not a torch.nn.Module"),
        (":f", "cannot load the model ':f'"),
        ("os:getcwd", "cannot be called as factory"),
    ],
)
def test_a_users_mistake_is_one_line(own: str, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as error:
        models.build(name, (3, 4), 6)
    assert "\n" not in str(error.value)
