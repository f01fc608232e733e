"""The lab's transformer as a small custom Hugging Face model: weights, configuration, tokenizer and the code of it."""

import shutil
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from rlvr.interop import lab_model
from rlvr.interop.lab_model import LabConfig, LabForCausalLM
from rlvr.policy import LabPolicy

__all__ = ["lab_as_hf", "save_lab"]

CODE = Path(lab_model.__file__)


def lab_as_hf(policy: LabPolicy) -> LabForCausalLM:
    """The same weights under the same names, in the shape that `transformers` knows."""
    shape = policy.model.config
    config = LabConfig(
        shape.vocab, shape.width, shape.layers, shape.heads, shape.mlp_ratio, shape.positions, shape.position_scale
    )
    config.eos_token_id = policy.tokenizer.eos_ids[0]
    config.auto_map = {"AutoConfig": f"{CODE.stem}.LabConfig", "AutoModelForCausalLM": f"{CODE.stem}.LabForCausalLM"}
    model = LabForCausalLM(config)
    model.load_state_dict(policy.model.state_dict())
    return model.eval()


def save_lab(policy: LabPolicy, folder: Path) -> None:
    """Write model, tokenizer and code into a folder."""
    model = lab_as_hf(policy)
    eos = policy.tokenizer.eos_ids[0]
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=eos, use_cache=False)
    model.save_pretrained(folder)
    _tokenizer(policy).save_pretrained(folder)
    shutil.copy(CODE, folder / CODE.name)


def _tokenizer(policy: LabPolicy) -> PreTrainedTokenizerFast:
    """One character, one token; padding stands on the left, so that prompts end where completions begin."""
    alphabet, eos = policy.tokenizer.alphabet, policy.tokenizer.eos
    words = Tokenizer(models.WordLevel({character: i for i, character in enumerate(alphabet)}, unk_token=eos))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=eos, pad_token=eos, padding_side="left")
