"""Minds: anything that samples completions and scores them."""

from rlvr.policy.base import Policy, Scores
from rlvr.policy.critic import LabCritic, ValueFunction
from rlvr.policy.decoding import Decoding, entropy
from rlvr.policy.hf import HFPolicy
from rlvr.policy.hf_load import ModelSettings
from rlvr.policy.lab import LabPolicy
from rlvr.policy.tokenizer import CharTokenizer
from rlvr.policy.transformer import Transformer, TransformerConfig

__all__ = [
    "CharTokenizer",
    "Decoding",
    "HFPolicy",
    "LabCritic",
    "LabPolicy",
    "ModelSettings",
    "Policy",
    "Scores",
    "Transformer",
    "TransformerConfig",
    "ValueFunction",
    "entropy",
]
