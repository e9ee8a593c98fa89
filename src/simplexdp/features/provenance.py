"""Where a feature map comes from, and what a statement has to say of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

NO_DATA = "no data"  # constants from a formula or a public seed


@dataclass(frozen=True)
class Provenance:
    """What is known of a feature map.

    Attributes:
        source: Where it comes from.
        trained_on: The data that it was trained on; `NO_DATA`, or None where nobody said.
        licence: Of its weights, where known.
        checksum: SHA-256 of its weights or its file, where it has any.
        resolution: The height and width that it sees, where it rescales images.
        fixed: Whether it is known to be a function of one record that no private record shaped.
        record_wise: Whether a probe saw that the rows beside a record do not change its features;
            None where nothing was probed, as it follows from the formula.
    """

    source: str = "simplexdp"
    trained_on: str | None = NO_DATA
    licence: str = ""
    checksum: str = ""
    resolution: tuple[int, int] | None = None
    fixed: bool = True
    record_wise: bool | None = None

    def describe(self) -> str:
        """Return all of it in one sentence."""
        seen = self.resolution and f"{self.resolution[0]}×{self.resolution[1]} pixels"
        parts = (
            ("source", self.source),
            ("trained on", self.trained_on or "not declared"),
            ("licence", self.licence),
            ("sha256", self.checksum),
            ("resolution", seen),
            ("record by record", self.record_wise and "as a probe found"),
        )
        return "; ".join(f"{name}: {value}" for name, value in parts if value)


def joined(parts: Sequence[Provenance]) -> Provenance:
    """Return what is known of rows side by side: of those that were trained, if any were."""
    trained = [part for part in parts if part.trained_on != NO_DATA]
    if not trained:
        return Provenance()
    if len(trained) == 1:
        return trained[0]
    told = [part.trained_on for part in trained]
    return Provenance(
        source=" and ".join(part.source for part in trained),
        trained_on=None if None in told else " and ".join(dict.fromkeys(map(str, told))),
        licence=" and ".join(part.licence for part in trained if part.licence),
        checksum=" and ".join(part.checksum for part in trained if part.checksum),
        fixed=all(part.fixed for part in trained),
        record_wise=True,
    )


def checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of named tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        plain = value.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)};".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
