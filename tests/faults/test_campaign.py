"""Kills, losses of power and errors at every file operation: a part of the campaign, each run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
import campaign
from simplexdp import files
{breaks}
print(__import__("json").dumps(campaign.campaign({every}, {only!r})))
"""


def ran(*arguments: str) -> dict[str, dict]:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, and /proc is read")
def test_what_is_cut_off_anywhere_goes_on_as_if_it_had_not_been() -> None:
    found = ran(str(CAMPAIGN), "--every", "79")
    assert {name: of["wrong"] for name, of in found.items() if of["wrong"]} == {}
    assert len(found) == 10
    for kind, least in (("kills", 12), ("losses_of_power", 10), ("errors", 20)):
        assert sum(of[kind] for of in found.values()) >= least, found


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, and /proc is read")
@pytest.mark.parametrize(
    ("breaks", "only"),
    [
        # Without a flush of folders a renamed checkpoint is lost, and its run counted twice.
        ("files.flush_folder = lambda folder: None", "plain"),
        # Written in place, a file is half there.
        ("files.write_atomically = lambda path, content, mode=0: path.write_bytes(content)", "rep"),
    ],
)
def test_the_campaign_sees_what_is_broken_on_purpose(breaks: str, only: str) -> None:
    code = BROKEN.format(folder=str(CAMPAIGN.parent), breaks=breaks, every=7, only=only)
    found = ran("-c", code)
    assert any(of["wrong"] for of in found.values())
