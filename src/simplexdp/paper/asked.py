"""What `reproduce` may be asked for beside the name of a table: its options, with help texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp.settings import setting


@dataclass(frozen=True)
class Asked:
    """How a table or figure is reproduced; every field is an option of the command."""

    seeds: int = setting(1, "Runs of each cell.")
    epsilon: list[float] | None = setting(None, "Only these budgets; may be given several times.")
    only: str | None = setting(None, "Only the row of this label, or rows with this in it.")
    steps: int | None = setting(None, "Number of steps in the place of the recipe's.")
    evaluations: int | None = setting(None, "How often a run is tested on the way, if not 20.")
    budget_minutes: float | None = setting(None, "Stop after so many minutes.")
    ray: bool = setting(False, "Run on a Ray cluster.")
    ray_address: str | None = setting(None, "The cluster's address.")
    results: Path = setting(Path("results"), "Where the records are kept.")
    runs: Path = setting(Path("runs"), "Where runs live while they train.")
    device: str = setting("cpu", "cpu, cuda, …")
    threads: int | None = setting(None, "CPU threads.")
    allow_unverified: bool = setting(False, "Take a file whose checksum is unknown.")
    data_dir: Path | None = setting(None, "Folder with the original files.")

    def over(self) -> dict[str, Any]:
        """Return the settings that are put over those of every cell."""
        found: dict[str, Any] = {"device": self.device, "threads": self.threads}
        if self.steps is not None:
            found |= {"steps": self.steps, "epochs": None}
        if self.evaluations is not None:
            found["evaluations"] = self.evaluations
        options: dict[str, Any] = {"allow_unverified": True} if self.allow_unverified else {}
        if self.data_dir is not None:
            options["data_dir"] = str(self.data_dir.resolve())  # a worker has another folder
        return {**found, "data_options": options}
