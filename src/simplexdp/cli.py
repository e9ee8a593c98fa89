"""A thin shell over the library: `simplexdp COMMAND`.

Standard output carries the result (with --json, one JSON object and nothing else); progress and
warnings go to standard error.  Exit code 0, or 2 with one line that says what is wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import accounting
from .settings import Settings

app = typer.Typer(
    help="Train classifiers on private inputs with public labels, and say what is protected.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# Typer carries its own copy of click in some releases; its exceptions' bases are found from here.
CommandLineError: Any = typer.BadParameter.__bases__[0].__bases__[0]

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Epsilon = Annotated[float, typer.Option(help="Budget ε.")]
Delta = Annotated[float, typer.Option(help="Budget δ.")]
Alpha = Annotated[float, typer.Option(help="Offset α of the Dirichlet mechanism.")]
SampleRate = Annotated[float, typer.Option(help="Poisson sampling rate q.")]
Steps = Annotated[int, typer.Option(help="Number of steps T.")]
AccountantName = Annotated[
    str, typer.Option("--accountant", help=f"One of: {', '.join(accounting.ACCOUNTANTS)}.")
]


def emit(record: dict[str, Any], as_json: bool, text: str) -> None:
    """Print a result for a script or for a person."""
    print(json.dumps(record, ensure_ascii=False, allow_nan=False) if as_json else text)


@app.command()
def calibrate(
    epsilon: Epsilon,
    sample_rate: SampleRate,
    steps: Steps,
    delta: Delta = 1e-5,
    alpha: Alpha = 3.0,
    accountant: AccountantName = "theorem1",
    as_json: Json = False,
) -> None:
    """The largest r within a budget."""
    found = accounting.calibrate(
        accountant,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        sample_rate=sample_rate,
        steps=steps,
    )
    _emit_cost(
        found.r, found.epsilon, found.order, delta, alpha, sample_rate, steps, accountant, as_json
    )


@app.command()
def account(
    r: Annotated[float, typer.Option(help="Scale r of the Dirichlet mechanism.")],
    sample_rate: SampleRate,
    steps: Steps,
    delta: Delta = 1e-5,
    alpha: Alpha = 3.0,
    accountant: AccountantName = "theorem1",
    as_json: Json = False,
) -> None:
    """What an r costs."""
    cost = accounting.account(
        accountant, r=r, alpha=alpha, sample_rate=sample_rate, steps=steps, delta=delta
    )
    _emit_cost(r, cost.epsilon, cost.order, delta, alpha, sample_rate, steps, accountant, as_json)


def _emit_cost(
    r: float,
    epsilon: float,
    order: int | None,
    delta: float,
    alpha: float,
    sample_rate: float,
    steps: int,
    accountant: str,
    as_json: bool,
) -> None:
    known = accounting.ACCOUNTANTS[accountant]
    record = {
        "r": r,
        "epsilon": epsilon,
        "delta": delta,
        "alpha": alpha,
        "sample_rate": sample_rate,
        "steps": steps,
        "accountant": accountant,
        "order": order,
    }
    text = (
        f"r = {r:.6g} costs ε = {epsilon:.6g} at δ = {delta:g} "
        f"({known.title}; relation: {known.relation})\n"
        "It bounds the draws, not the weights trained with them.  Assumptions:\n"
        + "\n".join(f"- {assumption}" for assumption in known.assumptions)
    )
    emit(record, as_json, text)


@app.command()
def train(
    data: Annotated[str, typer.Option(help="A data set's name, or a path to your own.")] = "digits",
    method: Annotated[
        str, typer.Option(help="dirichlet, dpsgd, certified, gaussian-features or plain.")
    ] = "dirichlet",
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
    lr: Annotated[str | None, typer.Option(help="Learning rate, or auto.")] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, momentum, adam, adamw or rmsprop.")
    ] = None,
    accountant: Annotated[
        str | None, typer.Option(help=f"One of: {', '.join(accounting.ACCOUNTANTS)}.")
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
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    workers: Annotated[int, typer.Option(help="Threads that prepare batches ahead.")] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="A setting of the method's own, as name=value.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the original files.")] = None,
    allow_unverified: Annotated[
        bool, typer.Option("--allow-unverified", help="Take a file whose checksum is unknown.")
    ] = False,
    label: Annotated[str | None, typer.Option(help="Label column of your table.")] = None,
    test: Annotated[Path | None, typer.Option(help="Your test data.")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(help="Public bounds of a column, as column=low:high.")
    ] = None,
    categories: Annotated[
        list[str] | None, typer.Option(help="Public categories of a column, as column=a|b.")
    ] = None,
    public_columns: Annotated[
        str | None, typer.Option(help="Columns whose bounds may be read from the data.")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Side of your images in pixels.")] = None,
    test_fraction: Annotated[float | None, typer.Option(help="Share held out for tests.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train one model; with no arguments: Algorithm 1 on the built-in digits at ε = 1."""
    from . import methods

    given: dict[str, Any] = {
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
        "augment": _names(augment),
        "seed": seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if lr is not None:
        given["lr"] = None if lr == "auto" else _number(lr, "--lr")
    given |= {"device": device, "threads": threads, "workers": workers}
    data_options: dict[str, Any] = {
        "data_dir": None if data_dir is None else str(data_dir),
        "allow_unverified": allow_unverified or None,
        "label": label,
        "test": None if test is None else str(test),
        "bounds": bounds,
        "categories": categories,
        "public_columns": _names(public_columns),
        "image_size": image_size,
        "test_fraction": test_fraction,
    }
    given["data_options"] = {k: v for k, v in data_options.items() if v is not None}
    given["options"] = dict(_pair(text) for text in option or ())
    if resume:
        if out is None:
            raise ValueError("--resume needs the run folder; give it with --out")
        from .runs import RunFolder

        settings = RunFolder.open(out).settings()
    elif recipe is not None:
        from .experiments import recipes

        settings = recipes.settings(recipe, **given)
    else:
        settings = Settings(data=data, method=method, **given)
    outcome, folder = methods.run(settings, out, resume, show_progress=not quiet)
    record = methods.summary(settings, outcome, folder)
    text = (
        f"Test accuracy {100 * outcome.accuracy:.2f} % on {settings.data} "
        f"({outcome.model_name}, {settings.method}, {outcome.seconds:.1f} s)\n"
        f"{outcome.statement.headline()}\n"
        f"The whole statement: {folder.path / 'statement.md'}\n\n" + outcome.statement.to_markdown()
    )
    emit(record, as_json, text)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name for name in text.split(",") if name and name != "none")


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{option} is {text!r}; give a number or auto") from error


def _pair(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--option {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main() -> None:
    """Entry point: every foreseen failure is one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except CommandLineError as error:
        code = _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = _fail("interrupted; a run that was begun goes on with --resume --out FOLDER")
    except (ValueError, OSError) as error:
        code = _fail(str(error))
    sys.exit(code or 0)


def _fail(message: str) -> int:
    print("simplexdp: " + " ".join(message.split()), file=sys.stderr)
    return 2
