"""`simplexdp train` and `methods`: one model, one run folder, one statement."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp import plugins
from simplexdp.cli import signals
from simplexdp.cli.options import with_data, with_settings
from simplexdp.cli.shell import Json, LargeDelta, Quiet, Verbose, app, emit, pair
from simplexdp.settings import Settings

WHERE = ("device", "threads", "workers")  # may be others when a run goes on


@app.command()
@with_settings()
@with_data
def train(
    files: dict[str, Any],
    given: dict[str, Any],
    recipe: Annotated[
        str | None, typer.Option(help="Start from the published settings of this name.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the method's own, name=value; see `simplexdp methods`."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Fixed features, as --option features=NAME; see `simplexdp methods`."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; it must not exist.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that counts this run; see `ledger`.")
    ] = None,
    allow_large_delta: LargeDelta = False,
    verbose: Verbose = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one model; with no arguments: Algorithm 1 on the built-in digits at ε = 1."""
    from simplexdp import distributed, methods
    from simplexdp.ledger import Ledger, default_path
    from simplexdp.training import OutOfTime

    options = dict(pair(text) for text in option or ())
    if features is not None and options.setdefault("features", features) != features:
        raise ValueError("--features and --option features differ; give one of them")
    if resume:
        settings, ledger = _unfinished(given, options, bool(files or recipe), out, ledger)
    else:
        if recipe is None and "method" not in given:
            given |= _asked_for(given.get("data"), as_json)
        given |= {"data_options": files, "options": options}
        made = Settings if recipe is None else plugins.load("simplexdp.recipes", "paper")
        settings = made(**given) if recipe is None else made(recipe, **given)
    try:
        outcome, folder = methods.run(
            settings,
            out,
            resume,
            show_progress=not quiet,
            ledger=Ledger(ledger or default_path()),
            stop=signals.asked,
            allow_large_delta=allow_large_delta,
        )
    except OutOfTime as stopped:
        raise ValueError(str(stopped)) from stopped
    text = _told(settings, outcome, folder.path)
    if verbose:
        text += "\n\n" + outcome.statement.to_markdown()
    if distributed.is_first():
        emit(methods.summary(settings, outcome, folder), as_json, text)


def _asked_for(path: str | None, as_json: bool) -> dict[str, str]:
    """Return the method for data of one's own: asked for in a terminal, else required."""
    from simplexdp import data, files, methods

    if path is None or path in data.names() or not files.expanded(path).exists():
        return {}
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValueError(
            f"no method for your own data; give --method {methods.TO_RELEASE} to release the "
            f"model, or --method {methods.DEFAULT}, the paper's, whose ε does not cover it"
        )
    print(
        f"{methods.TO_RELEASE}: its ε covers the model, which you may then release.\n"
        f"{methods.DEFAULT}: the paper's, whose ε does NOT cover the model.",
        file=sys.stderr,
    )
    return {"method": str(typer.prompt("Method", default=methods.TO_RELEASE, err=True))}


def _told(settings: Settings, outcome: Any, run: Path) -> str:
    """Return the five lines that a person is told."""
    from simplexdp.evaluation import FEW, interval

    low, high = interval(outcome.accuracy, outcome.tested)
    few = ": too few to say much" if outcome.tested < FEW else ""
    claim = outcome.statement
    covered = claim.covers_weights and not claim.broken()
    hand_out = f"simplexdp release {run} --to MODEL; " if covered else ""
    return (
        f"Test accuracy {100 * outcome.accuracy:.2f} % on {settings.data} (95 % interval "
        f"{100 * low:.1f} to {100 * high:.1f} %; {outcome.tested:,} test records{few})\n"
        f"{claim.headline()}\n"
        f"Trained {outcome.model_name} by {settings.method} in {outcome.seconds:.1f} s\n"
        f"The run and its statement: {run / 'statement.md'}\n"
        f"Next: {hand_out}simplexdp predict {run} NEW --out predictions.csv; "
        f"simplexdp audit --run {run}"
    )


def _unfinished(
    given: dict[str, Any],
    options: dict[str, Any],
    more: bool,
    out: Path | None,
    ledger: Path | None,
) -> tuple[Settings, Path | None]:
    """Return the settings of the run to go on with, and the ledger that counts it.

    Code of one's own is named again: nothing is imported because a folder names it.
    """
    from simplexdp.runs import RunFolder

    where = {name: given.pop(name) for name in WHERE if name in given}
    named = {f"--{name}": given.pop(name) for name in ("method", "model") if name in given}
    named |= {f"--option {name}": value for name, value in options.items()}
    if given or more:
        raise ValueError("--resume takes its settings from the run folder; give --out alone")
    if out is None:
        raise ValueError("--resume needs the run folder; give it with --out")
    unfinished = RunFolder.open(out)
    begun = unfinished.settings()
    own = {"--method": begun.method, "--model": begun.model}
    own |= {f"--option {name}": value for name, value in begun.options.items()}
    for option, value in named.items():
        if value != own.get(option):
            raise ValueError(f"{out} was begun with {own.get(option)}; leave out {option}")
    for option, name in begun.code().items():
        if option not in named:
            raise ValueError(
                f"{out} names {name}, which is code; if you trust it, give it with {option} too"
            )
    return dataclasses.replace(begun, **where), ledger or unfinished.ledger_path()


@app.command()
def methods(
    name: Annotated[str, typer.Argument(help="One method; all built-in ones unless given.")] = "",
    as_json: Json = False,
) -> None:
    """Show what each method's bound covers, and the options of its own."""
    from simplexdp import methods as room

    found = [_described(room.lookup(one)) for one in ([name] if name else room.names())]
    lines = []
    for one in found:
        lines.append(
            f"{one['name']}: {one['title']}; bound: {one['bound']}; covers the released weights: "
            f"{one['covers_weights']}"
        )
        lines += [f"  {o['name']}={o['default']}  {o['help']}" for o in one["options"]]
    emit({"methods": found}, as_json, "\n".join(lines))


def _described(method: Any) -> dict[str, Any]:
    options = [
        {"name": f.name, "default": f.default, "help": f.metadata["help"]}
        for f in dataclasses.fields(method.Options)
    ]
    told = ("name", "title", "revision", "bound", "covers_draws", "covers_weights")
    return {**{name: getattr(method, name) for name in told}, "options": options}
