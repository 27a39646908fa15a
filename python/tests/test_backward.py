"""The backward norms against their formulas."""

import numpy as np
import pytest

import reference as ref
import rmsnorm
from reference import BF16, F16, F32, F64, TYPES, ulps, values

ROWS = [(1, 64), (3, 5, 100), (40, 257)]
DX_BUDGET = {F32: 4, F16: 1, BF16: 1, F64: 4}


def check_sum(got, expected, terms, dtype):
    """Within 1e-6 of the sum of absolute terms before the last rounding; float64: 4 ulp of the largest."""
    allowed = 4 * ref.ulp(terms.max(), F64) if dtype == F64 else terms * 1e-6 + 0.51 * ref.ulp(expected, dtype)
    assert got.dtype == dtype and np.all(np.abs(ref.real(got) - expected) <= allowed)


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"weight_offset": 1.0, "partial": 33}, {"epsilon_placement": "outside"}], ids=str
)
def test_rms_norm_backward(dtype, shape, options):
    dy, x, weight = values(shape, dtype), values(shape, dtype, 1), values(shape[-1], dtype, 2)
    dx, dweight, dbias = rmsnorm.rms_norm_backward(dy, x, weight, **options, dweight=True, dbias=True)
    names = {"weight_offset": "offset", "epsilon_placement": "placement", "partial": "partial"}
    formula_options = {names[name]: value for name, value in options.items()}
    expected, expected_dweight, expected_dbias, scale = ref.rms_norm_backward(dy, x, weight, **formula_options)
    assert ulps(dx, expected, scale=scale) <= DX_BUDGET[dtype]
    leading = tuple(range(x.ndim - 1))
    xhat = ref.rms_norm(x, **{k: v for k, v in formula_options.items() if k != "offset"})
    check_sum(dweight, expected_dweight, np.abs(ref.real(dy) * xhat).sum(leading), dtype)
    check_sum(dbias, expected_dbias, np.abs(ref.real(dy)).sum(leading), dtype)


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_layer_norm_backward(dtype, shape):
    dy, x, weight = values(shape, dtype), values(shape, dtype, 1), values(shape[-1], dtype, 2)
    dx, dweight, dbias = rmsnorm.layer_norm_backward(dy, x, weight, dweight=True, dbias=True)
    expected, expected_dweight, expected_dbias, scale = ref.layer_norm_backward(dy, x, weight)
    assert ulps(dx, expected, scale=scale) <= DX_BUDGET[dtype]
    leading = tuple(range(x.ndim - 1))
    check_sum(dweight, expected_dweight, np.abs(ref.real(dy) * ref.layer_norm(x)).sum(leading), dtype)
    check_sum(dbias, expected_dbias, np.abs(ref.real(dy)).sum(leading), dtype)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_add_norm_backward(dtype, kind):
    """The gradient through residual_out comes behind the norm's own."""
    shape = (4, 5, 96)
    dy, total, weight, through = (values(s, dtype, i) for i, s in enumerate([shape, shape, shape[-1:], shape]))
    function = getattr(rmsnorm, f"add_{kind}_norm_backward")
    dx, dresidual, dweight, dbias = function(dy, total, weight, through, dresidual=True, dweight=True, dbias=True)
    norm_dx, exact_dweight, exact_dbias, scale = getattr(ref, f"{kind}_norm_backward")(dy, total, weight)
    expected = norm_dx + ref.real(through)
    assert ulps(dx, expected, scale=np.maximum(scale, np.abs(ref.real(through)))) <= DX_BUDGET[dtype]
    assert np.array_equal(dx, dresidual)
    terms = np.abs(ref.real(dy) * getattr(ref, f"{kind}_norm")(total)).sum((0, 1))
    check_sum(dweight, exact_dweight, terms, dtype)
    check_sum(dbias, exact_dbias, np.abs(ref.real(dy)).sum((0, 1)), dtype)


