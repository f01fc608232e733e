"""Language models small enough for a test, made at random and saved as Hugging Face saves them."""

from pathlib import Path
from typing import Any

import torch

CHARACTERS = "abcdefgh:,?|0123456789 "
SPECIAL = ("<s>", "</s>", "<end>", "<user>", "<model>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<user>{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)


def tokenizer(**changes: Any) -> Any:
    """One character, one token, but for ``12``, which is one token too; a chat template that writes BOS itself."""
    from tokenizers import Tokenizer, decoders, models, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate([*SPECIAL, *CHARACTERS, "12"])}
    inner = Tokenizer(models.BPE(vocab=words, merges=[("1", "2")]))
    inner.decoder = decoders.Fuse()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", words["<s>"])])
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "chat_template": TEMPLATE}
    settings |= {"additional_special_tokens": ["<end>", "<user>", "<model>"]}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **settings | changes)


def llama(size: int, **changes: Any) -> Any:
    """Two layers of width 32 with grouped keys, tied embeddings and, as a trap, a dropout; both ends of a completion known."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.3}
    special = {"bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": 1}
    config = LlamaConfig(
        vocab_size=size, **shape | special | {"tie_word_embeddings": True, "attention_dropout": 0.5} | changes
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def save(folder: Path, model: Any = None, **changes: Any) -> Path:
    """A model folder: ``model`` (the tiny Llama without one) with the tiny tokenizer, whose settings ``changes`` override."""
    words = tokenizer(**changes)
    words.save_pretrained(folder)
    (model or llama(len(words))).save_pretrained(folder)
    return folder
