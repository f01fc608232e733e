"""Minds: anything that samples completions and scores them."""

from rlvr.policy.base import Policy, Scores
from rlvr.policy.critic import LabCritic, ValueFunction
from rlvr.policy.decoding import Decoding, entropy
from rlvr.policy.lab import LabPolicy
from rlvr.policy.tokenizer import CharTokenizer
from rlvr.policy.transformer import Transformer, TransformerConfig

__all__ = [
    "CharTokenizer",
    "Decoding",
    "LabCritic",
    "LabPolicy",
    "Policy",
    "Scores",
    "Transformer",
    "TransformerConfig",
    "ValueFunction",
    "entropy",
]
