"""Grammars of an action block, as tables from state to legal ids."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64


@dataclass(frozen=True)
class SymbolBudget:
    """FAST's grammar: each token spends `lengths` coefficients of a budget, to be met exactly.

    The state is the budget left; a token is legal where it fits. Single-coefficient tokens
    make every budget fillable.
    """

    ids: Int64[np.ndarray, "id"]
    lengths: Int64[np.ndarray, "id"]
    start: int

    def __post_init__(self) -> None:
        if not (self.lengths == 1).any():
            raise ValueError("no token of one coefficient: some budgets cannot be filled")

    @property
    def complete(self) -> int:
        """Nothing left to spend."""
        return 0

    def legal(self, state: int) -> Bool[np.ndarray, "id"]:
        """Tokens no longer than the budget left."""
        fits: Bool[np.ndarray, "id"] = self.lengths <= state
        return fits

    def advance(self, state: int, token: int) -> int:
        """The budget left after a token."""
        return state - int(self.lengths[int(np.searchsorted(self.ids, token))])
