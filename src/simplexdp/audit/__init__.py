"""Attacks on what was trained, and lower bounds on ε beside the claim.

    audit.run(Settings(), attack="canary")   # one attack on one method
    audit.table()                            # all methods on the digits

Rooms: bounds (how large must ε be), tradeoff (the same for a claim that is a curve), claims (in
which relation is the claim held), crafting (which inputs are planted), schedules (how much is
trained), shadow (one attacked training), transcript, canary, one_run, membership and reconstruct
(the attacks), attacks (one result in one form), tables.
"""

from __future__ import annotations

from simplexdp.audit.attacks import ATTACKS, attach, run
from simplexdp.audit.reconstruct import pictures
from simplexdp.audit.tables import as_text, place, table, to_markdown

__all__ = ["ATTACKS", "as_text", "attach", "pictures", "place", "run", "table", "to_markdown"]
