"""The reference implementations of the tesser operators, against the document and PyTorch's own functions."""

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.library import opcheck

import tesser.operators
from tesser import philox

operators = torch.ops.tesser
SEED, STEP = torch.tensor(-7), torch.tensor(3)
RATE = torch.tensor(0.01, dtype=torch.float64)


def numbers(*shape, seed=0, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_(grad)


# The vectors that come with the Random123 paper (kat_vectors, philox4x32-10): counter, key, words.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize("counter, key, expected", KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, expected):
    words = philox.philox_blocks(
        np.array([[int(word, 16) for word in counter.split()]], dtype=np.uint32),
        tuple(int(word, 16) for word in key.split()),
    )
    assert [f"{word:08x}" for word in words[0]] == expected.split()


def test_counter_and_key_follow_the_document():
    seed, step, operator = -2, (1 << 32) + 5, 9
    words = philox.words(4 * 20000, seed, step, operator)
    for block in (0, 1, 16384, 19999):
        counter = np.array([[block, 0, operator, 5]], dtype=np.uint32)
        expected = philox.philox_blocks(counter, (0xFFFFFFFE, 0xFFFFFFFF))[0]
        assert words[4 * block : 4 * block + 4].tolist() == expected.tolist()


def test_dropout_keeps_where_the_uniform_number_is_at_least_p():
    x = torch.arange(1.0, 1001.0)
    uniform = torch.from_numpy(philox.uniforms(1000, -7, 3, 5))
    expected = torch.where(uniform >= 0.3, x * np.float32(1 / 0.7), torch.zeros(()))
    assert torch.equal(operators.dropout(x, 0.3, SEED, STEP, 5), expected)
    assert torch.equal(operators.dropout(x, 1.0, SEED, STEP, 5), torch.zeros(1000))
    assert torch.equal(operators.dropout(x, 0.0, SEED, STEP, 5), x)
    assert not torch.equal(operators.dropout(x, 0.3, SEED, STEP, 6), expected)
    assert not torch.equal(operators.dropout(x, 0.3, SEED, STEP + 1, 5), expected)
    assert not torch.equal(operators.dropout(x, 0.3, SEED + 1, STEP, 5), expected)


def test_dropout_counts_elements_in_row_major_order_whatever_the_strides():
    x = torch.rand(4, 6, 5, 3)
    expected = operators.dropout(x, 0.5, SEED, STEP, 0)
    assert torch.equal(operators.dropout(x.contiguous(memory_format=torch.channels_last), 0.5, SEED, STEP, 0), expected)


def test_dropout_of_infinity_and_of_integers():
    dropped = operators.dropout(torch.full((100,), torch.inf), 0.5, SEED, STEP, 0)
    assert set(dropped.tolist()) == {0.0, torch.inf}
    with pytest.raises(ValueError, match="floating-point"):
        operators.dropout(torch.arange(3), 0.5, SEED, STEP, 0)
    with pytest.raises(ValueError, match="0 to 1"):
        operators.dropout(torch.ones(3), 1.5, SEED, STEP, 0)


def test_dropout_channels_has_one_mask_element_a_channel():
    result = operators.dropout.channels(torch.ones(3, 4, 5, 6), 0.5, SEED, STEP, 2, 2)
    mask = operators.dropout(torch.ones(3, 4), 0.5, SEED, STEP, 2)
    assert torch.equal(result, mask[:, :, None, None].expand(3, 4, 5, 6))


@pytest.mark.parametrize("channels", [None, 1])
def test_derivative_of_dropout_is_itself(channels):
    x = torch.ones(30, 4, requires_grad=True)
    if channels is None:
        result = operators.dropout(x, 0.4, SEED, STEP, 1)
    else:
        result = operators.dropout.channels(x, 0.4, SEED, STEP, 1, channels)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())
    assert 0 < int((x.grad == 0).sum()) < 120


# (size, begin) of parts of a tensor [3, 5, 7]: whole rows, columns, one element, nothing.
PARTS = [((2, 5, 7), (1, 0, 0)), ((3, 5, 3), (0, 0, 4)), ((1, 2, 1), (2, 3, 5)), ((3, 0, 7), (0, 5, 0))]


