"""The training loop: one loop for demonstrations, own successes and policy gradients, for lab models and language models.

Every draw is asked for by name (seed, purpose, step), so a run holds no generator state: a run that was killed goes on from
its last checkpoint and ends bit-equal to one that was not. A batch that is reused over several optimizer steps is drawn
again when a run goes on, never continued half-way.
"""

import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlvr.algo import RestartOnStall, describe
from rlvr.lab import store
from rlvr.lab.checkpoint import Checkpoint, load_checkpoint, load_weights, save_checkpoint, save_weights
from rlvr.lab.corpus import corpus_digest
from rlvr.lab.curriculum import fresh_history, pool_metrics
from rlvr.lab.divergence import Watch
from rlvr.lab.draw import Drawn, draw
from rlvr.lab.environment import write_environment
from rlvr.lab.evaluate import accuracy_by_set, evaluate
from rlvr.lab.jsonl import plain
from rlvr.lab.learner import Learner
from rlvr.lab.lock import run_lock
from rlvr.lab.metrics import kept_metrics, spend, step_metrics, trait_metrics
from rlvr.lab.recipe import Recipe
from rlvr.lab.refresh import Refresher
from rlvr.lab.rollout import Rollouts
from rlvr.lab.step import StepResult, update
from rlvr.policy import Decoding, HFPolicy, LabPolicy, ModelSettings
from rlvr.rng import generator
from rlvr.tasks import Questions
from rlvr.types import Problem

__all__ = ["OnStep", "make_policy", "open_run", "read_recipe", "train"]

OnStep = Callable[[int, Mapping[str, Any]], None]
ZERO_BUDGET = {"samples": 0, "tokens": 0, "demonstrations": 0, "updates": 0, "seconds": 0.0}
MODEL, CHECKPOINT = "model.safetensors", "checkpoint.safetensors"


@dataclass
class _Run:
    """A run in progress."""

    folder: Path
    recipe: Recipe
    learner: Learner
    mark: Checkpoint
    refresher: Refresher
    watch: Watch

    def modules(self) -> dict[str, torch.nn.Module]:
        """All weights that training changes."""
        return self.learner.modules() | self.refresher.modules()


def make_policy(recipe: Recipe, device: str = "cpu") -> LabPolicy | HFPolicy:
    """The policy that a recipe without a base starts from: its language model, or a fresh lab policy of its shape.

    >>> make_policy(Recipe(task="echo", base=None)).tokenizer.eos
    '$'
    """
    task = recipe.the_task
    if recipe.model is not None:
        policy = HFPolicy.open(recipe.model, ModelSettings.of(recipe.model_settings), task.eos, recipe.seed)
    else:
        policy = LabPolicy.create(task.alphabet, task.eos, seed=recipe.seed, **recipe.shape)
    policy.model.to(device)
    return policy


def train(
    folder: Path,
    recipe: Recipe,
    base: Path | None = None,
    sets: Mapping[str, Sequence[Problem]] | None = None,
    on_step: OnStep = lambda step, metrics: None,
    device: str = "cpu",
) -> Path:
    """Train as the recipe says into a run folder, from the weights of the run folder ``base`` (fresh without one).

    A finished run of the same recipe is left as it is; an unfinished one goes on where its last checkpoint stands; a folder
    with another recipe is refused. ``sets`` are evaluated greedily every ``eval_every`` steps and at the end.
    """
    folder = Path(folder)
    with run_lock(folder):
        _claim(folder, recipe, base)
        if store.is_finished(folder):
            (folder / CHECKPOINT).unlink(missing_ok=True)
            return folder
        if isinstance(recipe.algorithm.restart, RestartOnStall) and not sets:
            raise ValueError(f"restart={recipe.algorithm.restart} reads evaluations; accepted: sets to evaluate on")
        if recipe.eval_every and not sets:
            raise ValueError(f"eval_every = {recipe.eval_every} and there are no sets; accepted: sets, or eval_every 0")
        _warn_of_lone_completions(recipe)
        run = _begin(folder, recipe, base, device)
        for step in range(run.mark.step, recipe.steps):
            if recipe.eval_every and step % recipe.eval_every == 0:
                _evaluate(run, sets or {}, step)
            on_step(step, _step(run, step))
            if (step + 1) % recipe.checkpoint_every == 0 and step + 1 < recipe.steps:
                save_checkpoint(folder / CHECKPOINT, run.modules(), run.learner.optimizers(), run.mark)
        if recipe.eval_every:
            _evaluate(run, sets or {}, recipe.steps)
        write_environment(folder, recipe.seed, torch.get_num_threads(), seconds=run.mark.budget["seconds"])
        save_weights(folder / MODEL, run.learner.policy.model)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return folder


