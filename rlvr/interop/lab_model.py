"""The lab's transformer as a Hugging Face model. `rlvr export` copies this file beside the weights, so it stands alone.

`AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)` loads it. It computes whole texts without a cache: the
models are small. A prompt begins at position ``offset``, as the problems of the pointer world do.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

__all__ = ["LabConfig", "LabForCausalLM"]


class LabConfig(PretrainedConfig):
    """The shape of a lab transformer and where its prompts begin."""

    model_type = "rlvr-lab"

    def __init__(
        self,
        vocab_size: int = 32,
        width: int = 64,
        layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        positions: int = 96,
        position_scale: float = 0.1,
        offset: int = 0,
        **others: object,
    ) -> None:
        self.vocab_size, self.width, self.layers, self.num_heads = vocab_size, width, layers, num_heads
        self.mlp_ratio, self.positions, self.position_scale, self.offset = mlp_ratio, positions, position_scale, offset
        self.hidden_size, self.num_hidden_layers, self.num_attention_heads = width, layers, num_heads
        super().__init__(**others)


class Block(nn.Module):
    """One pre-norm block."""

    def __init__(self, config: LabConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.num_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, config.mlp_ratio * width), nn.Linear(config.mlp_ratio * width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """[R T W] to [R T W], attending where ``seen`` [R 1 T T] is true."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class LabForCausalLM(PreTrainedModel, GenerationMixin):
    """The decoder with the names that its weights were saved under."""

    config_class = LabConfig

    def __init__(self, config: LabConfig) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.smear = nn.Linear(config.width, config.width, bias=False)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: object
    ) -> CausalLMOutput:
        """Logits [R T V]; padding, left or right, counts for nothing."""
        kept = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.dtype)
        embedded = self.embed(input_ids) * kept[..., None]
        places = (kept.cumsum(1) - 1).clamp(min=0) + self.config.offset
        x = embedded + F.pad(self.smear(embedded[:, :-1]), (0, 0, 1, 0)) + self._place(places)
        length = input_ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        # A padded place sees itself, so that its row of the softmax is not empty.
        seen = (causal & kept[:, None, None].bool()) | torch.eye(length, dtype=torch.bool, device=x.device)
        for block in self.blocks:
            x = block(x, seen)
        logits = self.head(self.norm(x))
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: object
    ) -> dict[str, Tensor | None]:
        """Whole texts again at every step: there is no cache."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def _place(self, places: Tensor) -> Tensor:
        """Fixed sinusoids (Vaswani et al. 2017, section 3.5), small beside the letters."""
        width, kind = self.config.width, self.embed.weight.dtype
        frequencies = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=places.device) / width)
        angles = places[..., None] * frequencies
        return (self.config.position_scale * torch.cat([angles.sin(), angles.cos()], dim=-1)).to(kind)
