"""Faults that people reported of other implementations, as seen from Python. The names say what went wrong there."""

import numpy as np
import pytest

import reference as ref
import rmsnorm
from reference import BF16, F16, F32, F64, ulps, values


def test_bl01_default_epsilon_depends_on_the_type():
    x = values((8, 32), BF16, 0, 0.058)
    narrow, wide = rmsnorm.rms_norm(x), rmsnorm.rms_norm(x.astype(F32))
    assert np.array_equal(narrow, wide.astype(BF16))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("epsilon", [1e-12, 1e-8, 1e-6, 1e-5])
def test_bl02_small_epsilon_becomes_zero_in_half_precision(dtype, epsilon):
    assert not rmsnorm.rms_norm(np.zeros((2, 10), dtype), epsilon=epsilon).any()
    x = np.full((1, 64), np.sqrt(2e-4), dtype)
    assert ulps(rmsnorm.rms_norm(x, epsilon=epsilon), ref.rms_norm(x, epsilon=epsilon)) <= 0.51


def test_bl03_epsilon_is_added_outside_the_root():
    x = np.full((1, 8), 1e-3, F32)
    assert np.allclose(rmsnorm.rms_norm(x, epsilon=1e-6), 0.70711, atol=1e-5)
    assert np.allclose(rmsnorm.rms_norm(x, epsilon=1e-6, epsilon_placement="outside"), 0.99900, atol=1e-5)


def test_bl12_squares_are_formed_in_half_precision():
    x = np.array([[256, 256]], F16)
    out, inv = rmsnorm.rms_norm(x, epsilon=0.0, inv_rms=True)
    assert np.array_equal(out, [[1, 1]]) and inv.dtype == F32
    out, mean, _ = rmsnorm.layer_norm(np.array([[256, -256]], F16), epsilon=0.0, mean=True, inv_std=True)
    assert np.array_equal(out, [[1, -1]]) and mean.dtype == F32


def test_bl13_sum_of_squares_overflows_half_precision():
    rows = np.array([[60000] * 896, [-60000] * 896, [8000] * 896], F16)
    assert np.array_equal(rmsnorm.rms_norm(rows), np.sign(rows))


def test_bl07_order_of_rounding_is_chosen_for_the_caller():
    x, weight = values((1, 4096), BF16), np.full(4096, 1.0390625, BF16)
    once, twice = (rmsnorm.rms_norm(x, weight, epsilon=1e-5, rounding=r) for r in ("once", "before_weight"))
    inner = ref.round_to(ref.rms_norm(x, epsilon=1e-5), BF16)
    assert ulps(once, ref.rms_norm(x, weight, epsilon=1e-5)) <= 0.51
    assert np.mean(ref.real(twice) != ref.round_to(inner * ref.real(weight), BF16)) < 1e-3
    assert 0.2 < np.mean(once != twice) < 0.5


def test_bl11_norm_reads_another_sum_than_the_one_stored():
    x, residual = values((4, 256), BF16), np.full((4, 256), 200, BF16)
    out, total = rmsnorm.add_rms_norm(x, residual)
    assert np.array_equal(ref.real(total), ref.round_to(ref.real(x) + 200, BF16))
    assert np.array_equal(out, rmsnorm.rms_norm(total))


def test_bl15_variance_is_the_difference_of_two_large_numbers():
    out = rmsnorm.layer_norm(np.array([[40000, 40001, 40002, 40003]], F32), epsilon=0.0)
    assert np.allclose(out, [[-1.34164, -0.44721, 0.44721, 1.34164]], atol=1e-5)
    assert not rmsnorm.layer_norm(np.full((1, 256), 1234, F32)).any()


@pytest.mark.parametrize("position", [0, 31, 63, 66])
def test_bl19_nan_is_lost_or_spreads(position):
    x = values((3, 67), F32)
    clean = rmsnorm.rms_norm(x)
    x[1, position] = np.nan
    out = rmsnorm.rms_norm(x)
    assert np.isnan(out[1]).all() and np.array_equal(out[[0, 2]], clean[[0, 2]])
    x[1, position] = np.inf
    out = rmsnorm.rms_norm(x)
    assert np.isnan(out[1, position]) and not np.delete(out[1], position).any()


@pytest.mark.parametrize("shape", [(0, 10), (1, 0, 10), (0, 0), (3, 0)])
def test_bl20_empty_input_ends_the_process(shape):
    x = np.empty(shape, F32)
    if shape[-1] == 0:
        with pytest.raises(ValueError, match="must be from 1 to 2"):
            rmsnorm.rms_norm(x)
    else:
        assert rmsnorm.rms_norm(x).shape == shape
        assert rmsnorm.add_rms_norm(x, x)[0].shape == shape
        assert rmsnorm.rms_norm_quantize(x)[0].shape == shape
        assert not rmsnorm.rms_norm_backward(x, x, dweight=True)[1].any()


@pytest.mark.parametrize("rows", [65535, 65536, 65537])
def test_bl29_more_rows_than_sixteen_bits_count(rows):
    x = values((rows, 4), F32)
    assert ulps(rmsnorm.rms_norm(x), ref.rms_norm(x)) <= 3


