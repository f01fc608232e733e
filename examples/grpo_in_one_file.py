"""GRPO on one page: a small transformer that has given up thinking learns from reward alone that thinking pays.

A prompt such as ``ab,ca,bc,?a2:`` gives a mapping (a to b, c to a, b to c), a start letter and a number of hops. A
completion that thinks writes down each letter passed, then a bar, the answer and an end sign, ``bc|c$``; one that blurts
writes ``|c$``. Demonstrations first teach how to think, then mostly to blurt, which fails: one glance follows one hop.
GRPO gets no demonstrations. It lets the model try each problem several times and makes whatever did better than its
siblings more likely: in 30 steps accuracy goes from about 22 % to above 90 % (five seeds of five). Run it with
``python examples/grpo_in_one_file.py``: one core, under a minute, torch and numpy only.
"""

from collections import namedtuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LETTERS = "abcdefghijklmnop"
ALPHABET = LETTERS + ",?:123456789|$"  # one character is one token
Problem = namedtuple("Problem", "prompt chain offset limit")


def make_problem(rng, n=(4, 6), k=(1, 5)):
    """A walk of k hops over a cycle of n letters: prompt, letters passed (the last is the answer), position, limit."""
    n, k = int(rng.integers(n[0], n[1] + 1)), int(rng.integers(k[0], k[1] + 1))
    cycle = [LETTERS[i] for i in rng.permutation(len(LETTERS))[:n]]
    pairs = [cycle[i] + cycle[(i + 1) % n] for i in rng.permutation(n)]
    start = int(rng.integers(n))
    chain = "".join(cycle[(start + hop) % n] for hop in range(1, k + 1))
    return Problem(",".join(pairs) + f",?{cycle[start]}{k}:", chain, int(rng.integers(15)), k + 5)


def demonstrate(problem, think=True):
    return problem.chain * think + f"|{problem.chain[-1]}$"


def reward(problem, text):
    """1 if the first character after the first bar is the answer, else 0; how it got there isn't looked at."""
    return float(text.partition("|")[2][:1] == problem.chain[-1])


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embed, self.smear = nn.Embedding(len(ALPHABET), width), nn.Linear(width, width, bias=False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(ALPHABET), bias=False)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                std = 0.02 if name == "embed.weight" else 0.7 / weight.shape[-1] ** 0.5
                nn.init.normal_(weight, std=0.0 if name.endswith("bias") else std)

    def forward(self, tokens, offsets):
        """Logits [B T V] of what follows each token of texts [B T] that begin at positions [B]."""
        x, place = self.embed(tokens), offsets[:, None] + torch.arange(tokens.shape[1])
        angles = place[..., None] * 10_000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        # A token sees the one before it, so the b of "ab" knows whose successor it is.
        x = x + self.smear(F.pad(x[:, :-1], (0, 0, 1, 0))) + 0.1 * torch.cat([angles.sin(), angles.cos()], dim=-1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def read(model, problems, texts):
    """The tokens [B T] of prompt + completion, and the log-probabilities [B T V] of what follows each of them."""
    rows = [[ALPHABET.index(c) for c in p.prompt + text] for p, text in zip(problems, texts, strict=True)]
    tokens = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
    return tokens, model(tokens, torch.tensor([p.offset for p in problems])).log_softmax(-1)


@torch.no_grad()
def sample(model, problems, uniforms):
    """One completion a problem; token t of row b is drawn with the random number uniforms[b, t]."""
    texts = [""] * len(problems)
    for t in range(max(p.limit for p in problems)):
        if rows := [b for b, p in enumerate(problems) if t < p.limit and not texts[b].endswith("$")]:
            # Siblings that wrote the same so far face the same distribution: it is computed once.
            states = {state: i for i, state in enumerate(dict.fromkeys((problems[b], texts[b]) for b in rows))}
            _, logps = read(model, *zip(*states, strict=True))
            cdf = logps[range(len(states)), [len(p.prompt) + t - 1 for p, _ in states]].double().exp().cumsum(-1)
            # Inverse CDF: the first token whose cumulative probability exceeds the random number.
            cdf = (cdf / cdf[:, -1:])[[states[problems[b], texts[b]] for b in rows]]
            for b, token in zip(rows, (cdf <= torch.tensor(uniforms[rows, t, None])).sum(-1), strict=True):
                texts[b] += ALPHABET[token]
    return texts


def learn(model, optimizer, problems, texts, advantages):
    """Make each completion's tokens more likely by its advantage [B]; the end sign counts, the prompt doesn't."""
    tokens, logps = read(model, problems, texts)
    place, start = torch.arange(1, tokens.shape[1]), torch.tensor([[len(p.prompt)] for p in problems])
    mask = (place >= start) & (place < start + torch.tensor([[len(text)] for text in texts]))
    chosen = torch.where(mask, logps[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0], 0.0)
    # The gradient of -A log p is the policy gradient. With one update a batch there is no ratio, and nothing to clip.
    loss = -(advantages[:, None] * chosen).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def grpo_step(model, optimizer, problems, uniforms):
    """Try each problem several times; make what beat its siblings more likely, and what lost to them less."""
    rows = [p for p in problems for _ in range(len(uniforms) // len(problems))]
    texts = sample(model, rows, uniforms)
    rewards = torch.tensor([reward(p, text) for p, text in zip(rows, texts, strict=True)]).view(len(problems), -1)
    # The group is its own baseline. All right or all wrong: every advantage is 0, and the group teaches nothing.
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    return learn(model, optimizer, rows, texts, advantages.flatten())


def main(seed=0, think_steps=800, blurt_steps=100, grpo_steps=30):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng, model, steps = np.random.default_rng(seed), Model(), think_steps + blurt_steps
    exam = [make_problem(np.random.default_rng([1, i])) for i in range(200)]
    sft = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.0)
    rl = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(1, steps + grpo_steps + 1):
        if step <= steps:
            problems = [make_problem(rng) for _ in range(32)]
            texts = [demonstrate(p, step <= think_steps or rng.random() < 0.1) for p in problems]
            sft.param_groups[0]["lr"] = 2e-3 * min(1, step / 100) * (0.55 + 0.45 * np.cos(np.pi * step / steps))
            learn(model, sft, problems, texts, torch.ones(32))
        else:
            grpo_step(model, rl, [make_problem(rng) for _ in range(16)], rng.random((16 * 8, 10)))
        if (step - steps) % (100 if step <= steps else 5) == 0:
            texts = sample(model, exam, rng.random((200, 10)))
            right, thinks = np.mean([(reward(p, t), t[0] != "|") for p, t in zip(exam, texts, strict=True)], axis=0)
            title = f"demonstrations {step:>4}" if step <= steps else f"GRPO {step - steps:>14}"
            print(f"{title}   accuracy {right:4.0%}   thinks {thinks:4.0%}   {exam[0].prompt} {texts[0]}", flush=True)


if __name__ == "__main__":
    main()
