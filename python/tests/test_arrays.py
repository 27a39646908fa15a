"""What the functions take and give: strides, outputs, other producers of tensors, mistakes."""

import array
import re

import ml_dtypes
import numpy as np
import pytest

import rmsnorm
from reference import BF16, F16, F32, F64, values


class Tensor:
    """Another library's tensor: memory that only DLPack gives away."""

    def __init__(self, owner):
        self.owner = owner

    def __dlpack__(self, **arguments):
        return self.owner.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.owner.__dlpack_device__()


def strided(array):
    """The same numbers in rows with padding, axes in reverse order."""
    padded = np.full((*reversed(array.shape[:-1]), array.shape[-1] + 3), np.nan, array.dtype)
    view = padded.transpose(*reversed(range(array.ndim - 1)), array.ndim - 1)[..., : array.shape[-1]]
    view[...] = array
    return view


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
def test_strides(dtype):
    x, weight = values((2, 3, 4, 65), dtype), values(65, dtype, 1)
    dense = rmsnorm.rms_norm(x, weight)
    view = strided(x)
    assert not view.flags.c_contiguous
    assert np.array_equal(rmsnorm.rms_norm(view, weight), dense)
    out = strided(np.zeros_like(x))
    assert rmsnorm.rms_norm(view, weight, out=out) is out and np.array_equal(out, dense)
    assert np.all(np.isnan(out.base[..., 65:].astype(F32)))  # the padding
    assert np.array_equal(rmsnorm.rms_norm(x[::-1, ::2], weight), dense[::-1, ::2])
    assert np.array_equal(
        rmsnorm.rms_norm(np.broadcast_to(x[0], x.shape), weight), np.broadcast_to(dense[0], dense.shape)
    )


def test_in_place_has_the_same_bits():
    x, residual = values((5, 300), BF16), values((5, 300), BF16, 1)
    expected, total = rmsnorm.add_rms_norm(x, residual)
    out, residual_out = rmsnorm.add_rms_norm(x, residual, out=x, residual_out=residual)
    assert out is x and residual_out is residual
    assert np.array_equal(x, expected) and np.array_equal(residual, total)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_bl24_base_addresses_need_be_aligned_for_one_element_only(offset):
    x = values((4, 100), F32)
    shifted = np.empty(4 * 100 + offset, F32)[offset:].reshape(4, 100)
    shifted[...] = x
    assert np.array_equal(rmsnorm.rms_norm(shifted), rmsnorm.rms_norm(x))


def test_out_of_another_type():
    x = values((2, 64), BF16)
    out = np.empty((2, 64), F32)
    rmsnorm.rms_norm(x, out=out)
    assert np.array_equal(out.astype(BF16), rmsnorm.rms_norm(x))


@pytest.mark.parametrize("dtype", [F32, F16, F64], ids=str)
def test_dlpack(dtype):
    x, weight = values((3, 64), dtype), values(64, dtype, 1)
    expected = rmsnorm.rms_norm(x, weight)
    result = rmsnorm.rms_norm(Tensor(x), Tensor(weight))
    assert isinstance(result, np.ndarray) and np.array_equal(result, expected)
    memory = np.zeros_like(x)
    out = Tensor(memory)
    assert rmsnorm.rms_norm(Tensor(x[::2]), out=Tensor(memory[::2])) is not out
    assert np.array_equal(memory[::2], rmsnorm.rms_norm(x[::2])) and not memory[1].any()


def test_buffers():
    x = array.array("f", [1, 2, 3, 4])
    assert np.array_equal(rmsnorm.rms_norm(x), rmsnorm.rms_norm(np.array(x)))
    out = bytearray(16)
    rmsnorm.rms_norm(x, out=memoryview(out).cast("f"))
    assert np.array_equal(np.frombuffer(out, F32), rmsnorm.rms_norm(np.array(x)))


def test_subclasses_and_views_of_ndarray():
    x = values((3, 64), F32)
    mapped = x.view(np.recarray)
    assert np.array_equal(rmsnorm.rms_norm(mapped), rmsnorm.rms_norm(x))


def test_read_only():
    x = values((3, 64), F32)
    expected = rmsnorm.rms_norm(x)
    x.flags.writeable = False
    assert np.array_equal(rmsnorm.rms_norm(x), expected)
    for out in (x, Tensor(x)):
        with pytest.raises(ValueError, match="rms_norm: out is read-only; it must be an array that may be written to"):
            rmsnorm.rms_norm(np.ones((3, 64), F32), out=out)
    assert np.array_equal(rmsnorm.rms_norm(Tensor(x)), expected)


def test_bl38_inputs_are_never_changed():
    operands = [values((4, 64), F32, i) for i in range(3)] + [values(64, F32, 3)]
    before = [o.copy() for o in operands]
    x, residual, dy, weight = operands
    rmsnorm.rms_norm(x, weight)
    rmsnorm.add_layer_norm(x, residual, weight)
    rmsnorm.rms_norm_backward(dy, x, weight, dweight=True)
    rmsnorm.gated_rms_norm(x, residual, weight)
    assert all(np.array_equal(a, b) for a, b in zip(operands, before, strict=True))


