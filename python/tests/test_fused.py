"""Gated, rotary, quantising, channel and sharded forms against their formulas."""

import ml_dtypes
import numpy as np
import pytest

import reference as ref
import rmsnorm
from reference import BF16, F16, F32, F64, TYPES, ulps, values

BUDGET = {F32: 5, F16: 0.51, BF16: 0.51, F64: 4}


@pytest.mark.parametrize("order", ["last", "first"])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gated_rms_norm(dtype, order, groups):
    x, gate, weight = values((3, 5, 128), dtype), values((3, 5, 128), dtype, 1), values(128, dtype, 2)
    out, inv = rmsnorm.gated_rms_norm(x, gate, weight, gate_order=order, groups=groups, inv_rms=True)
    expected = ref.gated_rms_norm(x, gate, weight, order=order, groups=groups)
    scale = np.abs(expected).max(-1, keepdims=True) if dtype == F64 else None
    assert ulps(out, expected, scale=scale) <= BUDGET[dtype]
    assert inv.shape == (3, 5, groups)


def test_gated_rms_norm_before_weight_of_qwen3_next():
    x, weight = values((8, 256), BF16), values(256, BF16, 2)
    gate = values((8, 256), F32, 1)
    inner = ref.round_to(ref.rms_norm(x), BF16)
    product = ref.round_to(inner * ref.real(weight), BF16)
    expected = ref.round_to(product * ref.silu(ref.real(gate)), BF16)
    out = rmsnorm.gated_rms_norm(x, gate, weight, rounding="before_weight")
    assert np.mean(ref.real(out) != expected) < 1e-3


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [64, 32])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_qk_norm_rope(dtype, rotary_dim, layout):
    """On the packed buffer of 4 Q, 2 K and 2 V heads, in place; V is not touched."""
    tokens, dim = 7, 64
    qkv = values((tokens, 8 * dim), dtype)
    before = qkv.copy()
    q, k = qkv[:, : 4 * dim].reshape(tokens, 4, dim), qkv[:, 4 * dim : 6 * dim].reshape(tokens, 2, dim)
    assert np.shares_memory(q, qkv) and np.shares_memory(k, qkv)
    q_weight, k_weight = values(dim, dtype, 1), values((2, dim), dtype, 2)
    cos_sin = values((20, rotary_dim), F32, 3)
    positions = np.array([0, 3, 19, 1, 1, 7, 5], np.int64)
    results = rmsnorm.qk_norm_rope(q, k, q_weight, k_weight, cos_sin, positions, rope_layout=layout, q_out=q, k_out=k)
    assert results[0] is q and results[1] is k
    original = before.reshape(tokens, 8, dim)
    for got, heads, weight in ((q, original[:, :4], q_weight), (k, original[:, 4:6], k_weight)):
        normed = ref.rms_norm(heads, weight)
        expected = ref.rotate(normed, cos_sin, positions, layout)
        addend = np.abs(normed).max(-1, keepdims=True) * np.abs(ref.real(cos_sin)).max()
        wide = F64 if dtype == F64 else F32
        allowed = 4.5 * ref.ulp(np.maximum(addend, np.abs(expected)), wide)
        if dtype in (F16, BF16):
            allowed = allowed + 0.51 * ref.ulp(expected, dtype)
        assert np.all(np.abs(ref.real(got) - expected) <= allowed)
    assert np.array_equal(qkv[:, 6 * dim :], before[:, 6 * dim :])


def test_qk_norm_rope_without_k_and_a_position_outside_the_table():
    q, cos_sin = values((3, 2, 8), F32), values((4, 8), F32, 1)
    assert rmsnorm.qk_norm_rope(q).shape == q.shape
    out = np.zeros_like(q)
    with pytest.raises(ValueError, match="the position of token 1 is 4; it must be from 0 to 3"):
        rmsnorm.qk_norm_rope(q, None, None, None, cos_sin, np.array([0, 4, 1], np.int32), q_out=out)
    assert not out.any()


QMAX = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}


