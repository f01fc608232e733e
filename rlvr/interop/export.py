"""Carrying a trained language model out: a Hugging Face folder that `AutoModelForCausalLM` and servers of such models open.

Adapters are merged into the weights that they changed; the tokenizer is the one that the model was trained with, and the
generation settings name every end token. The card says what was done to the model and what it cost.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlvr.lab import store
from rlvr.lab.environment import environment
from rlvr.lab.evaluate import accuracy_by_set
from rlvr.lab.recipe import Recipe
from rlvr.lab.train import open_run
from rlvr.policy import HFPolicy, LabPolicy
from rlvr.policy.hf_load import need, open_files

__all__ = ["export_run"]

BUDGET = ("samples", "tokens", "demonstrations", "updates", "seconds")


def export_run(run: Path, to: Path) -> Path:
    """Write the trained policy of a finished run as a model folder ``to``, which must not be there yet; all or nothing."""
    run, to = Path(run), Path(to)
    if to.exists():
        raise ValueError(f"{to} is there already; give the name of a new folder")
    policy, recipe = open_run(run)
    to.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-"))
    try:
        if isinstance(policy, HFPolicy):
            model = merged(policy.model, recipe)
            model.generation_config.eos_token_id = list(policy.tokens.eos_ids)
            model.save_pretrained(made)
            policy.tokens.tokenizer.save_pretrained(made)
        else:
            need("transformers")
            from rlvr.interop.export_lab import save_lab

            save_lab(policy, made)
        (made / "README.md").write_text(card(run, recipe, policy), encoding="utf-8")
        # The temporary folder was made for its owner alone.
        made.chmod(0o755)
        made.rename(to)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return to


@torch.no_grad()
def merged(model: nn.Module, recipe: Recipe) -> nn.Module:
    """The model without adapters, their products added to the weights; one without adapters is itself."""
    adapted = {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    if not adapted:
        return model
    plain, _ = open_files(recipe.model)
    for name, module in adapted.items():
        plain.get_submodule(name).weight.add_(module.get_delta_weight("default"))
    return plain


def card(run: Path, recipe: Recipe, policy: HFPolicy | LabPolicy) -> str:
    """What a reader of the folder must know: origin, recipe, budget, accuracies and how prompts are formed."""
    spent = store.last_metrics(run) or {}
    budget = "\n".join(f"| {name} | {spent[name]:,.0f} |" for name in BUDGET if name in spent)
    versions = environment()["versions"]
    front = f"---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [rlvr, {recipe.preset}]\n---\n"
    lab = isinstance(policy, LabPolicy)
    chat = not lab and policy.tokens.chat
    prompts = "in the tokenizer's chat template, as the user's message" if chat else "as they are"
    name, trust = ("the lab's transformer", ", trust_remote_code=True") if lab else (recipe.model, "")
    start = f", after the run `{Path(recipe.base).name}`" if recipe.base else ""
    return f"""{front}
# {name} after {recipe.preset} on {recipe.task}

Trained by `rlvr` {versions["rlvr"]} for {recipe.steps} steps of {recipe.prompts_per_step} prompts with
{recipe.group_size} completions each, from {name}{start}.
Prompts were given {prompts}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained("this folder"{trust})
tokenizer = AutoTokenizer.from_pretrained("this folder"{trust})
```

## Accuracy

{_accuracies(run)}

## Budget

| | |
|---|---|
{budget}

## Recipe

```json
{json.dumps(recipe.to_json(), indent=2)}
```
{_claims(run)}
Made with {", ".join(f"{name} {version}" for name, version in versions.items())}.
"""


def _accuracies(run: Path) -> str:
    """The first and the last evaluation of each kind, over the problems they were made on."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in store.read_evals(run):
        found.setdefault(each["name"], []).append(each)
    if not found:
        return "Not evaluated in this run."
    rows = ["| evaluation | step | set | problems | right, % |", "|---|---|---|---|---|"]
    for name, evaluations in found.items():
        for evaluation in evaluations[:1] + evaluations[1:][-1:]:
            sets = evaluation["columns"]["set"]
            rows += [
                f"| {name} | {evaluation['step']} | {label} | {sets.count(label)} | {100 * share:.1f} |"
                for label, share in accuracy_by_set(evaluation).items()
            ]
    return "\n".join(rows)


def _claims(run: Path) -> str:
    """The ledger of the experiment that the run belongs to, where there is one."""
    summary = run.absolute().parent / "experiment.json"
    claims = json.loads(summary.read_text("utf-8")).get("claims", []) if summary.is_file() else []
    if not claims:
        return ""
    rows = [f"| {each['id']} | {each['claim']} | {each['measured']} | {each['verdict']} |" for each in claims]
    return "\n".join(
        ["\n## Ledger of its experiment", "", "| id | claim | measured | verdict |", "|---|---|---|---|", *rows, ""]
    )
