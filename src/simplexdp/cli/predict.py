"""`simplexdp predict`: classes of new records."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from simplexdp.cli.shell import Json, app, emit
from simplexdp.files import write_atomically

Trust = Annotated[
    list[str] | None,
    typer.Option(help="Code of your own that the model names (package.module:NAME), to import."),
]


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a released one.")],
    path: Annotated[Path, typer.Argument(help="An image, a folder of them, a table or an .npz.")],
    out: Annotated[Path, typer.Option(help="The table to write.")] = Path("predictions.csv"),
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Predict the class of each new record, read as the training records were."""
    from simplexdp import load_model

    if out.exists():
        raise ValueError(f"{out} exists; name another file with --out")
    loaded = load_model(model, trust=trust or ())
    columns = loaded.table(path)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_atomically(out, text.getvalue().encode())
    counts = Counter(columns["class"])
    record = {
        "predictions": str(out),
        "records": len(columns["record"]),
        "classes": {name: counts[name] for name in loaded.class_names},
        "probabilities": loaded.probabilities,
        "model": str(model),
        "headline": loaded.statement.headline(),
    }
    told = "with probabilities" if loaded.probabilities else "classes alone, no probabilities"
    text_line = f"{out}: {record['records']:,} records ({told})\n{loaded.statement.headline()}"
    emit(record, as_json, text_line)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a released one.")],
    out: Annotated[Path, typer.Option(help="The ONNX file to write.")] = Path("model.onnx"),
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Write a model as ONNX with its preprocessing inside, checked against torch."""
    from simplexdp import load_model
    from simplexdp.export import to_onnx

    loaded = load_model(model, trust=trust or ())
    path = to_onnx(loaded, out)
    headline = loaded.statement.headline()
    record = {"onnx": str(path), "model": str(model), "headline": headline}
    emit(record, as_json, f"{path}: computes what {model} computes\n{headline}")
