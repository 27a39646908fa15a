"""torch.func and forward mode: against the operator called slice by slice, and against reverse mode."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import cases
import rmsnorm.torch as rt
from test_gradients import flat

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def call(name):
    function, tensors = cases.calls(grad=False)[name]
    return function, tensors


def total(function):
    """A number that depends on every output."""

    def run(*tensors):
        return sum(
            (output * torch.linspace(1, 2, output.numel()).reshape(output.shape)).sum()
            for output in flat(function(*tensors))
        )

    return run


def assert_same(got, expected):
    for one, other in zip(flat(got), flat(expected), strict=True):
        torch.testing.assert_close(one, other, **TIGHT)


@pytest.mark.parametrize("name", cases.NAMES)
def test_gradient(name):
    function, tensors = call(name)
    got = grad(total(function), argnums=tuple(range(len(tensors))))(*tensors)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    assert_same(got, torch.autograd.grad(total(function)(*leaves), leaves))


@pytest.mark.parametrize("name", cases.NAMES)
def test_tangent(name):
    """Forward mode is the transpose of reverse mode: <v, J t> = <J' v, t>; by torch.func and by dual numbers."""
    function, tensors = call(name)
    tangents = tuple(torch.randn_like(tensor) for tensor in tensors)
    outputs, pushed = jvp(lambda *t: flat(function(*t)), tensors, tangents)
    assert_same(outputs, flat(function(*tensors)))
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    made = flat(function(*leaves))
    cotangents = [torch.randn_like(output) for output in made]
    pulled = torch.autograd.grad(made, leaves, cotangents)
    forward = sum((c * p).sum() for c, p in zip(cotangents, pushed, strict=True))
    backward = sum((g * t).sum() for g, t in zip(pulled, tangents, strict=True))
    torch.testing.assert_close(forward, backward, rtol=1e-9, atol=1e-9)
    with forward_ad.dual_level():
        dual = [forward_ad.make_dual(x, t) for x, t in zip(tensors, tangents, strict=True)]
        assert_same(tuple(forward_ad.unpack_dual(output).tangent for output in flat(function(*dual))), pushed)


@pytest.mark.parametrize("name", cases.NAMES)
def test_batches(name):
    """All arguments in batches, along different axes; then one at a time."""
    function, tensors = call(name)
    size = 3
    batched = [torch.stack([tensor + i for i in range(size)]) for tensor in tensors]
    slices = [flat(function(*(b[i] for b in batched))) for i in range(size)]
    expected = tuple(torch.stack(outputs) for outputs in zip(*slices, strict=True))
    assert_same(vmap(function)(*batched), expected)
    last = [b.movedim(0, -1) for b in batched]
    assert_same(vmap(function, in_dims=-1)(*last), expected)
    for which in range(len(tensors)):
        given = [batched[k] if k == which else tensor for k, tensor in enumerate(tensors)]
        dims = tuple(0 if k == which else None for k in range(len(tensors)))
        slices = [flat(function(*(t[i] if k == which else t for k, t in enumerate(given)))) for i in range(size)]
        expected_one = tuple(torch.stack(outputs) for outputs in zip(*slices, strict=True))
        assert_same(vmap(function, in_dims=dims)(*given), expected_one)


@pytest.mark.parametrize("name", cases.NAMES)
def test_gradients_of_each_sample(name):
    function, tensors = call(name)
    batched = [torch.stack([tensor, tensor + 0.5]) for tensor in tensors]
    argnums = tuple(range(len(tensors)))
    got = vmap(grad(total(function), argnums=argnums))(*batched)
    slices = [grad(total(function), argnums=argnums)(*(b[i] for b in batched)) for i in range(2)]
    assert_same(got, tuple(torch.stack(one) for one in zip(*slices, strict=True)))


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "gated_rms_norm", "group_rms_norm"])
def test_jacobians(name):
    function, tensors = call(name)
    forward, reverse = jacfwd(function)(*tensors), jacrev(function)(*tensors)
    torch.testing.assert_close(forward, reverse, **TIGHT)
    leaf = tensors[0].clone().requires_grad_()
    old = torch.autograd.functional.jacobian(lambda x: function(x, *tensors[1:]), leaf, vectorize=True)
    torch.testing.assert_close(old, reverse, **TIGHT)


def test_second_derivatives():
    x, w = cases.tensor(2, 4, grad=False), cases.tensor(4, grad=False)

    def loss(x):
        return total(rt.rms_norm)(x, w)

    torch.testing.assert_close(hessian(loss)(x), torch.autograd.functional.hessian(loss, x), **TIGHT)


def test_the_kernel_stays_under_vmap(monkeypatch):
    """The bits are the kernel's, bf16 rounded before the weight; the formula rounds once."""
    x = torch.randn(5, 7, 64).to(torch.bfloat16)
    w = torch.randn(64).to(torch.bfloat16)
    got = vmap(lambda one: rt.rms_norm(one, w, rounding="before_weight"))(x)
    assert got.equal(rt.rms_norm(x, w, rounding="before_weight"))
    assert not got.equal(rt.rms_norm(x, w))


def test_module_in_an_ensemble():
    """Stacked parameters of several modules, as torch.func.stack_module_state makes them."""
    norms = [rt.LayerNorm(6, dtype=torch.float64) for _ in range(3)]
    for norm in norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    parameters, buffers = torch.func.stack_module_state(norms)
    x = torch.randn(4, 6, dtype=torch.float64)
    got = vmap(lambda p, b: functional_call(norms[0], (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(got, torch.stack([norm(x) for norm in norms]), **TIGHT)
