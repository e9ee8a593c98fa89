"""An exported model computes what torch computes, on real records and from raw values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from simplexdp import Settings, export, load_model, methods

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")


def exported(folder: Path, settings: Settings) -> tuple[Any, Any]:
    methods.run(settings, folder / "run")
    model = load_model(folder / "run")
    path = export.to_onnx(model, folder / "m.onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["class_names"]) == list(model.class_names)
    assert told["statement"] == model.statement.headline()
    return model, session


def test_digits_by_a_network_and_on_features(tmp_path: Path) -> None:
    raw = np.asarray(load_digits().images, dtype=np.float64)[:, None]
    for name, settings in {
        "net": Settings(method="plain", steps=30, batch_size=32),
        "scattering": Settings(method="certified"),
    }.items():
        (tmp_path / name).mkdir()
        model, session = exported(tmp_path / name, settings)
        found = session.run(["logits"], {"records": raw[:500]})[0]
        expected = model.predict_proba(model.inputs(raw[:500]))
        shares = np.exp(found - found.max(axis=1, keepdims=True))
        assert np.allclose(shares / shares.sum(axis=1, keepdims=True), expected, atol=1e-4)
        assert len(session.run(["logits"], {"records": raw[:1]})[0]) == 1


def test_a_table_with_gaps_and_categories(tmp_path: Path) -> None:
    cancer = load_breast_cancer()
    rows = ["size,radius,texture,y"]
    raw = np.full((569, 3), np.nan)
    for k, (record, label) in enumerate(zip(cancer.data, cancer.target, strict=True)):
        size = int(record[0] > 12) + int(record[0] > 16)
        raw[k, 1] = size
        raw[k, 0] = record[0]
        if k % 7:
            raw[k, 2] = record[1]
        texture = "" if np.isnan(raw[k, 2]) else repr(float(record[1]))
        rows.append(f"{'SML'[size]},{float(record[0])!r},{texture},{label}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    options = {
        "label": "y",
        "categories": "size=S|M|L",
        "bounds": "radius=0:30,texture=0:40",
        "missing": "texture=indicator",
    }
    settings = Settings(
        data=str(tmp_path / "t.csv"),
        method="certified",
        data_options=options,
        options={"features": "columns"},
    )
    model, session = exported(tmp_path, settings)
    assert model.preprocessing is not None
    assert [c.name for c in model.preprocessing.columns] == ["radius", "size", "texture"]
    found = session.run(["logits"], {"records": raw})[0]
    shares = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)
    assert np.allclose(shares, model.predict_proba(tmp_path / "t.csv"), atol=1e-5)
    with pytest.raises(ValueError, match="exists; name another file"):
        export.to_onnx(model, tmp_path / "m.onnx")
