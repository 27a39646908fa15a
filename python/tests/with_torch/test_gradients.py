"""Gradients against differences, fused against formula, and which of them exist."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import cases
import rmsnorm.torch as rt


@pytest.mark.parametrize("name", cases.NAMES)
def test_gradcheck(name):
    function, tensors = cases.calls()[name]
    assert gradcheck(function, tensors)


@pytest.mark.parametrize("name", cases.NAMES)
def test_gradgradcheck(name):
    function, tensors = cases.calls()[name]
    assert gradgradcheck(function, tensors)


def flat(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


@pytest.mark.parametrize("name", cases.NAMES)
def test_fused_gradients_are_those_of_the_formula(name):
    function, tensors = cases.calls()[name]
    outputs = flat(function(*tensors))
    weights = [torch.randn_like(output) for output in outputs]
    fused = torch.autograd.grad(outputs, tensors, weights, retain_graph=True)
    formula = torch.autograd.grad(outputs, tensors, weights, create_graph=True)
    for one, other in zip(fused, formula, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", cases.NAMES)
def test_narrow_gradients_are_close_to_those_of_f64(name, dtype):
    function, tensors = cases.calls(dtype)[name]
    wide = tuple(tensor.detach().double().requires_grad_() for tensor in tensors)
    outputs, wide_outputs = flat(function(*tensors)), flat(function(*wide))
    weights = [torch.randn_like(output) for output in outputs]
    gradients = torch.autograd.grad(outputs, tensors, weights)
    exact = torch.autograd.grad(wide_outputs, wide, [weight.double() for weight in weights])
    step = torch.finfo(dtype).eps
    for tensor, gradient, wide_gradient in zip(tensors, gradients, exact, strict=True):
        assert gradient.dtype == dtype and gradient.shape == tensor.shape
        assert (gradient.double() - wide_gradient).abs().max() <= 8 * step * wide_gradient.abs().max().clamp(min=1)


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("wanted", ["x", "w", "b", "xwb", "xw", "wb"])
@pytest.mark.parametrize("norm", [rt.rms_norm, rt.layer_norm])
def test_bl47_the_fast_path_cuts_gradients(norm, wanted, contiguous):
    """Every gradient that is asked for exists and is right, on every path."""
    x = torch.randn(4, 8, dtype=torch.float64) if contiguous else torch.randn(8, 4, dtype=torch.float64).T
    tensors = {"x": x, "w": torch.randn(8, dtype=torch.float64), "b": torch.randn(8, dtype=torch.float64)}
    for key in wanted:
        tensors[key] = tensors[key].detach().requires_grad_()
    out = norm(*tensors.values())
    out.square().sum().backward()
    copies = {key: value.detach().clone().contiguous().requires_grad_() for key, value in tensors.items()}
    native = torch.nn.functional.rms_norm if norm is rt.rms_norm else torch.nn.functional.layer_norm
    if norm is rt.rms_norm:
        reference = native(copies["x"], (8,), copies["w"], 1e-6) + copies["b"]
    else:
        reference = native(copies["x"], (8,), copies["w"], copies["b"], 1e-5)
    reference.square().sum().backward()
    for key, value in tensors.items():
        assert (value.grad is not None) == (key in wanted)
        if key in wanted:
            torch.testing.assert_close(value.grad, copies[key].grad)


def test_bl46_gradient_of_the_residual_stream_is_added_behind_the_norm():
    x, residual = cases.tensor(3, 8), cases.tensor(3, 8)
    out, total = rt.add_rms_norm(x, residual)
    dy, through = torch.randn_like(out), torch.randn_like(out)
    only_total = torch.autograd.grad(total, (x, residual), through, retain_graph=True)
    only_out = torch.autograd.grad(out, (x, residual), dy, retain_graph=True)
    both = torch.autograd.grad((out, total), (x, residual), (dy, through))
    for gradient, first, second in zip(both, only_total, only_out, strict=True):
        assert torch.equal(first, through)
        torch.testing.assert_close(gradient, first + second)


def test_a_stream_in_float32_beside_bfloat16():
    x, residual = cases.tensor(4, 16, dtype=torch.bfloat16), cases.tensor(4, 16, dtype=torch.float32)
    weight = cases.tensor(16, dtype=torch.float32)
    out, total = rt.add_rms_norm(x, residual, weight)
    assert out.dtype == torch.bfloat16 and total.dtype == torch.float32
    (out.float().sum() + total.sum()).backward()
    assert (x.grad.dtype, residual.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    torch.testing.assert_close(x.grad, residual.grad.bfloat16())


def test_bl39_backward_leaves_its_input_alone():
    x = cases.tensor(4, 8)
    out = rt.rms_norm(x)
    dy = torch.randn_like(out)
    before = dy.clone()
    first = torch.autograd.grad(out, x, dy, retain_graph=True)[0]
    second = torch.autograd.grad(out, x, dy)[0]
    assert torch.equal(first, second) and torch.equal(dy, before)


def test_gradients_that_repeat_a_number():
    """sum() hands back a gradient of stride 0."""
    x = cases.tensor(4, 8)
    rt.layer_norm(x * 2, torch.arange(8.0, dtype=torch.float64)).sum().backward()
    assert x.grad.abs().max() > 0


def test_the_table_of_the_rotation_has_no_gradient():
    with pytest.raises(ValueError, match="cos_sin requires a gradient"):
        rt.qk_norm_rope(torch.ones(2, 1, 4), torch.ones(2, 1, 4), None, None, torch.ones(2, 4, requires_grad=True))


def test_no_rows():
    x, weight = torch.empty(0, 8, requires_grad=True), torch.ones(8, requires_grad=True)
    rt.rms_norm(x, weight).sum().backward()
    assert x.grad.shape == (0, 8) and not weight.grad.any()
