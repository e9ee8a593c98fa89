"""Run folders: a run's configuration, weights, metrics and statement."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from simplexdp import __version__, distributed, files, seal
from simplexdp.runs.machine import machine
from simplexdp.seal import DESCRIPTION, MODEL, STATEMENT, STATEMENT_TEXT
from simplexdp.settings import Settings
from simplexdp.statement import Statement

CONFIGURATION = seal.RUN
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
EARLIER_MACHINES = "earlier_machines"  # of a run that was begun elsewhere or otherwise
CHECKSUMS = "data_checksums"  # of files that are not known ones
LOCK = ".lock"  # there while a process trains in the folder
MADE_MEANWHILE = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # by another process
WAY_OUT = "restore it, or train in another folder"


class RunFolder:
    """One run's folder; all but the metrics, which grow, is written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count_in(self, ledger: Path) -> None:
        """Name the ledger that will count this run, so that it is the same one after a kill."""
        book = str(ledger.resolve())
        files.write_json(self.path / CONFIGURATION, {**self.configuration(), "ledger": book})

    @classmethod
    def create(cls, path: Path, settings: Settings, revision: int = 1) -> RunFolder:
        """Make a new folder; one that exists is refused, so that no run is overwritten.

        It gets its name when its configuration is in it: a kill leaves no folder without one.
        """
        taken = f"{path} exists; choose another folder with --out, or go on with it by --resume"
        if path.exists() or path.is_symlink():
            raise ValueError(taken)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = files.beside(path)
        made.mkdir()
        try:
            files.write_json(
                made / CONFIGURATION,
                {
                    "id": secrets.token_hex(8),
                    "settings": settings.to_json(),
                    "version": __version__,
                    "revision": revision,
                    "machine": machine(),
                    "processes": distributed.world(),
                },
            )
            os.rename(made, path)
            made = path
            files.flush_folder(path.parent)
        except BaseException as error:
            shutil.rmtree(made, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in MADE_MEANWHILE:
                raise ValueError(taken) from error
            raise
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder."""
        if not (path / CONFIGURATION).is_file():
            raise ValueError(
                f"{path} is not a run folder: it has no {CONFIGURATION}; name one that train made"
            )
        return cls(path)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands out while this one trains: two would be counted as one run."""
        if not distributed.is_first():
            yield  # the first process of a run holds it for all
            return
        busy = f"another process trains in {self.path}; wait for it, or choose another folder"
        with files.locked(self.path / LOCK, busy):
            files.remove_abandoned(self.path)  # by a killed one, since nobody else writes here
            yield

    def begin_anew(self) -> None:
        """Give the run another id: what was counted under the old one was another run."""
        renewed = {**self.configuration(), "id": secrets.token_hex(8), "machine": machine()}
        renewed.pop(EARLIER_MACHINES, None)
        files.write_json(self.path / CONFIGURATION, renewed)
        (self.path / METRICS).unlink(missing_ok=True)

    def go_on_here(self) -> None:
        """Note the machine and threads that go on with the run, where they are others."""
        record = self.configuration()
        if record.get("machine") != (here := machine()):
            earlier = [*(record.get(EARLIER_MACHINES) or ()), record.get("machine")]
            record |= {"machine": here, EARLIER_MACHINES: earlier}
            files.write_json(self.path / CONFIGURATION, record)

    @property
    def checkpoint(self) -> Path:
        """Return the path of the checkpoint."""
        return self.path / CHECKPOINT

    def configuration(self) -> dict[str, Any]:
        """Return run.json: settings, and what is known of the run."""
        record: dict[str, Any] = files.read_json(self.path / CONFIGURATION, WAY_OUT)
        if not isinstance(record, dict):
            raise ValueError(f"{self.path / CONFIGURATION} is damaged; {WAY_OUT}")
        return record

    def processes(self) -> int:
        """Return how many processes train it."""
        found = self.configuration().get("processes")
        if not isinstance(found, int):
            raise ValueError(f"{self.path / CONFIGURATION} is damaged; {WAY_OUT}")
        return found

    def ledger_path(self) -> Path | None:
        """Return the ledger that counts the run, if one does."""
        found = self.configuration().get("ledger")
        return None if found is None else Path(str(found))

    def settings(self) -> Settings:
        """Return the settings that the run was begun with."""
        found = self.configuration().get("settings")
        if not isinstance(found, dict):
            raise ValueError(f"{self.path / CONFIGURATION} has no settings; {WAY_OUT}")
        try:
            return Settings.from_json(found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path / CONFIGURATION}: {error}") from error

    def check_begun_as(self, settings: Settings, revision: int) -> None:
        """Refuse to go on with other settings, or with a method that would train something else."""
        same = self.settings().key(revision) == settings.key(revision)
        if not same or self.configuration().get("revision", 1) != revision:
            raise ValueError(
                f"{self.path} was begun with other settings or another revision of its method; "
                f"resume with those in its {CONFIGURATION}, or train in another folder"
            )
        begun, now = self.processes(), distributed.world()
        if begun != now:  # each process has noise of its own
            raise ValueError(
                f"{self.path} was begun in {begun} processes and this is {now}; the steps after "
                f"its checkpoint would be drawn anew, so resume in {begun}"
            )

    def discard(self) -> None:
        """Remove a folder in which nothing was trained yet."""
        for path in self.path.iterdir():
            path.unlink()
        self.path.rmdir()

    def forget_seed(self) -> None:
        """Remove the checkpoint, and what a kill left of one: they hold the secret seed."""
        for path in (self.checkpoint, *self.path.glob(f".{CHECKPOINT}.*")):
            path.unlink(missing_ok=True)
        files.flush_folder(self.path)

    def finished(self) -> bool:
        """Return whether statement and weights are there."""
        return (self.path / STATEMENT).is_file() and (self.path / MODEL).is_file()

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Append one line of metrics."""
        with (self.path / METRICS).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Return what was measured, up to the line that a kill cut in two."""
        path = self.path / METRICS
        found: list[dict[str, Any]] = []
        text = path.read_text("utf-8", errors="replace") if path.exists() else ""
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                break
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                break
            found.append(record)
        return found

    def cut_metrics(self, step: int) -> None:
        """Forget what was measured after `step`, since it will be measured again."""
        kept = [json.dumps(record) + "\n" for record in self.metrics() if record["step"] <= step]
        files.write_atomically(self.path / METRICS, "".join(kept).encode())

    def save_model(
        self,
        model: nn.Module,
        description: Mapping[str, Any],
        preprocessing: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the weights, and what it takes to build the model and give it inputs."""
        files.write_json(self.path / DESCRIPTION, description)
        if preprocessing is not None:
            files.write_json(self.path / seal.PREPROCESSING, preprocessing)
        state = {k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}
        files.write_atomically(self.path / MODEL, save(state))

    def save_statement(self, statement: Statement, ledger_entry: str | None = None) -> None:
        """Write the statement, for people and for programs, and seal it to the weights.

        Its last file comes last: with it the run is finished, and the manifest is there.
        """
        configuration = self.configuration()
        to_come = {
            STATEMENT_TEXT: statement.to_markdown().encode(),
            STATEMENT: files.as_json(statement.to_json()),
        }
        seal.write(
            self.path,
            method=configuration["settings"]["method"],
            revision=configuration.get("revision"),
            ledger_entry=ledger_entry,
            version=configuration["version"],
            to_come=to_come,
        )
        for name, content in to_come.items():
            files.write_atomically(self.path / name, content)

    def save_outcome(self, outcome: Mapping[str, Any], checksums: Mapping[str, str]) -> None:
        """Write what came out, and of which files where they are not known ones."""
        record = {**self.configuration(), "outcome": outcome}
        files.write_json(
            self.path / CONFIGURATION, record | ({CHECKSUMS: dict(checksums)} if checksums else {})
        )


def fresh_path(settings: Settings) -> Path:
    """Return a new folder name below ./runs."""
    data = Path(settings.data).stem
    method = settings.method.replace(":", ".").replace(os.sep, ".")
    return Path("runs") / f"{data}-{method}-{secrets.token_hex(4)}"