@pytest.mark.parametrize("scaling", ["per_row", "per_group"])
@pytest.mark.parametrize("name", QMAX)
def test_rms_norm_quantize(name, scaling):
    x, weight = values((4, 300), BF16), values(300, BF16, 1)
    dtype = np.int8 if name == "int8" else getattr(ml_dtypes, name)
    out, scale = rmsnorm.rms_norm_quantize(x, weight, scaling=scaling, dtype=dtype)
    y = ref.rms_norm(x, weight).astype(F32)
    spans = [(0, 300)] if scaling == "per_row" else [(0, 128), (128, 256), (256, 300)]
    assert out.dtype == dtype and scale.shape == (4, len(spans)) and scale.dtype == F32
    for index, (first, last) in enumerate(spans):
        largest = np.abs(y[:, first:last]).max(-1)
        assert np.allclose(scale[:, index], largest / QMAX[name], rtol=1e-6)
        restored = out[:, first:last].astype(F32) * scale[:, index : index + 1]
        step = {"int8": scale[:, index : index + 1], "float8_e4m3fn": np.abs(y[:, first:last]) / 8 + 1e-2}.get(
            name, np.abs(y[:, first:last]) / 4 + 1e-2
        )
        assert np.all(np.abs(restored - y[:, first:last]) <= step * 0.51)


def test_quantize_of_zeros_and_static_and_power_of_two_scales():
    x = values((3, 64), F32)
    x[1] = 0
    out, scale = rmsnorm.rms_norm_quantize(x, power_of_two=True)
    assert not out[1].any() and scale[1, 0] == 1
    assert np.all(np.log2(scale) == np.rint(np.log2(scale)))
    static = rmsnorm.rms_norm_quantize(x, scaling="static", static_scale=0.5)
    assert static.dtype == np.int8 and np.array_equal(static, np.rint(rmsnorm.rms_norm(x) / np.float32(0.5)))


def test_add_rms_norm_quantize():
    x, residual = values((3, 64), BF16), values((3, 64), BF16, 1)
    out, total, scale = rmsnorm.add_rms_norm_quantize(x, residual)
    alone = rmsnorm.rms_norm_quantize(rmsnorm.add_rms_norm(x, residual)[1])
    assert np.array_equal(out, alone[0]) and np.array_equal(scale, alone[1])
    assert np.array_equal(total, rmsnorm.add_rms_norm(x, residual)[1])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rms_norm_channels(dtype):
    x, weight, bias = values((2, 6, 3, 5), dtype), values(6, dtype, 1), values(6, dtype, 2)
    last = np.moveaxis(x, 1, -1)
    expected = np.moveaxis(ref.rms_norm(last, weight, bias), -1, 1)
    addend = np.maximum(np.abs(expected - ref.real(bias)[:, None, None]), np.abs(ref.real(bias))[:, None, None])
    assert ulps(rmsnorm.rms_norm_channels(x, weight, bias), expected, scale=addend) <= (4 if dtype == F64 else 0.51)
    dy = values(x.shape, dtype, 3)
    dx, dweight, dbias = rmsnorm.rms_norm_channels_backward(dy, x, weight, dweight=True, dbias=True)
    rows_dx, rows_dweight, rows_dbias, scale = ref.rms_norm_backward(np.moveaxis(dy, 1, -1), last, weight)
    assert ulps(dx, np.moveaxis(rows_dx, -1, 1), scale=np.moveaxis(scale, -1, 1)) <= 4
    assert np.allclose(ref.real(dweight), rows_dweight, rtol=2.0**-7, atol=1e-2)
    assert np.allclose(ref.real(dbias), rows_dbias, rtol=2.0**-7, atol=1e-2)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_rms_norm(groups):
    x, weight = values((2, 6, 3, 5), F32), values(6, F32, 1)
    rows = ref.real(x).reshape(2, groups, -1)
    expected = (rows * ref.inv_rms(rows, 1e-6)).reshape(x.shape) * ref.real(weight)[:, None, None]
    assert ulps(rmsnorm.group_rms_norm(x, groups, weight), expected) <= 0.51
    dy = values(x.shape, F32, 2)
    dx, dweight = rmsnorm.group_rms_norm_backward(dy, x, groups, weight, dweight=True)
    weighted = ref.real(dy) * ref.real(weight)[:, None, None]
    expected_dx, _, _, scale = ref.rms_norm_backward(weighted.reshape(rows.shape), rows)
    assert ulps(dx, expected_dx.reshape(x.shape), scale=scale.max()) <= 4
    terms = ref.real(dy) * (rows * ref.inv_rms(rows, 1e-6)).reshape(x.shape)
    assert np.allclose(ref.real(dweight), terms.sum((0, 2, 3)), atol=1e-5)


