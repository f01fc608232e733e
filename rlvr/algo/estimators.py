"""Estimates of KL(π ‖ π_ref) from sampled tokens: log-probabilities ``[B T]`` to estimates ``[B T]``, unreduced.

With x = π_ref / π and tokens drawn from π, `K1` and `K3` have the divergence as their mean. That says nothing about
their gradients. Differentiated inside a loss, the mean gradient of a token's estimate is

===================  ==================  =======================================================
piece                mean value          mean gradient in the loss, tokens drawn from π
===================  ==================  =======================================================
`K1`                 KL(π ‖ π_ref)       0: the penalty does nothing
`K2`                 biased              ∇ KL(π ‖ π_ref)
`K3`                 KL(π ‖ π_ref)       ∇ KL(π_ref ‖ π), the other direction
`K3StraightThrough`  KL(π ‖ π_ref)       ∇ KL(π ‖ π_ref)
===================  ==================  =======================================================

each with the states of the tokens held fixed: what a token does to the divergence of later ones is left out. In the
reward it is the value that counts, and only `K1` gives the gradient of the whole completion's divergence. Values:
Schulman 2020 ("Approximating KL divergence"); log x is held within ±20, beyond which a token has no gradient.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from rlvr.algo.importance import log_ratio

__all__ = ["K1", "K2", "K3", "Estimator", "K3StraightThrough"]


@runtime_checkable
class Estimator(Protocol):
    """Maps log-probabilities under the policy and the reference ``[B T]`` to estimates; 0 where they are equal.

    >>> isinstance(K3(), Estimator)
    True
    """

    @property
    def formula(self) -> str: ...

    def __call__(self, logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]: ...


@dataclass(frozen=True)
class K1:
    """The log-ratio itself: k = −log x. Unbiased, of either sign; in the loss its mean gradient is 0.

    >>> import torch
    >>> K1()(torch.tensor([[-0.6931472, -0.6931472]]), torch.tensor([[-1.3862944, -0.2876821]]))
    tensor([[ 0.6931, -0.4055]])
    """

    formula: ClassVar[str] = "k = log π − log π_ref"

    def __call__(self, logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return log_ratio(logps, ref_logps)


@dataclass(frozen=True)
class K2:
    """Half the squared log-ratio: k = ½ (log x)². Never negative, biased a little; in the loss ∇ KL(π ‖ π_ref).

    >>> import torch
    >>> K2()(torch.tensor([[-0.6931472, -0.6931472]]), torch.tensor([[-1.3862944, -0.2876821]]))
    tensor([[0.2402, 0.0822]])
    """

    formula: ClassVar[str] = "k = ½ (log π − log π_ref)²"

    def __call__(self, logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return 0.5 * log_ratio(logps, ref_logps).square()


@dataclass(frozen=True)
class K3:
    """The log-ratio with a control variate: k = x − 1 − log x. Unbiased, never negative; in the loss ∇ KL(π_ref ‖ π).

    The penalty of GRPO (Shao et al. 2024, arXiv 2402.03300, equation 4).

    >>> import torch
    >>> K3()(torch.tensor([[-0.6931472, -0.6931472]]), torch.tensor([[-1.3862944, -0.2876821]]))
    tensor([[0.1931, 0.0945]])
    """

    formula: ClassVar[str] = "k = x − 1 − log x,  x = π_ref / π"

    def __call__(self, logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        log_x = -log_ratio(logps, ref_logps)
        # expm1, as exp(x) − 1 loses all digits for policies that have hardly moved.
        return log_x.expm1() - log_x


@dataclass(frozen=True)
class K3StraightThrough:
    """The value of `K3` with the gradient of `K2`: k = sg[k3] + k2 − sg[k2]. verl's "k3+" (low_var_kl+).

    >>> import torch
    >>> logps = torch.tensor([[-0.6931472]], requires_grad=True)
    >>> k = K3StraightThrough()(logps, torch.tensor([[-1.3862944]]))
    >>> round(k.item(), 4), round(torch.autograd.grad(k.sum(), logps)[0].item(), 4)
    (0.1931, 0.6931)
    """

    formula: ClassVar[str] = "k = x − 1 − log x in value, ½ (log x)² in gradient,  x = π_ref / π"

    def __call__(self, logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        slope = K2()(logps, ref_logps)
        return K3()(logps, ref_logps).detach() + slope - slope.detach()
