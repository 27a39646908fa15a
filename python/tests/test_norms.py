"""The forward norms against the formula, in units of the last place."""

import numpy as np
import pytest

import reference as ref
import rmsnorm
from reference import BF16, F16, F32, F64, TYPES, ulps, values

SHAPES = [(1,), (7,), (3, 64), (2, 3, 255), (5, 1000), (2, 4096)]
BUDGET = {F32: 3, F16: 0.51, BF16: 0.51, F64: 4}
LAYER_BUDGET = {**BUDGET, F32: 4}


def row_scale(expected):
    """f64 results are judged by the largest of their row."""
    return np.abs(expected).max(-1, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rms_norm(dtype, shape):
    x, weight = values(shape, dtype), values(shape[-1], dtype, 1)
    out, inv = rmsnorm.rms_norm(x, weight, epsilon=1e-5, inv_rms=True)
    expected = ref.rms_norm(x, weight, epsilon=1e-5)
    assert out.dtype == dtype and out.shape == x.shape
    assert ulps(out, expected, scale=row_scale(expected) if dtype == F64 else None) <= BUDGET[dtype]
    expected_inv = ref.inv_rms(ref.real(x), 1e-5)[..., 0].reshape(inv.shape)
    assert inv.dtype == (F64 if dtype == F64 else F32)
    assert ulps(inv, expected_inv) <= {F32: 0.51, F16: 1, BF16: 1, F64: 4}[dtype]  # 16-bit rows are summed in f32


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"weight_offset": 1.0},
        {"epsilon_placement": "outside", "epsilon": 1e-3},
        {"partial": 5},
        {"partial": 63, "epsilon_placement": "outside"},
        {"epsilon": 0.0},
    ],
    ids=str,
)
def test_rms_norm_options(dtype, options):
    x, weight = values((4, 64), dtype), values(64, dtype, 1)
    out = rmsnorm.rms_norm(x, weight, **options)
    names = {"epsilon": "epsilon", "weight_offset": "offset", "epsilon_placement": "placement", "partial": "partial"}
    expected = ref.rms_norm(x, weight, **{names[name]: value for name, value in options.items()})
    budget = 3.5 if dtype == F32 else BUDGET[dtype]
    assert ulps(out, expected, scale=row_scale(expected) if dtype == F64 else None) <= budget


def test_exact_rounding_of_float32():
    x, weight = values((8, 1000), F32), values(1000, F32, 1)
    assert ulps(rmsnorm.rms_norm(x, weight, rounding="exact"), ref.rms_norm(x, weight)) <= 0.51


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_before_weight_rounds_twice(dtype):
    x, weight = values((8, 512), dtype), values(512, dtype, 1)
    inner = ref.round_to(ref.rms_norm(x), dtype)
    expected = ref.round_to(inner * ref.real(weight), dtype)
    out = rmsnorm.rms_norm(x, weight, rounding="before_weight")
    assert np.mean(ref.real(out) != expected) < 1e-3  # the inner value may be within 0.01 ulp of a tie
    assert np.mean(ref.real(rmsnorm.rms_norm(x, weight)) != expected) > 0.05  # the other rounding is another result


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(dtype, shape):
    x, weight = values(shape, dtype) + dtype.type(3), values(shape[-1], dtype, 1)
    out, mean, inv_std = rmsnorm.layer_norm(x, weight, mean=True, inv_std=True)
    expected = ref.layer_norm(x, weight)
    assert ulps(out, expected, scale=row_scale(expected) if dtype == F64 else None) <= LAYER_BUDGET[dtype]
    wide = ref.real(x)
    assert ulps(mean, wide.mean(-1).reshape(mean.shape)) <= (4 if dtype == F64 else 0.51)
    variance = ((wide - wide.mean(-1, keepdims=True)) ** 2).mean(-1)
    assert ulps(inv_std, (1 / np.sqrt(variance + ref.REAL(1e-5))).reshape(inv_std.shape)) <= (
        4 if dtype == F64 else 0.51
    )


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("norm", [rmsnorm.rms_norm, rmsnorm.layer_norm])
def test_bias(dtype, norm):
    x, weight, bias = values((4, 300), dtype), values(300, dtype, 1), values(300, dtype, 2)
    formula = getattr(ref, norm.__name__)
    expected = formula(x, weight, bias)
    addend = np.maximum(np.abs(formula(x, weight)), np.abs(ref.real(bias)))
    error = np.abs(ref.real(norm(x, weight, bias)) - expected)
    # 16 bit: one rounding beside an f32 sum; f32: 4.5 ulp of the largest addend
    allowed = 4.5 * ref.ulp(np.maximum(addend, np.abs(expected)), F32)
    assert np.all(error <= (allowed if dtype == F32 else allowed + 0.51 * ref.ulp(expected, dtype)))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("residual_type", ["same", "float32"])
