"""Any Hugging Face causal language model as a ``Policy``.

Everything that the completions of a prompt share is computed once, in sampling and in scoring alike (`rlvr.policy.hf_trees`),
and logits are formed only where a token is drawn. What is sampled is exactly ``Decoding``'s distribution, by inverse CDF with
the given numbers: none of the model's own generation settings (temperature, penalties, forced tokens) take part.
"""

import contextlib
import copy
import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlvr.policy.base import Scores, check_draws
from rlvr.policy.chunks import chosen_log_probs
from rlvr.policy.decoding import Decoding
from rlvr.policy.hf_load import ModelSettings, add_lora, eos_ids, open_files
from rlvr.policy.hf_sampler import sample_trees
from rlvr.policy.hf_tokens import TextTokens
from rlvr.policy.hf_trees import plant
from rlvr.policy.sampler import joined
from rlvr.types import Problem, Samples

__all__ = ["HFPolicy"]

# Rows sampled side by side: their distributions over a real vocabulary are what fills the memory.
ROWS_AT_ONCE = 128


@dataclass(frozen=True)
class HFPolicy:
    """A causal language model with its tokens.

    >>> policy = HFPolicy.open("smollm2-135m", ModelSettings(max_new_tokens=16))  # doctest: +SKIP
    >>> drawn = policy.sample([Problem("What is 7 + 5?", "12")], 8, np.random.rand(8, 16), [16])  # doctest: +SKIP
    """

    model: nn.Module
    tokens: TextTokens
    settings: ModelSettings = field(default_factory=ModelSettings)

    @classmethod
    def open(cls, name: str, settings: ModelSettings | None = None, eos: str = "", seed: int = 0) -> "HFPolicy":
        """The model of a folder, a hub name or a packaged name (`open_files`); ``eos`` is the task's sign for an end.

        Adapters start from ``seed``. A model that reads trees of completions otherwise than single texts is refused.
        """
        settings = settings or ModelSettings()
        model, tokenizer = open_files(name)
        chat = bool(tokenizer.chat_template) if settings.chat is None else settings.chat
        policy = cls(model, TextTokens(tokenizer, eos_ids(model, tokenizer), chat, eos), settings)
        policy._check_trees(name)
        if settings.lora_rank:
            add_lora(model, settings, seed)
        if settings.checkpointing:
            # Transformers is renaming it.
            renamed = getattr(model, "activation_checkpointing_enable", None)
            (renamed or model.gradient_checkpointing_enable)({"use_reentrant": False})
        return policy

    def __deepcopy__(self, memo: dict[int, object]) -> "HFPolicy":
        """A copy with weights of its own, but for those that are never trained."""
        memo |= {id(weight): weight for weight in self.model.parameters() if not weight.requires_grad}
        return replace(self, model=copy.deepcopy(self.model, memo))

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return next(self.model.parameters()).device

    def sample(
        self,
        problems: Sequence[Problem],
        group_size: int,
        uniforms: np.ndarray,
        limits: Sequence[int],
        decoding: Decoding = Decoding(),
    ) -> Samples:
        """Draw completions; ``uniforms`` is [P * group_size, T] with T >= max(limits)."""
        check_draws(problems, group_size, uniforms, limits)
        bounds = np.minimum(limits, self.settings.max_new_tokens or max(limits))
        prompts = [self.tokens.prompt(problem) for problem in problems]
        self._check_room(problems, prompts, bounds)
        parts, size = [], max(1, ROWS_AT_ONCE // group_size)
        self.model.eval()
        with torch.no_grad(), self._precision():
            for low in range(0, len(problems), size):
                part = slice(low, low + size)
                draws = uniforms[low * group_size : (low + size) * group_size, : bounds[part].max()]
                parts.append(sample_trees(self, prompts[part], draws, bounds[part], decoding))
        return joined(parts)

    def score(
        self,
        problems: Sequence[Problem],
        index: Tensor,
        tokens: Tensor,
        mask: Tensor,
        decoding: Decoding = Decoding(),
    ) -> Scores:
        """Log-probabilities and entropies of completions; row r continues ``problems[index[r]]``."""
        if not mask.any():
            zeros = torch.zeros(mask.shape, device=self.device)
            return Scores(zeros, zeros)
        used, problem = np.unique(index[mask.any(1)].cpu().numpy(), return_inverse=True)
        rows = mask.any(1)
        prompts = [self.tokens.prompt(problems[p]) for p in used]
        tree = plant(prompts, problem.reshape(-1), tokens[rows].cpu().numpy(), mask[rows].cpu().numpy())
        self.model.train(self.settings.checkpointing and torch.is_grad_enabled())
        with self._precision():
            table, positions, seen, places, at, ids, pair = (torch.from_numpy(each).to(self.device) for each in tree)
            hidden = self.read(table, positions, seen)
            found = chosen_log_probs(self.head, hidden.flatten(0, 1)[places], at, ids, decoding, self.vocabulary)
        self.model.eval()
        pairs = torch.zeros(mask.shape, dtype=torch.long, device=self.device)
        pairs[rows] = pair
        columns = found.logps[:, None], found.entropies[at][:, None]
        return Scores(*(torch.where(mask, F.embedding(pairs, column)[..., 0], 0.0) for column in columns))

    def read(self, tokens: Tensor, positions: Tensor, seen: Tensor | None, past: object = None) -> Tensor:
        """Last hidden states [N W D] of tokens [N W] under the table ``seen`` [N W K] (plain texts without one)."""
        body, mask = self.model.base_model, None if seen is None else seen[:, None]
        if mask is not None and self.model.config._attn_implementation == "eager":  # which adds the mask to its scores
            dtype = self.model.get_input_embeddings().weight.dtype
            mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
        # Transformers is renaming it.
        cache = "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"
        given = {cache: past, "use_cache": past is not None}
        return body(input_ids=tokens, position_ids=positions, attention_mask=mask, **given)[0]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [M V] in float32 or better, with what some configurations do to them last."""
        logits, config = self.model.get_output_embeddings()(hidden), self.model.config
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        # Cohere multiplies, Granite divides, Gemma 2 squashes.
        logits = (
            logits * (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
        )
        cap = getattr(config, "final_logit_softcapping", None)
        return cap * torch.tanh(logits / cap) if cap else logits

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        return self.model.get_output_embeddings().weight.shape[0]

    def critic(self) -> None:
        """There is none for language models yet."""
        raise ValueError("a language model has no critic here; accepted: algorithms without one, such as grpo or rloo")

    def encode(self, text: str) -> list[int]:
        """Token ids of a completion's text."""
        return self.tokens.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a completion's token ids."""
        return self.tokens.decode(ids)

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.bf16):
            yield

    def _check_room(self, problems: Sequence[Problem], prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        config = self.model.config
        bounds = [getattr(config, name, None) for name in ("max_position_embeddings", "sliding_window")]
        room = min((bound for bound in bounds if bound), default=math.inf)
        for problem, ids, limit in zip(problems, prompts, limits, strict=True):
            if len(ids) + limit > room:
                asked = f"{len(ids)} tokens of prompt and up to {limit} of completion"
                raise ValueError(f"language model: {problem.prompt!r} takes {asked}; the model has room for {room}")

    @torch.no_grad()
    def _check_trees(self, name: str) -> None:
        """Two siblings read as a tree must score as the model's own logits say, each read alone."""
        ids = torch.arange(2, 8, device=self.device) % self.vocabulary
        prompt, rows = ids[:2], torch.stack([ids[2:5], torch.stack([ids[2], ids[4], ids[5]])])
        tree = plant([prompt.tolist()], np.zeros(2, dtype=np.int64), rows.numpy(), np.ones((2, 3), dtype=bool))
        table, positions, seen, places, at, chosen, pair = map(torch.from_numpy, tree)
        try:
            hidden = self.read(table, positions, seen).flatten(0, 1)[places]
        except (TypeError, RuntimeError, ValueError, IndexError) as error:
            raise ValueError(f"{name} can't be trained here: its attention takes no mask of ours ({error})") from None
        found = chosen_log_probs(self.head, hidden, at, chosen, Decoding(), self.vocabulary).logps[pair]
        alone = self.model(torch.cat([prompt.expand(2, -1), rows], dim=1)).logits[:, 1:-1].log_softmax(-1)
        gap = float((found - alone.gather(-1, rows[..., None])[..., 0]).abs().max())
        if not gap < 1e-3:
            raise ValueError(
                f"{name} can't be trained here: read as a tree, its log-probabilities are off by {gap:.2g} (accepted: models "
                "with full attention, such as Llama, Qwen, SmolLM, Mistral and GPT-2)"
            )
