"""Slow twins: plain recomputation, one row a sample, no sharing of anything."""

import torch
from torch import Tensor

from rlvr.policy import Decoding, LabPolicy, entropy
from rlvr.types import Samples


def sample_slowly(policy: LabPolicy, problems, group_size, uniforms, limits, decoding=Decoding()) -> Samples:
    """Recompute the whole text for every token of every sample."""
    rows = []
    with torch.no_grad():
        for b in range(len(uniforms)):
            problem = problems[b // group_size]
            rows.append(_one(policy, problem, uniforms[b], limits[b // group_size], decoding))
    width = max(len(row[0]) for row in rows)
    columns = []
    for part in range(3):
        columns.append(torch.stack([torch.nn.functional.pad(row[part], (0, width - len(row[0]))) for row in rows]))
    mask = torch.arange(width) < torch.tensor([len(row[0]) for row in rows])[:, None]
    return Samples(columns[0], mask, columns[1], columns[2], torch.tensor([row[3] for row in rows]))


def _one(policy: LabPolicy, problem, uniforms, limit: int, decoding: Decoding):
    prompt = policy.encode(problem.prompt)
    offset = torch.tensor([problem.meta.get("offset", 0)])
    tokens, logps, entropies, finished = [], [], [], False
    while len(tokens) < limit and not finished:
        logits = policy.model(torch.tensor([prompt + tokens]), offset)[0, -1]
        log_probs = decoding.log_probs(logits)
        cdf = log_probs.double().exp().cumsum(-1)
        token = int((cdf / cdf[-1] <= uniforms[len(tokens)]).sum())
        tokens.append(token)
        logps.append(log_probs[token])
        entropies.append(entropy(log_probs))
        finished = token in policy.tokenizer.eos_ids
    return torch.tensor(tokens), torch.stack(logps), torch.stack(entropies), finished


def score_slowly(policy: LabPolicy, problems, index, tokens, mask, decoding=Decoding()) -> Tensor:
    """Log-probabilities [R T], one full forward pass a row."""
    out = []
    for row, problem_index in enumerate(index.tolist()):
        problem, length = problems[problem_index], int(mask[row].sum())
        prompt = policy.encode(problem.prompt)
        text = torch.tensor([prompt + tokens[row, :length].tolist()])
        logits = policy.model(text, torch.tensor([problem.meta.get("offset", 0)]))[0]
        log_probs = decoding.log_probs(logits[len(prompt) - 1 : -1])
        logps = log_probs.gather(-1, tokens[row, :length, None])[:, 0]
        out.append(torch.nn.functional.pad(logps, (0, tokens.shape[1] - length)))
    return torch.stack(out)