def test_saved_statistics_are_used_as_given():
    dy, x = values((3, 64), F32), values((3, 64), F32, 1)
    _, inv = rmsnorm.rms_norm(x, inv_rms=True)
    own = rmsnorm.rms_norm_backward(dy, x)
    assert np.abs(rmsnorm.rms_norm_backward(dy, x, inv_rms=inv) - own).max() < 1e-6
    assert np.abs(rmsnorm.rms_norm_backward(dy, x, inv_rms=inv * 2) - own).max() > 0.1


def test_accumulate_adds_with_one_rounding():
    dy, x, weight = values((20, 64), BF16), values((20, 64), BF16, 1), values(64, BF16, 2)
    _, _, exact, _ = ref.rms_norm_backward(dy, x, weight)
    dbias = np.full(64, 100, BF16)
    result = rmsnorm.rms_norm_backward(dy, x, weight, accumulate=True, dbias=dbias)
    assert result[1] is dbias
    assert ulps(dbias, exact + 100) <= 0.51
    with pytest.raises(ValueError, match="dweight is True; it must be an array where accumulate is True"):
        rmsnorm.rms_norm_backward(dy, x, weight, accumulate=True, dweight=True)


@pytest.mark.parametrize("order", ["last", "first"])
@pytest.mark.parametrize("groups", [1, 4])
def test_gated_rms_norm_backward(order, groups):
    """Against differences of the formula, in long double."""
    dy, x, gate = (values((3, 32), F64, i) for i in range(3))
    weight = values(32, F64, 3)
    options = {"order": order, "groups": groups}
    dx, dgate, dweight = rmsnorm.gated_rms_norm_backward(
        dy, x, gate, weight, gate_order=order, groups=groups, dgate=True, dweight=True
    )

    def loss(x, gate, weight):
        return (ref.real(dy) * ref.gated_rms_norm(x, gate, weight, **options)).sum()

    step = ref.REAL(1e-6)
    for position, gradient in enumerate((dx, dgate, dweight)):
        direction = values(gradient.shape, F64, 7 + position)
        arguments = [ref.real(x), ref.real(gate), ref.real(weight)]

        def moved(sign, position=position, arguments=arguments, direction=direction):
            changed = list(arguments)
            changed[position] = changed[position] + sign * step * direction
            parts = [ref.REAL(1) * each for each in changed]
            return loss_of(parts)

        def loss_of(parts):
            u = parts[0] * ref.silu(parts[1]) if order == "first" else parts[0]
            split = ref.grouped(u, groups)
            out = (split * ref.inv_rms(split, 1e-6)).reshape(x.shape) * parts[2]
            out = out * ref.silu(parts[1]) if order == "last" else out
            return (ref.real(dy) * out).sum()

        slope = (moved(1) - moved(-1)) / (2 * step)
        assert abs(slope - (ref.real(gradient) * direction).sum()) <= 1e-9 * np.abs(gradient * direction).sum()
    assert loss(x, gate, weight) != 0


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_gated_backward_of_narrow_types_is_that_of_f64(dtype):
    dy, x, gate, weight = (values(s, dtype, i) for i, s in enumerate([(6, 64), (6, 64), (6, 64), (64,)]))
    wide = rmsnorm.gated_rms_norm_backward(
        *(np.asarray(a, F64) for a in (dy, x, gate, weight)), dgate=True, dweight=True
    )
    for narrow, exact in zip(
        rmsnorm.gated_rms_norm_backward(dy, x, gate, weight, dgate=True, dweight=True), wide, strict=True
    ):
        scale = np.abs(exact).max()
        assert narrow.dtype == dtype
        assert ulps(narrow, ref.real(exact), scale=scale) <= {F32: 8, F16: 1, BF16: 1}[dtype]


def test_no_rows_give_zero_gradients():
    empty = np.empty((0, 8), F32)
    dx, dweight, dbias = rmsnorm.rms_norm_backward(empty, empty, dweight=True, dbias=True)
    assert dx.shape == (0, 8) and not dweight.any() and not dbias.any()
    kept = np.ones(8, F32)
    rmsnorm.rms_norm_backward(empty, empty, accumulate=True, dweight=kept)
    assert np.all(kept == 1)
