"""When a base that almost never thinks begins to: a model of the wait, with one constant that was measured elsewhere.

A step draws N completions. A useful one (the right chain, where the direct answer fails) stands out of its group, and the
update that follows multiplies the odds of thinking by e^g. With u the base's probability of a useful completion, the wait for
the next one after j of them is exponential with mean 1 / (N u e^(g j)) steps, and after J = (log-odds of the mark - log-odds
of thinking) / g of them the mark is reached: T = sum over j < J of E_j e^(-g j) / (N u), with independent E_j ~ Exp(1).
"""

import numpy as np

__all__ = ["GAIN", "expected_wait", "predicted_steps"]

GAIN = 0.10
"""g at the learning rate of experiment 03: between what six runs from three dev bases, which that experiment does not report,
waited for (0.08, 0.20 and 0.06 by base)."""


def predicted_steps(
    thinks: float,
    useful: float,
    mark: float,
    drawn: int,
    draws: int,
    generator: np.random.Generator,
    gain: float = GAIN,
) -> np.ndarray:
    """[draws] waits in steps until the share ``mark`` thinks, from the probabilities ``thinks`` and ``useful`` of a base.

    >>> predicted_steps(0.06, 0.05, 0.05, 256, 2, np.random.default_rng(0)).tolist()
    [0.0, 0.0]
    """
    weights = _weights(thinks, useful, mark, drawn, gain)
    return generator.exponential(size=(draws, len(weights))) @ weights


def expected_wait(thinks: float, useful: float, mark: float, drawn: int, gain: float = GAIN) -> float:
    """The mean of ``predicted_steps``.

    >>> round(expected_wait(1e-4, 1e-4, 0.05, 256, gain=0.1))
    410
    """
    return float(_weights(thinks, useful, mark, drawn, gain).sum())


def _weights(thinks: float, useful: float, mark: float, drawn: int, gain: float) -> np.ndarray:
    if not 0 < useful <= thinks < 1:
        raise ValueError(f"wait: thinks = {thinks!r}, useful = {useful!r}; accepted: 0 < useful <= thinks < 1")
    lacking = np.log(mark / (1 - mark)) - np.log(thinks / (1 - thinks))
    steps = np.arange(max(0, int(np.ceil(lacking / gain))))
    return np.exp(-gain * steps) / (drawn * useful)