def test_add_rms_norm(dtype, residual_type):
    residual_dtype = dtype if residual_type == "same" else F32
    x, residual = values((6, 500), dtype), values((6, 500), residual_dtype, 1, 3)
    weight = values(500, F32, 2)
    out, total, inv = rmsnorm.add_rms_norm(x, residual, weight, inv_rms=True)
    expected_total = ref.round_to(ref.real(x) + ref.real(residual), residual_dtype)
    assert total.dtype == residual_dtype and np.array_equal(ref.real(total), expected_total)
    assert ulps(out, ref.rms_norm(total, weight)) <= 0.51
    assert inv.shape == (6,)
    unrounded, _ = rmsnorm.add_rms_norm(x, residual, weight, norm_input="unrounded_sum")
    wide_sum = (np.asarray(x, F32) + np.asarray(residual, F32)).astype(F32)
    assert ulps(unrounded, ref.rms_norm(wide_sum, weight)) <= 0.51


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_add_layer_norm(dtype):
    x, residual, weight = values((3, 200), dtype), values((3, 200), dtype, 1), values(200, dtype, 2)
    out, total, mean, inv_std = rmsnorm.add_layer_norm(x, residual, weight, mean=True, inv_std=True)
    assert np.array_equal(ref.real(total), ref.round_to(ref.real(x) + ref.real(residual), dtype))
    expected = ref.layer_norm(total, weight)
    assert ulps(out, expected, scale=row_scale(expected) if dtype == F64 else None) <= LAYER_BUDGET[dtype]
    assert mean.shape == inv_std.shape == (3,)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_center(dtype):
    x = values((4, 333), dtype) + dtype.type(1)
    expected = ref.real(x) - ref.real(x).mean(-1, keepdims=True)
    scale = np.abs(ref.real(x)).max(-1, keepdims=True) if dtype == F64 else None
    assert ulps(rmsnorm.center(x), expected, scale=scale) <= (4 if dtype == F64 else 0.51)


def test_weights_that_broadcast():
    x, weight = values((2, 3, 4, 64), F32), values((3, 1, 64), F32, 1)
    assert ulps(rmsnorm.rms_norm(x, weight), ref.rms_norm(x, weight)) <= 3
    shift, scale = values((2, 1, 1, 64), F32, 2), values((2, 1, 1, 64), F32, 3)
    out = rmsnorm.layer_norm(x, scale, shift, weight_offset=1)
    expected = ref.layer_norm(x, scale, shift, offset=1)
    assert ulps(out, expected, scale=np.maximum(np.abs(expected), np.abs(ref.real(shift)))) <= 4.5


def test_row_is_the_same_alone_and_in_a_batch():
    x, weight = values((33, 700), F32), values(700, F32, 1)
    out = rmsnorm.rms_norm(x, weight)
    for threads in (1, 2, 5):
        assert np.array_equal(rmsnorm.rms_norm(x, weight, threads=threads), out)
    for row in (0, 1, 16, 32):
        assert np.array_equal(rmsnorm.rms_norm(x[row], weight), out[row])


def test_every_target_gives_the_same_bits():
    x, weight = values((9, 1001), BF16), values(1001, BF16, 1)
    before = rmsnorm.target()
    try:
        bits = []
        for target in rmsnorm.targets():
            if target.supported:
                rmsnorm.use_target(target.name)
                bits.append(rmsnorm.layer_norm(x, weight).tobytes())
    finally:
        rmsnorm.use_target(before)
    assert len(bits) >= 2 and len(set(bits)) == 1
