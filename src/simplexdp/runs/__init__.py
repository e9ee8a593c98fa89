"""Run folders: what was asked for, the checkpoint while it trains, and what came out."""

from __future__ import annotations

from simplexdp.runs.folder import CHECKPOINT as CHECKPOINT
from simplexdp.runs.folder import CHECKSUMS as CHECKSUMS
from simplexdp.runs.folder import CONFIGURATION as CONFIGURATION
from simplexdp.runs.folder import EARLIER_MACHINES as EARLIER_MACHINES
from simplexdp.runs.folder import METRICS as METRICS
from simplexdp.runs.folder import RunFolder as RunFolder
from simplexdp.runs.folder import fresh_path as fresh_path
from simplexdp.runs.machine import machine as machine
from simplexdp.seal import MODEL as MODEL
from simplexdp.seal import STATEMENT as STATEMENT