def read_recipe(folder: Path) -> Recipe:
    """The recipe that a run folder was made from."""
    return Recipe.from_json(store.read_config(folder)["recipe"])


def open_run(folder: Path, device: str = "cpu") -> tuple[LabPolicy | HFPolicy, Recipe]:
    """The trained policy of a finished run, with its recipe."""
    recipe = read_recipe(folder)
    if not store.is_finished(folder):
        raise ValueError(f"{folder} is not finished; `rlvr resume {folder}` goes on with it")
    policy = make_policy(replace(recipe, shape=store.read_config(folder)["shape"]), device)
    load_weights(Path(folder) / MODEL, policy.model)
    return policy, recipe


def _claim(folder: Path, recipe: Recipe, base: Path | None) -> None:
    """Write the configuration, or refuse a folder that belongs to another one."""
    shape = store.read_config(base)["shape"] if base else dict(recipe.shape)
    config = {
        "arm": recipe.preset,
        "seed": recipe.seed,
        "task": recipe.task,
        "algorithm": describe(recipe.algorithm),
        "base": Path(base).name if base else None,
        "steps": recipe.steps,
        "prompts_per_step": recipe.prompts_per_step,
        "group_size": 1 if recipe.algorithm.source == "gold" else recipe.group_size,
        "learning_rate": recipe.learning_rate,
        "temperature": recipe.temperature,
        "shape": shape,
        "recipe": recipe.to_json(),
    }
    if recipe.corpus is not None:
        config["corpus"] = corpus_digest(folder / recipe.corpus)
    if isinstance(recipe.the_task, Questions):
        config["questions"] = recipe.the_task.digest
    if (folder / "config.json").exists():
        there = store.read_config(folder)
        wanted = json.loads(json.dumps(plain(config)))
        differing = [key for key in wanted if there.get(key) != wanted[key]]
        if differing:
            raise ValueError(
                f"{folder} holds another run: its {', '.join(differing)} differ; give another folder or remove it"
            )
        return
    store.write_config(folder, config)


def _warn_of_lone_completions(recipe: Recipe) -> None:
    algorithm = recipe.algorithm
    compares = algorithm.advantage.needs_group and algorithm.loss.reads_advantage
    if compares and algorithm.source == "policy" and recipe.group_size == 1:
        warnings.warn(
            f"group_size = 1: {algorithm.advantage!r} compares a completion with its siblings and there are none, so every "
            "advantage is 0 and no reward teaches anything; give group_size 2 or more, or --set advantage=Raw",
            stacklevel=3,
        )


def _warn_of_cut_completions(rollouts: Rollouts, recipe: Recipe) -> None:
    if rollouts.samples.finished.any() or (rollouts.rewards.nan_to_num() != 0).any():
        return
    limits = [recipe.the_task.limit(problem) for problem in rollouts.problems]
    bounds = " to ".join(map(str, sorted({min(limits), max(limits)})))
    warnings.warn(
        f"step 0: all {len(rollouts.texts)} completions were cut off at the limit of {bounds} tokens and "
        f"none was rewarded, so there is nothing to learn from; raise the limit of task {recipe.task} (its method limit), "
        "or start from a base model that ends its completions earlier",
        stacklevel=4,
    )


def _begin(folder: Path, recipe: Recipe, base: Path | None, device: str) -> _Run:
    policy = make_policy(replace(recipe, shape=store.read_config(folder)["shape"]), device)
    if base:
        load_weights(Path(base) / MODEL, policy.model)
    learner = Learner.of(policy, recipe.algorithm, partial(_adam, recipe), partial(_adam, recipe))
    if recipe.corpus is not None:
        recipe = replace(recipe, corpus=str(folder / recipe.corpus))
    mark = Checkpoint(0, dict(ZERO_BUDGET), learner.state, (), fresh_history(recipe))
    run = _Run(folder, recipe, learner, mark, Refresher.of(folder, recipe), Watch())
    if (folder / CHECKPOINT).exists():
        run.mark = mark = load_checkpoint(folder / CHECKPOINT, run.modules(), learner.optimizers())
        learner.state, learner.scores = dict(mark.state), list(mark.scores)
    store.truncate_metrics(folder, mark.step)
    store.drop_rollouts_after(folder, mark.step)
    run.refresher.go_on_at(mark.step)
    run.watch = Watch.of(store.read_metrics(folder))
    return run


def _adam(recipe: Recipe, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    settings = {"betas": tuple(recipe.adam_betas), "weight_decay": recipe.weight_decay}
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=recipe.learning_rate, fused=True, **settings)


