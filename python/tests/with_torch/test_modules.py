"""Modules beside torch.nn's: parameters, copies, files, processes, threads."""

import copy
import io
import pickle
import subprocess
import sys
import threading

import pytest
import torch

import rmsnorm.torch as rt

PAIRS = [
    (rt.RMSNorm, torch.nn.RMSNorm, {"eps": 1e-6}),
    (rt.LayerNorm, torch.nn.LayerNorm, {}),
    (rt.LayerNorm, torch.nn.LayerNorm, {"bias": False}),
    (rt.LayerNorm, torch.nn.LayerNorm, {"elementwise_affine": False}),
    (rt.RMSNorm, torch.nn.RMSNorm, {"eps": 1e-5, "elementwise_affine": False}),
]


@pytest.mark.parametrize("shape", [8, (8,), (3, 8), (2, 3, 8)])
@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
def test_in_place_of_torch_nn(ours, theirs, options, shape):
    module, other = ours(shape, **options), theirs(shape, **options)
    assert list(module.state_dict()) == list(other.state_dict())
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    module.load_state_dict(other.state_dict())
    other.load_state_dict(module.state_dict())
    x = torch.randn(4, 2, 3, 8, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    out, expected = module(x), other(y)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)


def test_wrong_shape():
    with pytest.raises(ValueError, match=r"RMSNorm: the shape of x is \(2, 7\); it must end with \(8,\)"):
        rt.RMSNorm(8)(torch.ones(2, 7))


def test_weight_offset_starts_from_zero():
    norm = rt.RMSNorm(8, weight_offset=1)
    assert not norm.weight.any()
    x = torch.randn(2, 8)
    assert torch.equal(norm(x), rt.rms_norm(x)) and "weight_offset=1" in repr(norm)


def all_modules():
    return [rt.RMSNorm(8, rounding="before_weight"), rt.LayerNorm(8), rt.AddRMSNorm(8), rt.AddLayerNorm(8),
            rt.GatedRMSNorm(8, groups=2)]  # fmt: skip


def outputs(module, x):
    return module(x) if type(module) in (rt.RMSNorm, rt.LayerNorm) else module(x, x * 2)


@pytest.mark.parametrize("index", range(5))
def test_copies_and_files(index):
    module = all_modules()[index]
    torch.nn.init.normal_(module.weight)
    x = torch.randn(3, 8)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copies = [
        copy.copy(module),
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(file, weights_only=False),
    ]
    expected = outputs(module, x)
    for other in copies:
        torch.testing.assert_close(outputs(other, x), expected, rtol=0, atol=0)
        assert repr(other) == repr(module)
    state = io.BytesIO()
    torch.save(module.state_dict(), state)
    state.seek(0)
    fresh = all_modules()[index]
    fresh.load_state_dict(torch.load(state))
    torch.testing.assert_close(outputs(fresh, x), expected, rtol=0, atol=0)


def test_module_is_moved_to_another_type():
    norm = rt.LayerNorm(8).to(torch.bfloat16)
    assert norm(torch.randn(2, 8).bfloat16()).dtype == torch.bfloat16
    assert rt.GatedRMSNorm(8, dtype=torch.float64).weight.dtype == torch.float64


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return rt.rms_norm(torch.full((512, 1024), float(index + 1)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(method, two_threads):
    rt.rms_norm(torch.ones(2048, 1024))  # PyTorch's threads run in the parent
    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context=method, timeout=60)
    count = 0
    for batch in loader:
        torch.testing.assert_close(batch, torch.ones(1, 512, 1024))
        count += 1
    assert count == 8


def test_eight_threads_at_once():
    x, weight = torch.randn(64, 2048), torch.randn(2048)
    expected = rt.layer_norm(x, weight)
    failed = []

    def work():
        for _ in range(10):
            y = x.clone().requires_grad_()
            out = rt.layer_norm(y, weight)
            out.sum().backward()
            if not torch.equal(out, expected) or y.grad is None:
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


PEAK = """
import resource, torch, rmsnorm.torch as rt
torch.set_num_threads(1)
weight = torch.ones(8192, requires_grad=True)
rt.rms_norm(torch.ones(64, 8192).bfloat16(), weight).sum().backward()
x = torch.ones(4096, 8192).bfloat16().requires_grad_()
dy = torch.ones(4096, 8192).bfloat16()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rt.rms_norm(x, weight).backward(dy)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_bl57_copies_in_float32():
    """Tensors of 64 MiB in bfloat16: one for the result, one for the gradient, and nothing else of that size."""
    child = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    assert int(child.stdout) < (2 * 64 + 24) << 10


def test_bl51_threads_lose_updates_of_dweight():
    x, dy = torch.randn(4096, 96), torch.randn(4096, 96)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 4, 8):
            torch.set_num_threads(threads)
            for _ in range(10):
                weight = torch.ones(96, requires_grad=True)
                rt.rms_norm(x, weight).backward(dy)
                results.append(weight.grad)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_training_moves_the_weights():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), rt.RMSNorm(8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model[1].weight.detach().clone()
    losses = []
    x, y = torch.randn(64, 8), torch.randn(64, 1)
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and not torch.equal(model[1].weight, before)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing(use_reentrant):
    norm, x = rt.RMSNorm(8), torch.randn(3, 8, requires_grad=True)
    torch.utils.checkpoint.checkpoint(norm, x, use_reentrant=use_reentrant).square().sum().backward()
    first = x.grad.clone()
    x.grad = None
    norm(x).square().sum().backward()
    assert torch.equal(first, x.grad)