@pytest.mark.parametrize("size, begin", PARTS)
def test_a_part_of_a_random_tensor_has_the_numbers_of_the_whole(size, begin):
    whole, stream = [3, 5, 7], (SEED, STEP, 4)
    part = tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))
    x = torch.rand(whole, generator=torch.Generator().manual_seed(3))
    generators = [("uniform", (-1.0, 2.0)), ("normal", (0.5, 2.0)), ("randint", (-3, 1000))]
    for name, bounds in generators:
        operator = getattr(operators, name)
        found = operator.region(size, *bounds, *stream, whole, begin)
        assert torch.equal(found, operator(whole, *bounds, *stream)[part])
    assert torch.equal(
        operators.bernoulli.region(x[part], *stream, whole, begin), operators.bernoulli(x, *stream)[part]
    )
    for channels in (0, 1, 2, 3):
        expected = operators.dropout.channels(x, 0.4, *stream, channels)[part]
        assert torch.equal(operators.dropout.region(x[part], 0.4, *stream, channels, whole, begin), expected)
    assert torch.equal(
        operators.dropout.region(x[part], 0.4, *stream, 3, whole, begin), operators.dropout(x, 0.4, *stream)[part]
    )


def test_a_part_outside_its_tensor_is_refused():
    with pytest.raises(ValueError, match="lies outside"):
        operators.uniform.region([2, 3], 0.0, 1.0, SEED, STEP, 0, [2, 4], [0, 2])
    with pytest.raises(ValueError, match="2 dimensions"):
        operators.uniform.region([2, 3], 0.0, 1.0, SEED, STEP, 0, [6], [0])
    with pytest.raises(ValueError, match="channels is 0 to 2"):
        operators.dropout.region(torch.ones(2, 3), 0.5, SEED, STEP, 0, 3, [2, 3], [0, 0])