def _step(run: _Run, step: int) -> dict[str, Any]:
    """One step: draw, learn, log."""
    recipe, learner, start = run.recipe, run.learner, time.perf_counter()
    drawn = draw(learner.policy, recipe, step, run.mark.history)
    sampled_at = time.perf_counter()
    if step == 0:
        _warn_of_cut_completions(drawn.everything, recipe)
    rate = recipe.learning_rate_at(step)
    learner.set_rates(rate, rate * recipe.critic_learning_rate / recipe.learning_rate)
    result = _learn(run, step, drawn)
    sampled = recipe.algorithm.source == "policy"
    refreshed = run.refresher.after(step, drawn.everything) if sampled else {}
    end = time.perf_counter()
    budget = spend(run.mark.budget, drawn.everything, sampled, result.metrics["updates"], end - start)
    if drawn.greedy_answers is not None:
        budget = spend(budget, drawn.greedy_answers, True, 0, 0.0)
    metrics = {
        "step": step,
        "learning_rate": rate,
        **(step_metrics(drawn.everything) | trait_metrics(recipe.the_task, drawn.everything) if sampled else {}),
        **(kept_metrics(drawn.batch, drawn.rounds) if recipe.algorithm.sampling_rounds > 1 else {}),
        **pool_metrics(recipe, drawn.history),
        **result.metrics,
        **refreshed,
        **budget,
    }
    if sampled:
        metrics |= run.watch.see(step, metrics["reward"], metrics["accuracy"])
    metrics |= {"time/sample": sampled_at - start, "time/update": end - sampled_at, "time/step": end - start}
    metrics |= {"tokens_per_second": int(drawn.everything.samples.mask.sum()) / (end - start)}
    store.append_metrics(run.folder, metrics)
    if step in recipe.record and drawn.batch is not None:
        store.write_rollouts(run.folder, step, _rollout_rows(drawn.batch, result))
    run.mark = Checkpoint(step + 1, budget, dict(learner.state), tuple(learner.scores), drawn.history)
    return metrics


def _learn(run: _Run, step: int, drawn: Drawn) -> StepResult:
    """The update of a step; without a batch there is none, and that is what the metrics say."""
    recipe, learner, batch = run.recipe, run.learner, drawn.batch
    if batch is None:
        nothing = {"loss": 0.0, "grad_norm": 0.0, "rows_scored": 0.0, "updates": 0.0}
        return StepResult(nothing | learner.after(step, None, nothing), None, None)
    algorithm, draws = recipe.algorithm, None
    if len(batch.problems) < algorithm.minibatches:  # only where dynamic sampling met its cap
        algorithm = replace(algorithm, minibatches=len(batch.problems))
    if algorithm.focus.needs_draws:
        draws = generator(recipe.seed, "focus", step).random(batch.samples.tokens.shape)
    result = update(
        learner.policy,
        learner.optimizer,
        batch,
        algorithm,
        Decoding(recipe.temperature),
        recipe.max_grad_norm,
        _micro_rows(recipe, batch),
        learner.supplies(step, batch, drawn.greedy, draws),
    )
    return result._replace(metrics=result.metrics | learner.after(step, batch, result.metrics))


def _micro_rows(recipe: Recipe, batch: Rollouts) -> int | None:
    """Rows scored at once: as many as can't exceed the tokens asked for."""
    if recipe.micro_tokens is None:
        return recipe.micro_rows
    rows = max(1, recipe.micro_tokens // batch.samples.tokens.shape[1])
    return min(rows, recipe.micro_rows or rows)


def _evaluate(run: _Run, sets: Mapping[str, Sequence[Problem]], step: int) -> None:
    if sets:
        found = evaluate(run.learner.policy, run.recipe.the_task, sets, step)
        store.write_eval(run.folder, found)
        run.learner.scores.append(float(np.mean(list(accuracy_by_set(found).values()))))


def _rollout_rows(rollouts: Rollouts, result: StepResult) -> list[dict[str, Any]]:
    advantages = result.signal.advantages.flatten().tolist()
    samples, group = rollouts.samples, rollouts.group_size
    lengths, finished = samples.mask.sum(1).tolist(), samples.finished.tolist()
    columns = (samples.tokens.tolist(), samples.logps.tolist(), result.pull.tolist())
    rows = []
    for b, (ids, logps, pull) in enumerate(zip(*columns, strict=True)):
        problem, verdict = rollouts.problems[b // group], rollouts.verdicts[b]
        rows.append(
            {
                "prompt_idx": b // group,
                "sample_idx": b % group,
                "prompt": problem.prompt,
                "completion": rollouts.texts[b],
                "token_ids": ids[: lengths[b]],
                "logps": logps[: lengths[b]],
                "signal": pull[: lengths[b]],
                "reward": float(rollouts.rewards.flatten()[b]),
                "rewards": {name: float(paid.flatten()[b]) for name, paid in rollouts.rewards_by_function.items()},
                "verdict": verdict.correct,
                "kind": verdict.kind,
                "advantage": advantages[b],
                "finish_reason": "stop" if finished[b] else "length",
            }
        )
    return rows
