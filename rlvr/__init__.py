"""A wind tunnel for reinforcement learning on reasoning (RLVR: reinforcement learning with verifiable rewards)."""

__version__ = "0.1.0"
