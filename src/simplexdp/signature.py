"""Sign a bundle's manifest with ssh-keygen, and check who did."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simplexdp.seal import Sealed

MANIFEST = "manifest.json"
SIGNATURE = f"{MANIFEST}.sig"
NAMESPACE = "simplexdp-model"  # of signatures, so that one made for another purpose does not count


def sign(folder: Path, key: Path) -> None:
    """Sign the manifest of a folder with a key of ssh-keygen's.

    Raises:
        ValueError: ssh-keygen is not installed, or refused.
    """
    (folder / SIGNATURE).unlink(missing_ok=True)  # ssh-keygen would ask whether to overwrite it
    _ssh_keygen(
        ("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(folder / MANIFEST)),
        f"{folder / MANIFEST} was not signed with {key}",
    )


def check_signature(sealed: Sealed, signers: Path, signer: str) -> None:
    """Check that the manifest of a folder was signed by somebody.

    Args:
        sealed: The folder.
        signers: The keys that are trusted, a file in the form of ssh-keygen's ALLOWED SIGNERS.
        signer: Who must have signed, by the name in that file.

    Raises:
        ValueError: There is no signature, or not by them.
    """
    path = sealed.folder / SIGNATURE
    if not path.is_file():
        raise ValueError(f"{path} is missing, so nobody signed it; ask for the signed folder")
    content = (sealed.folder / MANIFEST).read_bytes()
    if hashlib.sha256(content).hexdigest() != sealed.digest:
        raise ValueError(f"{sealed.folder / MANIFEST} changed while it was checked; check again")
    _ssh_keygen(
        (
            *("-Y", "verify", "-f", str(signers), "-I", signer),
            *("-n", NAMESPACE, "-s", str(path)),
        ),
        f"{path} is no signature of {signer} that {signers} allows",
        content,
    )


def _ssh_keygen(arguments: tuple[str, ...], failed: str, said: bytes = b"") -> None:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise ValueError("signatures need ssh-keygen; install OpenSSH, or go without")
    done = subprocess.run([program, *arguments], input=said, capture_output=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(f"{failed} ({reason[-1] if reason else 'ssh-keygen refused'})")
