"""`simplexdp verify` and `release`: check what a model's folder claims, and hand it out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli.shell import Json, app, emit


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a released one.")],
    seal: Annotated[
        bool,
        typer.Option("--seal", help="Seal it as it is now; do so only if you trust its files."),
    ] = False,
    signers: Annotated[
        Path | None, typer.Option(help="Check the signature by these keys (ssh-keygen's form).")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="Who must have signed, by the name in --signers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a model's files against its manifest, and its claim against its event."""
    from simplexdp import seal as seals

    if (signers is None) != (signer is None):
        raise ValueError("a signature is checked with both --signers FILE and --signer NAME")
    sealed = seals.seal_again(folder) if seal else seals.verify(folder)
    if signers is not None and signer is not None:
        seals.check_signature(sealed, signers, signer)
    _tell(sealed, as_json, signer)


@app.command()
def release(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    to: Annotated[Path, typer.Option(help="The new folder, which must not exist.")],
    although_not_covered: Annotated[
        bool,
        typer.Option(
            "--although-not-covered", help="Release weights that no bound covers, and say so."
        ),
    ] = False,
    sign_with: Annotated[
        Path | None, typer.Option(help="Sign with this key of ssh-keygen's.")
    ] = None,
    with_metrics: Annotated[
        bool,
        typer.Option(
            "--with-metrics", help="Tell the test accuracy, which no bound covers, in its card."
        ),
    ] = False,
    licence: Annotated[
        str, typer.Option(help="The licence that its card names, such as apache-2.0.")
    ] = "unknown",
    intended_use: Annotated[
        str | None, typer.Option(help="What the model is for, as its card says.")
    ] = None,
    curator: Annotated[
        list[str] | None, typer.Option(help="Who holds the data, as its card says.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy what may be handed out of a run, and nothing else, into a new folder."""
    from simplexdp import seal as seals

    sealed = seals.release(
        run,
        to,
        although_not_covered=although_not_covered,
        sign_with=sign_with,
        with_metrics=with_metrics,
        licence=licence,
        intended_use=intended_use,
        curators=curator or (),
    )
    _tell(sealed, as_json, None)


def _tell(sealed: Any, as_json: bool, signer: str | None) -> None:
    from simplexdp.seal import SIGNATURE

    signed = (sealed.folder / SIGNATURE).is_file()
    record = {
        "folder": str(sealed.folder),
        "files": dict(sealed.digests),
        "manifest": sealed.digest,
        "method": sealed.method,
        "revision": sealed.revision,
        "version": sealed.version,
        "ledger_entry": sealed.ledger_entry,
        "covered": sealed.covered,
        "headline": sealed.statement.headline(),
        "signer": signer,
    }
    said = (
        f"signed by {signer}"
        if signer
        else "signed, but by whom was not checked; give --signers and --signer"
        if signed
        else "not signed: it shows damage and careless edits, not who made it"
    )
    text = (
        f"{sealed.folder}: {len(sealed.digests)} files fit the manifest, the claim its event\n"
        f"{sealed.statement.headline()}\n"
        f"SHA-256 of the manifest: {sealed.digest} ({said})"
    )
    emit(record, as_json, text)