@pytest.mark.parametrize("shape", [(6, 4), (5, 4, 3), (3, 4, 2, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_normalisation_in_steps_is_that_of_torch(shape, affine):
    x = numbers(*shape, seed=1) * 3 + 20
    x = x.detach().requires_grad_()
    dy = numbers(*shape, seed=2, grad=False)
    weight, bias = (numbers(4, seed=3), numbers(4, seed=4)) if affine else (None, None)
    running_mean, running_var = numbers(4, seed=5, grad=False), numbers(4, seed=6, grad=False).abs()
    new_mean, new_var = running_mean.clone(), running_var.clone()
    y = torch.nn.functional.batch_norm(x, new_mean, new_var, weight, bias, True, 0.3, 1e-3)
    y.backward(dy)
    count = x.numel() // 4

    # The sums come from two parts of the batch.
    halves = [operators.batch_norm_sums(half) for half in x.detach().split([1, shape[0] - 1])]
    sums = [a + b for a, b in zip(*halves, strict=True)]
    mean, rstd, found_mean, found_var = operators.batch_norm_statistics(
        *sums, running_mean, running_var, count, 0.3, 1e-3
    )
    torch.testing.assert_close(found_mean, new_mean)
    torch.testing.assert_close(found_var, new_var)
    torch.testing.assert_close(operators.batch_norm_apply(x, weight, bias, mean, rstd), y)
    halves = [
        operators.batch_norm_backward_sums(a, b, mean, rstd)
        for a, b in zip(dy.split([1, shape[0] - 1]), x.detach().split([1, shape[0] - 1]), strict=True)
    ]
    sum_dy, sum_dy_xhat = [a + b for a, b in zip(*halves, strict=True)]
    dx = operators.batch_norm_backward_apply(dy, x, weight, mean, rstd, sum_dy, sum_dy_xhat, count)
    torch.testing.assert_close(dx, x.grad)
    if affine:
        torch.testing.assert_close(sum_dy, bias.grad)
        torch.testing.assert_close(sum_dy_xhat, weight.grad)


def test_batch_norm_statistics_without_running_values_and_of_one_element():
    found = operators.batch_norm_statistics(torch.ones(3).double(), torch.ones(3).double(), None, None, 1, 0.1, 0.0625)
    assert found[0].dtype == torch.float32 and found[2:] == (None, None)
    assert found[1].tolist() == [4.0, 4.0, 4.0]
    running = torch.zeros(1), torch.ones(1)
    found = operators.batch_norm_statistics(torch.ones(1).double(), torch.ones(1).double(), *running, 1, 0.1, 0.1)
    assert found[3].isnan().all()


def test_batch_norm_refuses_wrong_shapes():
    with pytest.raises(ValueError, match=r"\[N, C, ...\]"):
        operators.batch_norm_sums(torch.ones(3))
    with pytest.raises(ValueError, match=r"\[N, C, ...\]"):
        operators.batch_norm_apply(torch.ones(3, 4), torch.ones(3), None, torch.ones(4), torch.ones(4))


def test_distributions():
    count = 200_000
    uniform = operators.uniform([count], -1.0, 3.0, SEED, STEP, 0)
    assert uniform.dtype == torch.float32
    assert float(uniform.min()) >= -1 and float(uniform.max()) <= 3
    assert abs(float(uniform.mean()) - 1) < 0.01
    normal = operators.normal([count], 2.0, 3.0, SEED, STEP, 0)
    assert abs(float(normal.mean()) - 2) < 0.03 and abs(float(normal.std()) - 3) < 0.03
    assert abs(float(torch.corrcoef(torch.stack((normal[::2], normal[1::2])))[0, 1])) < 0.01
    integers = operators.randint([count], -2, 4, SEED, STEP, 0)
    assert integers.dtype == torch.int64
    assert torch.bincount(integers + 2).sub(count / 6).abs().max() < 1000
    ones = operators.bernoulli(torch.full((count,), 0.2), SEED, STEP, 0)
    assert set(ones.unique().tolist()) == {0.0, 1.0} and abs(float(ones.mean()) - 0.2) < 0.01
    with pytest.raises(ValueError, match="2\\^32"):
        operators.randint([3], 0, 1 << 33, SEED, STEP, 0)


def test_normal_numbers_by_the_formula():
    words = philox.words(8, -7, 3, 4).astype(np.float64)
    u1, u2 = (np.floor(words[6] / 256) + 1) / 2**24, np.floor(words[7] / 256) / 2**24
    expected = [np.float32(1 + 2 * np.sqrt(-2 * np.log(u1)) * f(2 * np.pi * u2)) for f in (np.cos, np.sin)]
    assert operators.normal([8], 1.0, 2.0, SEED, STEP, 4)[6:].tolist() == expected
    # An odd count ends with half a pair.
    assert torch.equal(
        operators.normal([7], 1.0, 2.0, SEED, STEP, 4), operators.normal([8], 1.0, 2.0, SEED, STEP, 4)[:7]
    )


def test_golden_numbers_of_the_kernels_are_the_references():
    script = Path(__file__).parents[2] / "kernels" / "make_golden.py"
    specification = importlib.util.spec_from_file_location("make_golden", script)
    make_golden = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(make_golden)
    assert make_golden.golden_text() == script.with_name("golden.txt").read_text()


def test_a_million_elements_take_well_under_a_second():
    x = torch.ones(1_000_000)
    begin = time.perf_counter()
    operators.dropout(x, 0.5, SEED, STEP, 0)
    assert time.perf_counter() - begin < 1.0


def test_lstm_cell_equals_torch():
    cell = torch.nn.LSTMCell(3, 5).double()
    x, h, c = numbers(4, 3), numbers(4, 5, seed=1), numbers(4, 5, seed=2)
    gates = x @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh
    expected = cell(x, (h, c))
    found = operators.lstm_cell(gates.view(4, 4, 5), c)
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1])
    assert not found[2].requires_grad


def test_gru_cell_equals_torch():
    cell = torch.nn.GRUCell(3, 5).double()
    x, h = numbers(4, 3), numbers(4, 5, seed=1)
    input_gates = (x @ cell.weight_ih.T + cell.bias_ih).view(4, 3, 5)
    hidden_gates = (h @ cell.weight_hh.T + cell.bias_hh).view(4, 3, 5)
    torch.testing.assert_close(operators.gru_cell(input_gates, hidden_gates, h)[0], cell(x, h))


@pytest.mark.parametrize("outputs", [(0,), (1,), (0, 1)])
def test_gradients_of_lstm_cell(outputs):
    def run(gates, c):
        results = operators.lstm_cell(gates, c)
        return [results[index] for index in outputs]

    assert torch.autograd.gradcheck(run, (numbers(3, 4, 5), numbers(3, 5, seed=1)))


def test_gradients_of_gru_cell():
    inputs = (numbers(3, 3, 5), numbers(3, 3, 5, seed=1), numbers(3, 5, seed=2))
    assert torch.autograd.gradcheck(lambda *tensors: operators.gru_cell(*tensors)[0], inputs)


def test_cells_refuse_wrong_shapes():
    with pytest.raises(ValueError, match=r"\[B, 4, H\]"):
        operators.lstm_cell(torch.ones(3, 3, 5), torch.ones(3, 5))
    with pytest.raises(ValueError, match=r"\[B, 3, H\]"):
        operators.gru_cell(torch.ones(3, 3, 5), torch.ones(3, 4, 5), torch.ones(3, 5))


def plain(*shape, seed=0):
    return numbers(*shape, seed=seed, dtype=torch.float32, grad=False)


# PyTorch's own check of a registration: schema, no aliases, fake implementation, derivative, functionalisation.
OPERATORS = {
    "dropout": (operators.dropout.default, (numbers(3, 4), 0.5, SEED, STEP, 0)),
    "dropout_channels": (operators.dropout.channels, (numbers(3, 4), 0.5, SEED, STEP, 0, 1)),
    "uniform": (operators.uniform.default, ([2, 3], 0.0, 1.0, SEED, STEP, 0)),
    "normal": (operators.normal.default, ([2, 3], 0.0, 1.0, SEED, STEP, 0)),
    "bernoulli": (operators.bernoulli.default, (torch.full((4,), 0.3), SEED, STEP, 0)),
    "randint": (operators.randint.default, ([2, 3], 0, 9, SEED, STEP, 0)),
    "dropout_region": (
        operators.dropout.region,
        (numbers(2, 3, grad=False), 0.5, SEED, STEP, 0, 2, [4, 6], [1, 2]),
    ),
    "uniform_region": (operators.uniform.region, ([2, 3], 0.0, 1.0, SEED, STEP, 0, [4, 6], [1, 2])),
    "normal_region": (operators.normal.region, ([2, 3], 0.0, 1.0, SEED, STEP, 0, [4, 6], [1, 2])),
    "bernoulli_region": (operators.bernoulli.region, (torch.full((2, 3), 0.3), SEED, STEP, 0, [4, 6], [1, 2])),
    "randint_region": (operators.randint.region, ([2, 3], 0, 9, SEED, STEP, 0, [4, 6], [1, 2])),
    "batch_norm_sums": (operators.batch_norm_sums.default, (plain(3, 4, 5),)),
    "batch_norm_statistics": (
        operators.batch_norm_statistics.default,
        (plain(4).double(), plain(4).double().abs() + 9, plain(4), plain(4).abs(), 7, 0.1, 1e-5),
    ),
    "batch_norm_apply": (operators.batch_norm_apply.default, (plain(3, 4, 5), plain(4), None, plain(4), plain(4))),
    "batch_norm_backward_sums": (
        operators.batch_norm_backward_sums.default,
        (plain(3, 4, 5), plain(3, 4, 5), plain(4), plain(4)),
    ),
    "batch_norm_backward_apply": (
        operators.batch_norm_backward_apply.default,
        (
            *(plain(3, 4, 5), plain(3, 4, 5), None, plain(4), plain(4)),
            *(plain(4).double(), plain(4).double(), 15),
        ),
    ),
    "lstm_cell": (operators.lstm_cell.default, (numbers(3, 4, 5), numbers(3, 5))),
    "lstm_cell_backward": (
        operators.lstm_cell_backward.default,
        (plain(3, 5), None, plain(3, 5), plain(3, 5), plain(3, 4, 5)),
    ),
    "gru_cell": (operators.gru_cell.default, (numbers(3, 3, 5), numbers(3, 3, 5), numbers(3, 5))),
    "gru_cell_backward": (
        operators.gru_cell_backward.default,
        (plain(3, 5), plain(3, 3, 5), plain(3, 5), plain(3, 3, 5)),
    ),
    "sgd": (operators.sgd.default, (plain(3), plain(3), plain(3), RATE, STEP, 0.9, 0.0, 0.1, True, False)),
    "sgd_plain": (operators.sgd.default, (plain(3), plain(3), None, RATE, STEP, 0.0, 0.0, 0.0, False, False)),
    "adam": (
        operators.adam.default,
        (plain(3), plain(3), plain(3), plain(3).abs(), None, RATE, STEP, 0.9, 0.99, 1e-8, 0.1, True, False, False),
    ),
    "amsgrad": (
        operators.adam.default,
        (plain(3), plain(3), plain(3), plain(3).abs(), plain(3), RATE, STEP, 0.9, 0.99, 1e-8, 0.1, False, True, True),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_registration(name):
    operator, arguments = OPERATORS[name]
    opcheck(operator, arguments)


def test_every_schema_is_checked():
    names = {schema.split("(")[0] for schema in tesser.operators.SCHEMAS}
    checked = {operator.name().removeprefix("tesser::") for operator, _ in OPERATORS.values()}
    assert names == checked


def test_updates_refuse_missing_state():
    with pytest.raises(ValueError, match="momentum buffer"):
        operators.sgd(plain(3), plain(3), None, RATE, STEP, 0.9, 0.0, 0.0, False, False)
    with pytest.raises(ValueError, match="max_exp_avg_sq"):
        operators.adam(
            plain(3), plain(3), plain(3), plain(3), None, RATE, STEP, 0.9, 0.99, 1e-8, 0.0, False, True, False
        )
