"""An algorithm is a row: one piece a slot and a few plain numbers; no algorithm is a class of its own.

Rows are compared and overridden slot by slot, so what differs between two of them is what `difference`
prints. The sum itself, ``(weights * losses).sum()``, is not here: the training step holds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rlvr.algo.advantages import Advantage, BaselineAdvantage, TokenAdvantage
from rlvr.algo.aggregation import Aggregator
from rlvr.algo.checks import check_count, check_flag
from rlvr.algo.critic import Critic
from rlvr.algo.entropy import Bonus
from rlvr.algo.focus import AllTokens, Focus
from rlvr.algo.importance import Importance, TokenRatio
from rlvr.algo.kl import Penalty
from rlvr.algo.losses import Loss
from rlvr.algo.mismatch import Mismatch
from rlvr.algo.restart import Restart
from rlvr.algo.selection import KeepAll, Selector
from rlvr.algo.slots import SLOTS, changed, parsed, pieces

__all__ = ["Algorithm", "describe", "difference", "equation", "with_overrides"]


@dataclass(frozen=True)
class Algorithm:
    """One row: a piece a slot, and plain numbers.

    ``importance`` says whether a ratio belongs to a token or to a completion, ``focus`` which tokens the loss acts
    on. ``kl``, ``entropy``, ``critic``, ``mismatch`` and ``restart`` may be None. ``source`` says whose completions
    are learned from: the policy's own samples, or the task's gold demonstrations. ``num_iterations`` is the number
    of passes over one batch of samples (μ), ``minibatches`` the number of optimizer steps a pass is cut into.
    ``sampling_rounds`` is how often at most prompts are drawn until a batch is full of prompts that ``select``
    keeps (dynamic sampling; 1 never draws again). ``mask_truncated`` takes completions that met the length limit
    out of the mask. Derive a row with ``dataclasses.replace`` or `with_overrides`.

    >>> from rlvr.algo import Center, Reinforce, TokenMean
    >>> Algorithm("mine", Center(), Reinforce(), TokenMean()).select
    KeepAll()
    """

    name: str
    advantage: Advantage | BaselineAdvantage | TokenAdvantage
    loss: Loss
    aggregate: Aggregator
    select: Selector = field(default_factory=KeepAll)
    importance: Importance = field(default_factory=TokenRatio)
    focus: Focus = field(default_factory=AllTokens)
    kl: Penalty | None = None
    entropy: Bonus | None = None
    critic: Critic | None = None
    mismatch: Mismatch | None = None
    restart: Restart | None = None
    source: str = "policy"
    num_iterations: int = 1
    minibatches: int = 1
    sampling_rounds: int = 1
    mask_truncated: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"Algorithm.name is {self.name!r}; accepted: a non-empty string")
        for slot in SLOTS:
            _check_slot(slot, vars(self)[slot])
        if self.source not in ("policy", "gold"):
            raise ValueError(f"Algorithm.source is {self.source!r}; accepted: 'policy' or 'gold'")
        for name in ("num_iterations", "minibatches", "sampling_rounds"):
            check_count(f"Algorithm.{name}", vars(self)[name])
        check_flag("Algorithm.mask_truncated", self.mask_truncated)
        if self.source == "gold" and self.loss.reads_advantage:
            accepted = "a loss that needs no advantage, such as Likelihood(): a demonstration has no siblings"
            raise ValueError(f"Algorithm.loss is {self.loss!r} with source='gold'; accepted: {accepted}")
        reads_values = isinstance(self.advantage, TokenAdvantage) and self.advantage.needs_values
        if reads_values != (self.critic is not None):
            accepted = "ValueLoss()" if reads_values else "None, as this advantage reads no values"
            raise ValueError(f"Algorithm.critic is {self.critic!r} with {self.advantage!r}; accepted: {accepted}")


def _check_slot(slot: str, piece: Any) -> None:
    known = SLOTS[slot]
    if (known.optional and piece is None) or (not isinstance(piece, type) and isinstance(piece, known.protocol)):
        return
    names = f"{known.article} object, such as one of {', '.join(pieces(slot))}{', or None' if known.optional else ''}"
    raise ValueError(f"Algorithm.{slot} is {piece!r}; accepted: {names}")


def describe(algorithm: Algorithm) -> dict[str, str]:
    """Every field of a row as text, pieces with all their settings.

    >>> from rlvr.algo import preset
    >>> describe(preset("grpo"))["loss"]
    'Clip(epsilon=0.2, epsilon_high=None, dual_clip=None)'
    """
    return {item.name: str(vars(algorithm)[item.name]) for item in fields(Algorithm)}


def difference(a: Algorithm, b: Algorithm) -> dict[str, tuple[str, str]]:
    """The slots in which two rows differ, apart from their names, each with both descriptions.

    >>> from rlvr.algo import preset
    >>> difference(preset("reinforce"), preset("reinforce_group_mean"))
    {'advantage': ('Raw()', 'Center()')}
    """
    left, right = describe(a), describe(b)
    return {slot: (left[slot], right[slot]) for slot in left if slot != "name" and left[slot] != right[slot]}


def equation(algorithm: Algorithm) -> str:
    """The row as equations, one line a slot; a line that the loss doesn't use is left out.

    N counts the rows with a token inside the mask, M the prompts with such a row, |y| is a row's number of
    tokens.

    >>> from rlvr.algo import preset
    >>> print(equation(preset("grpo")))
    L = Σ w · (ℓ + 0.04 k)  over all rows of policy samples
    w = 1 / (N |y|)
    ℓ = −min(ρA, clip(ρ, 1−0.2, 1+0.2) A),  ρ = π / π_old
    A = (r − mean(r)) / (stdₙ₋₁(r) + 0.0001)
    k = x − 1 − log x,  x = π_ref / π
    """
    loss, kl = algorithm.loss, algorithm.kl
    lines = [
        f"L = Σ w · {_summand(algorithm)}  over {_rows(algorithm)}",
        algorithm.aggregate.formula,
        loss.formula,
        algorithm.importance.formula,
        algorithm.focus.formula,
        algorithm.advantage.formula if loss.reads_advantage else "",
        _charge(algorithm),
    ]
    lines += [piece.formula for piece in (kl, algorithm.entropy, algorithm.critic, algorithm.mismatch) if piece]
    return "\n".join(line for line in [*lines, _schedule(algorithm)] if line)


def _rows(algorithm: Algorithm) -> str:
    whose = {"policy": "policy samples", "gold": "gold demonstrations"}[algorithm.source]
    finished = " that ended by themselves" if algorithm.mask_truncated else ""
    return f"{algorithm.select.formula} of {whose}{finished}"


def _summand(algorithm: Algorithm) -> str:
    terms, kl = ["ℓ"], algorithm.kl
    if kl is not None and kl.place == "loss":
        terms.append(f"+ {kl.coef:g} k")
    if algorithm.entropy is not None:
        terms.append("− α H")
    if algorithm.critic is not None:
        terms.append(f"+ {algorithm.critic.coef:g} ℓ_V")
    return " ".join(terms) if len(terms) == 1 else f"({' '.join(terms)})"


def _charge(algorithm: Algorithm) -> str:
    """Where a KL that isn't in the loss is paid."""
    kl = algorithm.kl
    if kl is None or kl.place == "loss":
        return ""
    if kl.place == "advantage":
        return f"A_t ← A_t − {kl.coef:g} Σ_{{l≥0}} k_{{t+l}}"
    by_token = isinstance(algorithm.advantage, TokenAdvantage)
    return f"r_t ← r_t − {kl.coef:g} k_t" if by_token else f"r ← r − {kl.coef:g} Σ_t k_t"


