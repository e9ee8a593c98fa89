"""The core works without any extra, and what needs one says in one line how to get it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simplexdp
from simplexdp import methods
from simplexdp.settings import Settings

ROOT = Path(__file__).parent.parent
EXTRAS = {
    "cluster": ["ray"],
    "dpsgd": ["opacus"],
    "medical": ["pydicom"],
    "onnx": ["onnx", "onnxruntime", "onnxscript"],
    "report": ["matplotlib"],
    "tables": ["pyarrow"],
    "timm": ["timm", "torchvision"],
}
CORE = """
import sys
from pathlib import Path
sys.modules.update(dict.fromkeys({blocked!r}))
from simplexdp import CertifiedClassifier, DPSGDPlan, Plan, data, load_model, methods, seal
from simplexdp.cli import commands
from simplexdp.settings import Settings
for method in ("certified", "dpsgd", "dirichlet"):
    steps = {{}} if method == "certified" else {{"steps": 2}}
    methods.run(Settings(method=method, **steps), Path(method))
seal.release("certified", "given")
print(len(load_model("given").predict(data.load("digits").test.inputs)))
for line in (["account", "--r", "0.2", "--sample-rate", "0.01", "--steps", "9"], ["--help"]):
    commands()(line, standalone_mode=False)
print([name for name in {blocked!r} if sys.modules[name] is not None])
"""


def test_the_list_here_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {*EXTRAS, "dev"}
    for name, packages in EXTRAS.items():
        assert {line.split(">=")[0] for line in extras[name]} == set(packages)
        assert name in extras["dev"][0] or name == "timm"
    assert not {line.split(">=")[0] for line in project["dependencies"]} & set().union(
        *EXTRAS.values()
    )


def test_the_core_works_without_any_extra(tmp_path: Path) -> None:
    blocked = [package for packages in EXTRAS.values() for package in packages]
    done = subprocess.run(
        [sys.executable, "-c", CORE.format(blocked=blocked)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(simplexdp.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("360\n")
    assert done.stdout.endswith("[]\n")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Take the packages of an extra away."""

    def call(extra: str) -> None:
        for package in EXTRAS[extra]:
            for name in [n for n in sys.modules if n.startswith(f"{package}.")]:
                monkeypatch.delitem(sys.modules, name)
            monkeypatch.setitem(sys.modules, package, None)

    return call


TRAIN = ("train", "--method", "certified", "--quiet")
NETWORK = ("--method", "dpsgd", "--model", "resnet9", "--norm", "batch", "--steps", "2")


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("tables", (*TRAIN, "--data", "t.csv", "--label", "y", "--bounds", "x=0:9")),
        ("medical", (*TRAIN, "--data", "ct", "--image-size", "8x8x1", "--window", "0:9")),
        ("report", ("account", "--r", "0.2", "--sample-rate", "0.01", "--steps", "9",
                    "--plot", "p.png")),
        ("report", ("audit", "--attack", "membership", "--method", "plain", "--out", "audits")),
        ("dpsgd", ("train", *NETWORK, "--option", "replace_batch_norm=true")),
        ("timm", (*TRAIN, "--features", "timm:resnet18")),
        ("timm", (*TRAIN, "--features", "torchvision:resnet18")),
        ("onnx", (*TRAIN, "--features", "onnx:encoder.onnx")),
        ("onnx", ("export", "run")),
        ("tables", ("predict", "table-model", "t.csv")),
    ],
)  # fmt: skip
def test_a_missing_extra_is_one_line_with_the_command(
    extra: str,
    line: tuple[str, ...],
    tmp_path: Path,
    without: Callable[[str], None],
    fail: Callable[..., str],
) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{k % 9},{k % 2}\n" for k in range(40)))
    (tmp_path / "encoder.onnx").write_bytes(b"no encoder")
    for k in range(20):
        (tmp_path / "ct" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "ct" / "ab"[k % 2] / f"{k}.dcm").write_bytes(b"no image")
    if line[0] == "export":
        methods.run(Settings(method="plain", steps=1), tmp_path / "run")
    if line[1] == "table-model":
        options: dict[str, Any] = {"label": "y", "bounds": "x=0:9"}
        table = Settings(data=str(tmp_path / "t.csv"), method="certified", data_options=options)
        methods.run(table, tmp_path / "table-model")
    without(extra)
    said = fail(*line)
    assert said.endswith(f'pip install "simplexdp[{extra}]"'), said
    assert not list(tmp_path.glob("runs/*/model.safetensors"))


def test_a_report_too(without: Callable[[str], None], fail: Callable[..., str]) -> None:
    pytest.importorskip("simplexdp.paper")
    without("report")
    assert fail("report").endswith('pip install "simplexdp[report]"')
