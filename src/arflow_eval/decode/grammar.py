"""Grammars of an action block, as tables from state to legal ids."""

import numpy as np
from jaxtyping import Int64

from arflow_eval.contracts import Grammar


def symbol_budget(
    ids: Int64[np.ndarray, "id"], lengths: Int64[np.ndarray, "id"], *, budget: int
) -> Grammar:
    """FAST's grammar: each token spends `lengths` coefficients of a budget, to be met exactly.

    The state is the budget left; a token is legal where it fits. Tokens of one coefficient
    make every budget fillable, so a ValueError says where there is none.
    """
    if not (lengths == 1).any() or (lengths < 1).any():
        raise ValueError("no token of one coefficient: some budgets cannot be filled")
    left = np.arange(budget + 1)[:, None]
    legal = lengths <= left
    return Grammar(
        ids=ids,
        legal=legal,
        following=np.where(legal, left - lengths, -1).astype(np.int32),
        progress=1 - left[:, 0] / budget,
        start=budget,
        complete=0,
        longest=budget,
    )


def fixed_bins(first: int, *, bins: int, values: int) -> Grammar:
    """A binned tokenizer's grammar: exactly `values` tokens, each any of `bins` ids from `first`.

    The state is the number of tokens spoken.
    """
    spoken = np.arange(values + 1)[:, None]
    legal = np.broadcast_to(spoken < values, (values + 1, bins)).copy()
    return Grammar(
        ids=first + np.arange(bins),
        legal=legal,
        following=np.where(legal, spoken + 1, -1).astype(np.int32),
        progress=spoken[:, 0] / values,
        start=0,
        complete=values,
        longest=values,
    )
