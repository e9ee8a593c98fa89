"""Encoders as features: modules of one's own, and those of timm, torchvision and transformers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from simplexdp import data, features, methods
from simplexdp.features import encoders
from simplexdp.settings import Settings


def network(norm: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), norm or nn.Identity(), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers)


def first_seven(batch: np.ndarray) -> np.ndarray:
    return batch.reshape(len(batch), -1)[:, :7]


IMAGES = np.random.default_rng(0).integers(0, 256, (9, 3, 12, 12), dtype=np.uint8)


def test_a_module_is_put_in_evaluation_mode_and_pooled_to_unit_rows() -> None:
    module = network(nn.BatchNorm2d(6))
    feature_map = features.build(module, (3, 12, 12), "images of a museum")
    rows = features.compute(IMAGES, feature_map)
    with torch.no_grad():
        want = network(nn.BatchNorm2d(6)).eval()(torch.from_numpy(IMAGES) / 255.0).mean((2, 3))
    want = want / want.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(rows, want.numpy(), rtol=1e-4, atol=1e-6)
    assert not any(p.requires_grad for p in module.parameters())
    told = feature_map.provenance
    assert (told.trained_on, told.fixed, told.record_wise) == ("images of a museum", True, True)
    assert told.checksum == encoders.checksum(module.state_dict())


def test_maps_stand_side_by_side_and_keep_what_the_trained_one_says() -> None:
    shape = (1, 12, 12)
    block = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    both = features.build(f"scattering+columns+{__name__}:first_seven", shape, "drawings")
    parts = [features.build(name, shape).apply(block) for name in ("scattering", "columns")]
    parts.append(block.flatten(1)[:, :7])
    want = torch.cat([part / part.norm(dim=1, keepdim=True) for part in parts], 1) / 3**0.5
    torch.testing.assert_close(both.apply(block), want)
    assert (both.width, both.stored, both.largest) == (want.shape[1], False, None)
    assert (both.provenance.trained_on, both.provenance.fixed) == ("drawings", True)
    assert features.build("scattering+columns", shape).stored
    twice = features.build(f"{__name__}:first_seven+{__name__}:first_seven", shape).provenance
    assert (twice.trained_on, twice.fixed) == (None, False)


def test_a_checksum_tells_one_weight_from_another() -> None:
    first, second = network(), network()
    assert encoders.checksum(first.state_dict()) == encoders.checksum(second.state_dict())
    with torch.no_grad():
        second[0].bias[0] += 1e-6
    assert encoders.checksum(first.state_dict()) != encoders.checksum(second.state_dict())


def test_a_module_with_batch_statistics_is_refused() -> None:
    coupled = network(nn.BatchNorm2d(6, track_running_stats=False))
    with pytest.raises(ValueError, match="when the records beside it change"):
        features.build(coupled, (3, 12, 12))


def outcome(**given: Any) -> methods.Outcome:
    settings = Settings(
        method="certified", epsilon=50.0, seed=0, steps=5, options={"features": f"{__name__}:NET"}
    )
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    images = (rng.random((40, 3, 12, 12)) * 100 + 100 * labels[:, None, None, None]).astype("uint8")
    split = data.Split(images, labels)
    return methods.train(settings, data.Dataset("own", split, split, None, ("a", "b"), **given))


NET = network()


def test_the_statement_names_the_encoder_and_leaves_its_training_data_open() -> None:
    said = outcome(features_from="images of a museum").statement
    assert "images of a museum" in said.mechanism["encoder"]
    assert any("images of a museum" in text for text in said.does_not_cover)
    assert said.proviso == ""
    assert said.assumptions[0].holds is None
    unsaid = outcome().statement
    assert unsaid.proviso.startswith("if these features are a fixed function")
    assert "not declared" in unsaid.mechanism["encoder"]


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18", "hf:a/b"])
def test_a_library_that_is_missing_is_named_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(encoders.importlib, "import_module", absent)
    with pytest.raises(ValueError, match=r"not installed here.*; pip install") as caught:
        features.build(name, (3, 32, 32))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("timm:resnet18", (4,), "takes images of 1 or 3 channels"),
        ("timm:resnet18@5", (3, 32, 32), "the resolution @5"),
        ("torchvision:resnet18@wide", (3, 32, 32), "the resolution @wide"),
        ("onnx:/nowhere.onnx", (3, 32, 32), "there is no file"),
        ("math:pi", (3, 32, 32), "no function and no torch module"),
    ],
)
def test_bad_encoders_are_refused(name: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        features.build(name, shape)


def installed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{module} is not installed: {error}")


def test_timm_by_name_at_a_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = installed("timm")
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", pretrained=False, num_classes=0)
    monkeypatch.setattr(timm, "create_model", lambda *given, **named: model)
    feature_map = features.build("timm:test_resnet@48", (3, 12, 12))
    rows = features.compute(IMAGES, feature_map, use_cache=False)
    assert feature_map.provenance.resolution == (48, 48)
    mean, std = (torch.tensor(model.pretrained_cfg[k]).view(3, 1, 1) for k in ("mean", "std"))
    seen = nn.functional.interpolate(
        torch.from_numpy(IMAGES) / 255.0, size=(48, 48), mode="bicubic", antialias=True
    )
    with torch.no_grad():
        want = model.eval()((seen.clamp(0, 1) - mean) / std)
    want = want / want.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(rows, want.numpy(), rtol=1e-3, atol=1e-5)


def test_torchvision_by_name_without_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    models = installed("torchvision").models
    torch.manual_seed(0)
    monkeypatch.setattr(models, "get_model", lambda what, weights: models.resnet18(weights=None))
    feature_map = features.build("torchvision:resnet18@32", (1, 12, 12))
    assert feature_map.width == 512
    assert "IMAGENET1K_V1" in feature_map.provenance.describe()
    rows = features.compute(IMAGES[:, :1], feature_map, use_cache=False)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-5)


def test_transformers_from_a_local_folder(tmp_path: Path) -> None:
    transformers = installed("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    transformers.ViTModel(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    feature_map = features.build(f"hf:{tmp_path}", (3, 12, 12))
    assert feature_map.width == 16
    assert ", if " not in feature_map.provenance.describe()
    assert feature_map.provenance.trained_on is None