def _schedule(algorithm: Algorithm) -> str:
    """What else happens around the sum, in words."""
    parts = []
    if algorithm.sampling_rounds > 1:
        parts.append(f"up to {algorithm.sampling_rounds} rounds of sampling to fill a batch")
    if algorithm.num_iterations * algorithm.minibatches > 1:
        parts.append(f"{algorithm.num_iterations} × {algorithm.minibatches} updates a batch")
    if algorithm.restart is not None:
        parts.append(f"π_ref ← π and a fresh optimizer {algorithm.restart.formula}")
    return ";  ".join(parts)


def with_overrides(algorithm: Algorithm, overrides: Mapping[str, Any]) -> Algorithm:
    """The row with some settings replaced, written ``slot``, ``slot.setting`` or the name of a plain field.

    A slot takes a piece or the name of one, an optional slot also None; a setting given with it belongs to the new
    piece, and a setting that is a piece itself goes on with a dot. Values may be text, as from a command line.
    Unknown keys, names and values are refused with what would be accepted. The row keeps its name unless ``name``
    is overridden.

    >>> from rlvr.algo import preset
    >>> overrides = {"loss.epsilon": 0.3, "aggregate": "Constant", "aggregate.length": "12", "kl.estimator": "K2"}
    >>> row = with_overrides(preset("grpo"), overrides)
    >>> row.loss.epsilon, row.aggregate, row.kl.estimator
    (0.3, Constant(length=12), K2())
    """
    plain = [item.name for item in fields(Algorithm) if item.name not in SLOTS]
    chosen: dict[str, Any] = {}
    settings: dict[str, dict[str | None, Any]] = {slot: {} for slot in SLOTS}
    for key, value in overrides.items():
        slot, dot, setting = key.partition(".")
        if slot in SLOTS:
            settings[slot][setting if dot else None] = value
        elif key in plain:
            chosen[key] = value if key == "name" else parsed(value)
        else:
            known = ", ".join([*plain, *SLOTS, *(f"{slot}.<setting>" for slot in SLOTS)])
            raise ValueError(f"unknown key {key!r}; accepted: {known}")
    for slot, values in settings.items():
        if values:
            chosen[slot] = changed(slot, slot, vars(algorithm)[slot], values)
    return replace(algorithm, **chosen)
