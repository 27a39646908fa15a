"""Results against the same kernels through NumPy and against PyTorch's own formulas."""

import numpy as np
import pytest
import torch

import rmsnorm
import rmsnorm.torch as rt

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("shape", [(1, 64), (2, 3, 100), (500, 4096)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_bits_are_those_of_the_library(dtype, shape):
    x, weight, bias = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype), torch.randn(shape[-1]).to(dtype)
    out = torch.empty_like(x)
    rmsnorm.rms_norm(x, weight, bias, out=out)
    assert torch.equal(rt.rms_norm(x, weight, bias), out)
    rmsnorm.layer_norm(x, weight, bias, out=out)
    assert torch.equal(rt.layer_norm(x, weight, bias), out)


def test_threads_change_no_bit(two_threads):
    x, weight = torch.randn(2000, 1000, requires_grad=True), torch.randn(1000, requires_grad=True)
    out = rt.rms_norm(x, weight)
    gradients = torch.autograd.grad(out.square().sum(), (x, weight))
    torch.set_num_threads(1)
    alone = rt.rms_norm(x, weight)
    assert torch.equal(out, alone)
    for one, other in zip(gradients, torch.autograd.grad(alone.square().sum(), (x, weight)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_close_to_torch(dtype):
    x, weight, bias = torch.randn(5, 7, 96).to(dtype), torch.randn(96).to(dtype), torch.randn(96).to(dtype)
    torch.testing.assert_close(
        rt.rms_norm(x, weight, epsilon=1e-5), torch.nn.functional.rms_norm(x, (96,), weight, 1e-5)
    )
    torch.testing.assert_close(rt.layer_norm(x, weight, bias), torch.nn.functional.layer_norm(x, (96,), weight, bias))
    image = torch.randn(2, 6, 4, 5).to(dtype)
    torch.testing.assert_close(
        rt.rms_norm_channels(image, epsilon=1e-5),
        torch.nn.functional.rms_norm(image.movedim(1, -1), (6,), None, 1e-5).movedim(-1, 1),
    )


def test_type_of_the_result():
    x, weight = torch.randn(3, 64).bfloat16(), torch.randn(64)
    wide = rt.rms_norm(x, weight, dtype=torch.float32)
    assert wide.dtype == torch.float32 and torch.equal(wide.bfloat16(), rt.rms_norm(x, weight))
    # Llama's formula with a float32 weight: x * inv is rounded, the product is not.
    inner = rt.rms_norm(x)
    assert torch.equal(rt.rms_norm(x, weight, rounding="before_weight", dtype=torch.float32), inner.float() * weight)
    assert rt.layer_norm(x, weight, dtype=torch.float32).dtype == torch.float32


def test_layouts():
    packed = torch.randn(6, 24, 32)
    heads = packed[:, :16]
    assert torch.equal(rt.rms_norm(heads), rt.rms_norm(heads.contiguous()))
    assert torch.equal(rt.rms_norm(packed.transpose(0, 1)), rt.rms_norm(packed).transpose(0, 1))
    assert torch.equal(rt.rms_norm(packed.transpose(1, 2)), rt.rms_norm(packed.transpose(1, 2).contiguous()))
    assert torch.equal(rt.rms_norm(packed[..., ::2]), rt.rms_norm(packed[..., ::2].contiguous()))


def test_quantize_is_that_of_the_library():
    x = torch.randn(4, 300)
    for scaling, columns in (("per_row", 1), ("per_group", 3)):
        out, scale = rt.rms_norm_quantize(x, scaling=scaling)
        expected, expected_scale = rmsnorm.rms_norm_quantize(x, scaling=scaling)
        assert out.dtype == torch.int8 and scale.shape == (4, columns)
        assert np.array_equal(out.numpy(), expected) and np.array_equal(scale.numpy(), expected_scale)
    assert rt.rms_norm_quantize(x, scaling="static")[1] is None
    assert rt.rms_norm_quantize(x, dtype=torch.float8_e4m3fn)[0].dtype == torch.float8_e4m3fn


def test_add_quantize_is_that_of_the_library():
    x, residual = torch.randn(4, 300), torch.randn(4, 300)
    for scaling, columns in (("per_row", 1), ("per_group", 3)):
        out, total, scale = rt.add_rms_norm_quantize(x, residual, scaling=scaling)
        expected, expected_total, expected_scale = rmsnorm.add_rms_norm_quantize(x, residual, scaling=scaling)
        assert out.dtype == torch.int8 and scale.shape == (4, columns)
        assert np.array_equal(out.numpy(), expected) and np.array_equal(scale.numpy(), expected_scale)
        assert np.array_equal(total.numpy(), expected_total)
    out, total, scale = rt.add_rms_norm_quantize(x.bfloat16(), residual, scaling="static", norm_input="unrounded_sum")
    assert scale is None and total.dtype == torch.float32
    assert torch.equal(total, x.bfloat16().float() + residual)


def test_tensors_through_dlpack():
    """The NumPy interface takes tensors too, bfloat16 without ml_dtypes, and does not copy them."""
    x = torch.randn(3, 64).bfloat16()
    out = torch.zeros_like(x)
    assert rmsnorm.rms_norm(x, out=out) is out and torch.equal(out, rt.rms_norm(x))
    assert rmsnorm.rms_norm(torch.ones(2, 4)).shape == (2, 4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: rt.rms_norm(x, torch.ones(3)), ValueError, "rn_rms_norm: weight.shape"),
        (
            lambda x: rt.rms_norm(x, torch.ones(4).double()),
            TypeError,
            "rn_rms_norm: weight.type is f64; it must be f32",
        ),
        (lambda x: rt.rms_norm(x.int()), TypeError, "rn_rms_norm: "),
        (lambda x: rt.rms_norm(x.to(torch.uint8)), TypeError, "the type of a tensor is Byte"),
        (lambda x: rt.rms_norm(x, rounding="twice"), ValueError, "rounding is 'twice'; it must be 'once', 'before"),
        (lambda x: rt.rms_norm(x, epsilon=-1), ValueError, "options.epsilon is -1; it must be finite and 0 or more"),
        (lambda x: rt.rms_norm(torch.ones(())), ValueError, "x.rank is 0; it must be from 1 to 8"),
        (lambda x: rt.rms_norm(torch.ones(3, 0)), ValueError, "x.shape"),
        (lambda x: rt.add_rms_norm(x, x[:1]), ValueError, "rn_add_rms_norm: residual.shape"),
        (lambda x: rt.rms_norm([1.0]), RuntimeError, "Tensor"),
        (lambda x: rt.group_rms_norm(x, 0), ValueError, "group_rms_norm: groups is 0"),
        (lambda x: rt.group_rms_norm(torch.ones(1, 6, 2), 4), ValueError, "groups is 4"),
    ],
)
def test_mistakes(call, error, text):
    with pytest.raises(error) as caught:
        call(torch.ones(2, 4))
    assert text in str(caught.value)