def test_no_rows():
    for shape in [(0, 10), (1, 0, 10)]:
        assert rmsnorm.rms_norm(np.empty(shape, F32)).shape == shape


WRONG = [
    (lambda x: rmsnorm.rms_norm(x, out=np.empty((2, 5), F32)), ValueError,
     "rn_rms_norm: out.shape[1] is 5; it must be 4, the size of x.shape[1]"),
    (lambda x: rmsnorm.rms_norm(x, np.ones(3, F32)), ValueError,
     "rn_rms_norm: weight.shape[0] is 3; it must be 4, the size of x.shape[1]"),
    (lambda x: rmsnorm.rms_norm(x, np.ones(4)), TypeError,
     "rn_rms_norm: weight.type is f64; it must be f32, f16 or bf16 where x is f32"),
    (lambda x: rmsnorm.rms_norm(x.astype(np.int32)), TypeError,
     "rn_rms_norm: x.type is i32; it must be f32, f16, bf16 or f64"),
    (lambda x: rmsnorm.rms_norm(x, epsilon=-1), ValueError,
     "rn_rms_norm: options.epsilon is -1; it must be finite and 0 or more"),
    (lambda x: rmsnorm.rms_norm(x, partial=5), ValueError,
     "rn_rms_norm: options.partial is 5; it must be from 0 (all) to 4, the columns of x"),
    (lambda x: rmsnorm.rms_norm(x[:, ::2]), ValueError,
     "rn_rms_norm: x.strides[1] is 2; it must be 1 on the normalised axis"),
    (lambda x: rmsnorm.rms_norm(np.asfortranarray(x)), ValueError,
     "rn_rms_norm: x.strides[1] is 2; it must be 1 on the normalised axis"),
    (lambda x: rmsnorm.rms_norm(np.empty((3, 0), F32)), ValueError,
     "rn_rms_norm: x.shape[1] is 0; it must be from 1 to 2^31 on the normalised axis"),
    (lambda x: rmsnorm.rms_norm(np.empty((1,) * 9, F32)), ValueError,
     "rn_rms_norm: x.rank is 9; it must be from 1 to 8"),
    (lambda x: rmsnorm.rms_norm(np.ones(())), ValueError, "rn_rms_norm: x.rank is 0; it must be from 1 to 8"),
    (lambda x: rmsnorm.rms_norm(x.astype(np.uint8)), TypeError, "rms_norm: x is uint8; it must be f32, f16, bf16"),
    (lambda x: rmsnorm.rms_norm(x.astype(">f4")), TypeError, "rms_norm: x is >f4; it must be f32, f16, bf16"),
    (lambda x: rmsnorm.rms_norm(x.astype(ml_dtypes.float8_e3m4)), TypeError, "rms_norm: x is float8_e3m4"),
    (lambda x: rmsnorm.rms_norm([1.0, 2.0]), TypeError, "rms_norm: x is of type list; it must be a NumPy array"),
    (lambda x: rmsnorm.rms_norm(None), TypeError, "incompatible function arguments"),
    (lambda x: rmsnorm.rms_norm(x, rounding="twice"), ValueError,
     "rms_norm: rounding is 'twice'; it must be 'once', 'before_weight' or 'exact'"),
    (lambda x: rmsnorm.rms_norm(x, rounding=1), TypeError, "rms_norm: rounding is 1; it must be 'once'"),
    (lambda x: rmsnorm.rms_norm(x, threads=-1), ValueError, "threads is -1"),
    (lambda x: rmsnorm.rms_norm(x, epsilon="small"), TypeError, "incompatible function arguments"),
    (lambda x: rmsnorm.rms_norm(x, 1e-5), TypeError, "rms_norm: weight is of type float"),
    (lambda x: rmsnorm.add_rms_norm(x, x, residual_out=np.broadcast_to(x[:1], (2, 4))), ValueError, "read-only"),
    (lambda x: rmsnorm.add_rms_norm(x, x.copy(), out=x, residual_out=x), ValueError, "rn_add_rms_norm: "),
    (lambda x: rmsnorm.use_target("abacus"), RuntimeError,
     'rn_use_target: name is "abacus"; it must be a target that this machine can run'),
    (lambda x: rmsnorm.partial_columns(4, 0.0), ValueError, "partial_columns"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), WRONG, ids=[re.sub(r"\W+", "-", w[2])[:50] for w in WRONG])
def test_mistakes_are_refused_with_the_rule(call, error, text):
    x = np.arange(8, dtype=F32).reshape(2, 4)
    with pytest.raises(error, match=re.escape(text)):
        call(x)
    assert np.array_equal(x, np.arange(8, dtype=F32).reshape(2, 4))


def test_bytes_between_elements_are_refused():
    records = np.zeros(6, np.dtype([("a", np.float32), ("b", np.uint8)]))["a"].reshape(2, 3)
    with pytest.raises(ValueError, match="strides"):
        rmsnorm.rms_norm(records)
