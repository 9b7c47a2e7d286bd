"""RandomMode: PyTorch's random functions with counter-based numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tesser.random import RandomMode, UnsupportedRandomness, active_mode
from tesser.recurrent import RecurrentMode

SEED, STEP = 5, 2
operators = torch.ops.tesser


def stream(id):
    return torch.tensor(SEED), torch.tensor(STEP), id


X = torch.arange(1.0, 2 * 3 * 4 * 5 + 1).reshape(2, 3, 4, 5)

# What is called, and what it must give with id 0.
FUNCTIONS = {
    "F.dropout": (lambda: F.dropout(X, 0.3), lambda: operators.dropout(X, 0.3, *stream(0))),
    "nn.Dropout": (lambda: nn.Dropout(0.3)(X), lambda: operators.dropout(X, 0.3, *stream(0))),
    "torch.dropout": (lambda: torch.dropout(X, 0.3, True), lambda: operators.dropout(X, 0.3, *stream(0))),
    "nn.Dropout1d": (lambda: nn.Dropout1d(0.3)(X[0]), lambda: operators.dropout.channels(X[0], 0.3, *stream(0), 2)),
    "nn.Dropout2d": (lambda: nn.Dropout2d(0.3)(X), lambda: operators.dropout.channels(X, 0.3, *stream(0), 2)),
    "nn.Dropout3d": (
        lambda: nn.Dropout3d(0.3)(X[None]),
        lambda: operators.dropout.channels(X[None], 0.3, *stream(0), 2),
    ),
    "dropout3d, no batch": (lambda: F.dropout3d(X, 0.3), lambda: operators.dropout.channels(X, 0.3, *stream(0), 1)),
    "rand": (lambda: torch.rand(2, 3), lambda: operators.uniform([2, 3], 0.0, 1.0, *stream(0))),
    "rand, size": (lambda: torch.rand(size=(2, 3)), lambda: operators.uniform([2, 3], 0.0, 1.0, *stream(0))),
    "rand, double": (
        lambda: torch.rand((2, 3), dtype=torch.float64),
        lambda: operators.uniform([2, 3], 0.0, 1.0, *stream(0)).double(),
    ),
    "rand_like": (lambda: torch.rand_like(X), lambda: operators.uniform([2, 3, 4, 5], 0.0, 1.0, *stream(0))),
    "randn": (lambda: torch.randn(7), lambda: operators.normal([7], 0.0, 1.0, *stream(0))),
    "randn_like": (lambda: torch.randn_like(X), lambda: operators.normal([2, 3, 4, 5], 0.0, 1.0, *stream(0))),
    "randint": (lambda: torch.randint(9, (4,)), lambda: operators.randint([4], 0, 9, *stream(0))),
    "randint, low": (lambda: torch.randint(3, 9, (4,)), lambda: operators.randint([4], 3, 9, *stream(0))),
    "randint, names": (
        lambda: torch.randint(low=3, high=9, size=(4,)),
        lambda: operators.randint([4], 3, 9, *stream(0)),
    ),
    "randint_like": (
        lambda: torch.randint_like(X, 9),
        lambda: operators.randint([2, 3, 4, 5], 0, 9, *stream(0)).float(),
    ),
    "bernoulli": (lambda: torch.bernoulli(X / 120), lambda: operators.bernoulli(X / 120, *stream(0))),
    "Tensor.bernoulli": (lambda: (X / 120).bernoulli(), lambda: operators.bernoulli(X / 120, *stream(0))),
    "normal": (lambda: torch.normal(1.0, 2.0, (3,)), lambda: operators.normal([3], 1.0, 2.0, *stream(0))),
    "normal, tensors": (
        lambda: torch.normal(torch.ones(3), 2.0),
        lambda: operators.normal([3], 0.0, 1.0, *stream(0)) * 2 + 1,
    ),
    "bernoulli_": (
        lambda: torch.empty(5).bernoulli_(0.4),
        lambda: operators.bernoulli(torch.full((5,), 0.4), *stream(0)),
    ),
    "normal_": (lambda: torch.empty(5).normal_(1, 2), lambda: operators.normal([5], 1.0, 2.0, *stream(0))),
    "uniform_": (lambda: torch.empty(5).uniform_(1, 2), lambda: operators.uniform([5], 1.0, 2.0, *stream(0))),
    "random_": (
        lambda: torch.empty(5, dtype=torch.int64).random_(2, 9),
        lambda: operators.randint([5], 2, 9, *stream(0)),
    ),
    "rrelu": (
        lambda: F.rrelu(X - 60, 0.1, 0.3, True),
        lambda: torch.where(X <= 60, (X - 60) * operators.uniform([2, 3, 4, 5], 0.1, 0.3, *stream(0)), X - 60),
    ),
    "fractional_max_pool2d": (
        lambda: nn.FractionalMaxPool2d(2, output_size=3)(X),
        lambda: torch.ops.aten.fractional_max_pool2d(
            X, [2, 2], [3, 3], operators.uniform([2, 3, 2], 0.0, 1.0, *stream(0))
        )[0],
    ),
    "fractional_max_pool3d, no batch": (
        lambda: F.fractional_max_pool3d(X, 2, output_ratio=0.6),
        lambda: torch.ops.aten.fractional_max_pool3d(
            X, [2, 2, 2], [1, 2, 3], operators.uniform([1, 2, 3], 0.0, 1.0, *stream(0))
        )[0],
    ),
    "fractional_max_pool3d, indices": (
        lambda: F.fractional_max_pool3d(X, (1, 2, 2), output_size=2, return_indices=True)[1],
        lambda: torch.ops.aten.fractional_max_pool3d(
            X, [1, 2, 2], [2, 2, 2], operators.uniform([1, 2, 3], 0.0, 1.0, *stream(0))
        )[1],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_becomes_its_operator(name):
    call, expected = FUNCTIONS[name]
    state = torch.get_rng_state()
    with RandomMode(SEED, STEP):
        found = call()
    assert found.dtype == expected().dtype
    assert torch.equal(found, expected())
    assert torch.equal(torch.get_rng_state(), state)


def test_ids_count_calls_and_restart_at_each_entry():
    mode = RandomMode(SEED, STEP)
    for _ in range(2):
        with mode:
            assert torch.equal(F.dropout(X), operators.dropout(X, 0.5, *stream(0)))
            assert F.dropout(X, 0.5, training=False) is X
            assert F.dropout(X, 0.0) is X
            assert torch.equal(torch.rand(3), operators.uniform([3], 0.0, 1.0, *stream(1)))
    assert active_mode() is None


def test_in_place_dropout_changes_its_input():
    x = X.clone()
    with RandomMode(SEED, STEP):
        result = F.dropout(x, 0.3, inplace=True)
    assert result is x and torch.equal(x, operators.dropout(X, 0.3, *stream(0)))


def test_alpha_dropout_keeps_mean_and_variance():
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    with RandomMode(SEED, STEP):
        result = F.alpha_dropout(x, 0.3, training=True)
        features = F.feature_alpha_dropout(X, 0.5, training=True)
    assert abs(float(result.mean())) < 0.02 and abs(float(result.std()) - 1) < 0.02
    # A dropped feature map is constant.
    constant = features.flatten(2).std(-1) == 0
    assert 0 < int(constant.sum()) < 6


def attention_by_hand(query, key, value, mask, p, id):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return operators.dropout(scores.softmax(-1), p, *stream(id)) @ value


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    query, key, value = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    mask = torch.ones(6, 6, dtype=torch.bool).tril() if causal else None
    with RandomMode(SEED, STEP):
        found = F.scaled_dot_product_attention(query, key, value, is_causal=causal, dropout_p=0.2)
        without = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    torch.testing.assert_close(found, attention_by_hand(query, key, value, mask, 0.2, 0))
    torch.testing.assert_close(without, F.scaled_dot_product_attention(query, key, value, is_causal=causal))


def test_attention_of_a_row_that_sees_nothing_is_zero():
    query, key, value = torch.randn(3, 2, 6, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    query.requires_grad_()
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    with RandomMode(SEED, STEP):
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=0.2)
        found.sum().backward()
    assert torch.equal(found[:, 2], torch.zeros(2, 8))
    assert bool(query.grad.isfinite().all()) and bool(found[:, 0].any())


@pytest.mark.parametrize("need_weights", [False, True])
def test_multi_head_attention(need_weights):
    attention = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
    x = torch.randn(3, 5, 8)
    with RandomMode(SEED, STEP):
        found, _ = attention(x, x, x, need_weights=need_weights)
    query, key, value = (
        F.linear(x, attention.in_proj_weight, attention.in_proj_bias).view(3, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    )
    if need_weights:
        # PyTorch folds batch and heads together there; the elements' order is the same.
        weights = (query @ key.transpose(-2, -1) / 2).softmax(-1)
        expected = operators.dropout(weights.reshape(6, 5, 5), 0.3, *stream(0)).view(3, 2, 5, 5) @ value
    else:
        expected = attention_by_hand(query, key, value, None, 0.3, 0)
    torch.testing.assert_close(found, attention.out_proj(expected.transpose(1, 2).reshape(3, 5, 8)))
    assert F.dropout is not None and F.dropout.__module__ == "torch.nn.functional"  # put back


@pytest.mark.parametrize("outer", ["random", "recurrent", "random alone"])
def test_dropout_between_recurrent_layers(outer):
    lstm = nn.LSTM(3, 4, 2, dropout=0.5)
    first, second = nn.LSTM(3, 4), nn.LSTM(4, 4)
    for layer, module in enumerate((first, second)):
        for name, parameter in module.named_parameters():
            parameter.data = lstm.get_parameter(name.replace("l0", f"l{layer}")).data
    x = torch.randn(5, 2, 3)
    modes = {
        "random": [RandomMode(SEED, STEP), RecurrentMode()],
        "recurrent": [RecurrentMode(), RandomMode(SEED, STEP)],
        "random alone": [RandomMode(SEED, STEP)],
    }[outer]
    for mode in modes:
        mode.__enter__()
    found, _ = lstm(x)
    for mode in reversed(modes):
        mode.__exit__(None, None, None)
    expected, _ = second(operators.dropout(first(x)[0], 0.5, *stream(0)))
    torch.testing.assert_close(found, expected)


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    x = X.clone().requires_grad_()
    checkpoint(lambda t: F.dropout(t, 0.5).sin(), x, use_reentrant=False).sum().backward()


REFUSED = {
    "randperm": lambda: torch.randperm(4),
    "multinomial": lambda: torch.multinomial(torch.ones(4), 1),
    "exponential_": lambda: torch.empty(3).exponential_(),
    "poisson": lambda: torch.poisson(torch.ones(3)),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.ones(2, 3)),
    "initialization": lambda: nn.Linear(3, 3),
    "generator": lambda: torch.rand(3, generator=torch.Generator()),
    "out": lambda: torch.rand(3, out=torch.empty(3)),
    "native_dropout": lambda: torch.native_dropout(X, 0.5, True),
    "random_ without a bound": lambda: torch.empty(3).random_(),
    "checkpoint": checkpointed,
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_randomness_is_refused(name):
    with RandomMode(SEED, STEP), pytest.raises(UnsupportedRandomness, match="cannot be made counter-based"):
        REFUSED[name]()


def test_invalid_probability():
    with RandomMode(SEED, STEP), pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(X, 1.5)


def test_traces_with_seed_and_step_as_inputs():
    def loss(seed, step, x):
        with RandomMode(seed, step):
            return (F.dropout(x, 0.5) + torch.randn_like(x)).sum()

    def gradient(seed, step, x):
        return torch.autograd.grad(loss(seed, step, x), x)[0]

    x = X.clone().requires_grad_()
    graph = make_fx(gradient, tracing_mode="fake")(torch.tensor(0), torch.tensor(0), x)
    targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert targets.count("tesser.dropout.default") == 2  # the second is the derivative
    for seed, step in ((1, 2), (3, 4)):
        expected = operators.dropout(torch.ones_like(X), 0.5, torch.tensor(seed), torch.tensor(step), 0)
        assert torch.equal(graph(torch.tensor(seed), torch.tensor(step), x), expected)
