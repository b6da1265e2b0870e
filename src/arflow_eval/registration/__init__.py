"""Registrations: a locked plan, its amendments, what happened since, and proof of all three.

`plan` reads a plan, `composing` and `lock` make its lock, `amending` changes it with a reason,
`ledger` records what happens, `chain` is all of that as it stands. `running` is a locked arm's
evaluate, `opening` a registration's reads. `verifying`, `showing` and `comparing` look at it from
the files alone.
"""

from arflow_eval.registration.opening import carry_out, locked_reads, peek
from arflow_eval.registration.running import (
    begin,
    finish,
    locked_arm,
    shows_outcomes,
    standing,
)

__all__ = [
    "begin",
    "carry_out",
    "finish",
    "locked_arm",
    "locked_reads",
    "peek",
    "shows_outcomes",
    "standing",
]