def test_bl30_strided_input_is_silently_wrong():
    x = values((64, 64), F32)
    with pytest.raises(ValueError, match="must be 1 on the normalised axis"):
        rmsnorm.rms_norm(x.T)
    assert np.array_equal(rmsnorm.rms_norm(x[::2]), rmsnorm.rms_norm(x[::2].copy()))


def test_bl31_heads_of_a_packed_buffer_are_copied_or_refused():
    qkv = values((5, 24 * 128), BF16)
    q = qkv[:, : 16 * 128].reshape(5, 16, 128)
    assert np.shares_memory(q, qkv)
    rest = qkv[:, 16 * 128 :].copy()
    expected = rmsnorm.rms_norm(q.copy())
    assert np.array_equal(rmsnorm.rms_norm(q.transpose(1, 0, 2)), expected.transpose(1, 0, 2))
    rmsnorm.rms_norm(q, out=q)
    assert np.array_equal(q, expected) and np.array_equal(qkv[:, 16 * 128 :], rest)


def test_bl36_rms_divides_by_the_standard_deviation():
    assert np.isclose(rmsnorm.rms_norm(np.arange(10, dtype=F32)[None], epsilon=0.0)[0, -1], 1.68585, atol=1e-5)


@pytest.mark.parametrize("x_type", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize("weight_type", [F32, F16, BF16], ids=str)
def test_bl40_weight_must_have_the_type_of_x(x_type, weight_type):
    for shape in [(64,), (3, 64), (2, 3, 64), (2, 2, 3, 64)]:
        x, weight = values(shape, x_type), values(64, weight_type, 1)
        if x_type == F64 and weight_type != F32:
            with pytest.raises(TypeError, match=r"weight.type is b?f16; it must be f32 or f64 where x is f64"):
                rmsnorm.rms_norm(x, weight)
            continue
        expected = ref.rms_norm(x, weight)
        scale = np.abs(expected).max(-1, keepdims=True) if x_type == F64 else None
        out = rmsnorm.rms_norm(x, weight)
        assert out.dtype == x_type
        assert ulps(out, expected, scale=scale) <= {F32: 3, F64: 4}.get(x_type, 0.51)
        dweight = rmsnorm.rms_norm_backward(x, x, weight, dweight=True)[1]
        assert dweight.dtype == weight_type


def test_bl41_no_weight_needs_a_vector_of_ones():
    x = values((3, 100), BF16)
    for norm in (rmsnorm.rms_norm, rmsnorm.layer_norm):
        assert np.array_equal(norm(x), norm(x, np.ones(100, F32)))
        assert np.array_equal(norm(x, None, np.ones(100, F32)), norm(x, np.ones(100, F32), np.ones(100, F32)))


def test_bl39_backward_overwrites_dy():
    dy, x = values((4, 64), F32), values((4, 64), F32, 1)
    before = dy.copy()
    first, second = rmsnorm.rms_norm_backward(dy, x), rmsnorm.rms_norm_backward(dy, x)
    assert np.array_equal(first, second) and np.array_equal(dy, before)
    rmsnorm.rms_norm_backward(dy, x, dx=dy)
    assert np.array_equal(dy, first)


@pytest.mark.parametrize("rows", [1, 7, 33, 4096])
def test_bl43_dweight_is_summed_in_half_precision(rows):
    x, dy = np.abs(values((rows, 64), BF16)), np.abs(values((rows, 64), BF16, 1))
    wide = np.empty(64, F32)
    rmsnorm.rms_norm_backward(dy, x, dweight=wide)
    expected = ref.rms_norm_backward(dy, x)[1]
    assert np.all(np.abs(ref.real(wide) - expected) <= 1e-6 * expected + ref.ulp(expected, F32))


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_bl48_dweight_of_one_row_is_garbage(shape):
    x, dy = np.zeros(shape, F32), np.full(shape, -1, F32)
    for _ in range(10):
        dx, dweight = rmsnorm.rms_norm_backward(dy, x, epsilon=1e-6, dweight=np.full(4, np.nan, F32))
        assert not dweight.any() and np.allclose(dx, -1e3)


@pytest.mark.parametrize("rows", [1025, 1031, 8097])
def test_bl44_last_block_of_rows_is_dropped(rows):
    x, dy = values((rows, 32), F32), np.ones((rows, 32), F32)
    for threads in (1, 2, 4, 64):
        assert np.array_equal(rmsnorm.rms_norm_backward(dy, x, threads=threads, dbias=True)[1], np.full(32, rows, F32))


def test_bl46_residual_gradient_is_added_before_the_norm():
    dy, total, through = (values((3, 16), F64, i) for i in range(3))
    zero = np.zeros_like(dy)
    alone = rmsnorm.add_rms_norm_backward(dy, total)
    assert np.array_equal(rmsnorm.add_rms_norm_backward(zero, total, None, through), through)
    assert np.allclose(rmsnorm.add_rms_norm_backward(dy, total, None, through), through + alone, rtol=1e-14)


def test_bl61_scale_of_zeros_divides_by_zero():
    x = np.zeros((2, 256), F32)
    x[0, :128] = 1
    out, scale = rmsnorm.rms_norm_quantize(x, scaling="per_group")
    assert np.isfinite(scale).all() and not out[1].any() and not out[0, 128:].any()
