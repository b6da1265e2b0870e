"""From settings to how draws are taken, and to what a store then records of them."""

from pathlib import Path

from arflow_eval.contracts import Policy, Sampling
from arflow_eval.decode import tickets
from arflow_eval.settings import EvaluateSettings


def sampling(settings: EvaluateSettings, policy: Policy) -> Sampling:
    """How draws are taken of a policy: the decode's settings, its tickets read."""
    decode = settings.decode
    shape = (policy.horizon, policy.action_dim)
    return Sampling(
        draws=decode.draws,
        seed=settings.seed,
        noise=decode.noise,
        tile=decode.tile,
        least=decode.least,
        frames=padded_frames(settings),
        T=decode.T,
        final=decode.T_final,
        reference=decode.reference,
        mass=decode.mass,
        tokens=settings.store.tokens,
        steps=decode.steps,
        solver=decode.solver,
        tickets=None
        if decode.tickets is None
        else tickets.load(Path(decode.tickets), draws=decode.draws, shape=shape),
    )


def padded_frames(settings: EvaluateSettings) -> int | None:
    """At `fixed_shape`, frames that every batch is padded to."""
    return settings.batch if settings.decode.determinism == "fixed_shape" else None


def measures(settings: EvaluateSettings) -> frozenset[str]:
    """The optional variables that a token policy's store has."""
    if settings.model.family != "token":
        return frozenset()
    chosen = {
        ("logprob_sampling", "entropy", "top1_gap", "block_length"): True,
        ("grammar_mass",): settings.decode.mass,
        ("reference_kl", "reference_log_ratio"): settings.decode.reference is not None,
        ("tokens", "token_logprob"): settings.store.tokens,
    }
    return frozenset(name for names, wanted in chosen.items() if wanted for name in names)
