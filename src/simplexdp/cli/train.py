"""`simplexdp train`: one model, one run folder, one statement."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp import plugins
from simplexdp.accounting import ACCOUNTANTS
from simplexdp.cli.inputs import Data, with_data_options
from simplexdp.cli.shell import Json, Quiet, app, emit, names, number, pair
from simplexdp.ledger import Ledger, default_path
from simplexdp.settings import Settings


@app.command()
@with_data_options
def train(
    files: dict[str, Any],
    data: Data = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="certified, dpsgd, gaussian-features, plain, or dirichlet, which is trained "
            "unless another is given, and whose ε does NOT cover the weights."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model's name, or package.module:factory.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Start from the published settings of this name.")
    ] = None,
    norm: Annotated[str | None, typer.Option(help="Normalisation: group, batch or none.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget ε; 1 unless given.")] = None,
    delta: Annotated[float | None, typer.Option(help="Budget δ; 1e-5 unless given.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Offset α; 3 unless given.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected records in a batch.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data, for steps.")] = None,
    lr: Annotated[str | None, typer.Option(help="Learning rate, or auto: by rule.")] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, momentum, adam, adamw or rmsprop.")
    ] = None,
    accountant: Annotated[
        str | None, typer.Option(help=f"One of: {', '.join(ACCOUNTANTS)}.")
    ] = None,
    estimator: Annotated[
        str | None, typer.Option(help="Gradient estimator: marginal or full.")
    ] = None,
    augment: Annotated[
        str | None, typer.Option(help="Augmentations, as random_crop,horizontal_flip; or none.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible, and then NOT private: the seed is known.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; it must not exist.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; cpu unless given.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads that prepare batches ahead; none unless given.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the method's own: class_weights=balanced, warmup=STEPS."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that counts this run; see `ledger`.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one model; with no arguments: Algorithm 1 on the built-in digits at ε = 1."""
    from simplexdp import distributed, methods

    given: dict[str, Any] = {
        "data": data,
        "method": method,
        "model": model,
        "norm": norm,
        "epsilon": epsilon,
        "delta": delta,
        "alpha": alpha,
        "batch_size": batch_size,
        "steps": steps,
        "epochs": epochs,
        "optimizer": optimizer,
        "accountant": accountant,
        "estimator": estimator,
        "augment": names(augment),
        "seed": seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if lr is not None:
        given["lr"] = None if lr == "auto" else number(lr, "--lr")
    options = dict(pair(text) for text in option or ())
    if resume and (given or files or options or recipe):
        raise ValueError("--resume takes its settings from the run folder; give --out alone")
    where: dict[str, Any] = {"device": device, "threads": threads, "workers": workers}
    where = {name: value for name, value in where.items() if value is not None}
    given |= {**where, "data_options": files, "options": options}
    if resume:
        if out is None:
            raise ValueError("--resume needs the run folder; give it with --out")
        from simplexdp.runs import RunFolder

        unfinished = RunFolder.open(out)
        settings = dataclasses.replace(unfinished.settings(), **where)
        ledger = ledger or unfinished.ledger_path()
    elif recipe is not None:
        settings = _of_recipe(recipe, given)
    else:
        settings = Settings(**given)
    outcome, folder = methods.run(
        settings,
        out,
        resume,
        show_progress=not quiet,
        ledger=Ledger(ledger or default_path()),
    )
    record = methods.summary(settings, outcome, folder)
    text = (
        f"Test accuracy {100 * outcome.accuracy:.2f} % on {settings.data} "
        f"({outcome.model_name}, {settings.method}, {outcome.seconds:.1f} s)\n"
        f"{outcome.statement.headline()}\n"
        f"The whole statement: {folder.path / 'statement.md'}\n\n" + outcome.statement.to_markdown()
    )
    if distributed.is_first():
        emit(record, as_json, text)


def _of_recipe(name: str, given: dict[str, Any]) -> Settings:
    """Return a recipe's settings with what is given put over them."""
    sources = plugins.names("simplexdp.recipes")
    if not sources:
        raise ValueError("no recipes are installed; leave out --recipe and give the settings")
    problem = ValueError()
    for source in sources:
        try:
            settings: Settings = plugins.load("simplexdp.recipes", source)(name, **given)
            return settings
        except ValueError as error:
            problem = error
    raise problem
