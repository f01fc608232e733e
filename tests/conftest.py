"""Shared by all tests: one thread a process, as in every run."""

import torch

torch.set_num_threads(1)