def test_sharded_rms_norm_is_that_of_the_whole_row():
    x, dy, weight = values((5, 96), F32), values((5, 96), F32, 1), values(96, F32, 2)
    ranks = [slice(0, 32), slice(32, 96)]
    squares = rmsnorm.add_rank_sums(np.stack([rmsnorm.rms_sum_squares(x[:, r]) for r in ranks]))
    products = rmsnorm.add_rank_sums(np.stack([rmsnorm.rms_backward_sum(dy[:, r], x[:, r], weight[r]) for r in ranks]))
    out = np.concatenate([rmsnorm.rms_norm_apply(x[:, r], squares, 96, weight[r]) for r in ranks], -1)
    assert ulps(out, ref.rms_norm(x, weight)) <= 3
    parts = [
        rmsnorm.rms_norm_backward_apply(dy[:, r], x[:, r], squares, products, 96, weight[r], dweight=True)
        for r in ranks
    ]
    expected, expected_dweight, _, scale = ref.rms_norm_backward(dy, x, weight)
    assert ulps(np.concatenate([p[0] for p in parts], -1), expected, scale=scale) <= 4
    assert np.allclose(np.concatenate([p[1] for p in parts]), expected_dweight.astype(F32), atol=1e-5)


def test_sharded_layer_norm_is_that_of_the_whole_row():
    x, dy, weight = values((5, 96), F32) + np.float32(10), values((5, 96), F32, 1), values(96, F32, 2)
    ranks = [slice(0, 32), slice(32, 96)]

    def total(parts):
        return rmsnorm.add_rank_sums(np.stack(list(parts)))

    sums = total(rmsnorm.layer_sum(x[:, r]) for r in ranks)
    squares = total(rmsnorm.layer_sum_squares(x[:, r], sums, 96) for r in ranks)
    out = np.concatenate([rmsnorm.layer_norm_apply(x[:, r], sums, squares, 96, weight[r]) for r in ranks], -1)
    assert ulps(out, ref.layer_norm(x, weight)) <= 4
    pairs = [rmsnorm.layer_backward_sums(dy[:, r], x[:, r], sums, 96, weight[r]) for r in ranks]
    gradients, products = total(p[0] for p in pairs), total(p[1] for p in pairs)
    dx = [
        rmsnorm.layer_norm_backward_apply(dy[:, r], x[:, r], sums, squares, gradients, products, 96, weight[r])
        for r in ranks
    ]
    expected, _, _, scale = ref.layer_norm_backward(dy, x, weight)
    assert ulps(np.concatenate(dx, -1), expected, scale=scale) <= 4


def test_rank_sums_are_added_in_order():
    parts = np.array([[1e16, 1.0], [1.0, 2.0], [-1e16, 3.0]])
    total = rmsnorm.add_rank_sums(parts)
    assert total.shape == (2,) and total[0] == (1e16 + 1.0) - 1e16 and total[1] == 6
    with pytest.raises(ValueError, match="parts is not dense"):
        rmsnorm.add_rank_sums(parts[:, ::-1])
    with pytest.raises(TypeError, match="parts is f32; it must be f64"):
        rmsnorm.add_rank_sums(parts.astype(F32))
    with pytest.raises(ValueError, match="total is of another shape"):
        rmsnorm.add_rank_sums(parts, total=np.empty(3))
