"""Norms of rows split over the ranks of a process group, against the norms of whole rows."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.autograd import gradcheck

import rmsnorm.torch as rt

ROWS, WIDTHS = 5, (3, 8, 6)
COLS = sum(WIDTHS)
NORMS = {
    "rms_norm": (rt.rms_norm, rt.sharded_rms_norm, {}),
    "rms_norm 1 + weight, outside": (
        rt.rms_norm,
        rt.sharded_rms_norm,
        {"weight_offset": 1.0, "epsilon_placement": "outside", "epsilon": 0.1},
    ),
    "layer_norm": (rt.layer_norm, rt.sharded_layer_norm, {}),
    "layer_norm 1 + weight": (rt.layer_norm, rt.sharded_layer_norm, {"weight_offset": 1.0, "epsilon": 0.1}),
}


def problem(dtype):
    torch.manual_seed(1)
    x = torch.randn(2, ROWS, COLS, dtype=torch.float64) + 3
    vectors = [torch.randn(COLS, dtype=torch.float64) for _ in range(2)]
    return [value.to(dtype).requires_grad_() for value in (x, *vectors)], torch.randn_like(x).to(dtype)


def columns(tensor, rank):
    first = sum(WIDTHS[:rank])
    return tensor[..., first : first + WIDTHS[rank]]


def results(norm, inputs, dy, **options):
    out = norm(*inputs, **options)
    return [out.detach(), *torch.autograd.grad(out, inputs, dy)]


def on_a_rank(rank, ranks, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        inputs, dy = problem(dtype)
        mine = [columns(value.detach(), rank).requires_grad_() for value in inputs]
        for name, (_, sharded, options) in NORMS.items():
            found = results(sharded, mine, columns(dy, rank), total_cols=COLS, **options)
            torch.save(found, f"{folder}/{name}-{dtype}-{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("ranks"))
    multiprocessing.spawn(on_a_rank, (len(WIDTHS), path), nprocs=len(WIDTHS))
    return path


# Of the largest number of a tensor: gradients have terms that cancel.
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-14), (torch.float32, 5e-7), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("name", NORMS)
def test_slices_together_are_the_whole(folder, name, dtype, error):
    whole, _, options = NORMS[name]
    inputs, dy = problem(dtype)
    expected = results(whole, [value.detach().double().requires_grad_() for value in inputs], dy.double(), **options)
    parts = [torch.load(f"{folder}/{name}-{dtype}-{rank}") for rank in range(len(WIDTHS))]
    for found, exact in zip(zip(*parts, strict=True), expected, strict=True):
        together = torch.cat(found, -1)
        assert together.dtype == dtype
        assert (together.double() - exact).abs().max() <= error * exact.abs().max()


def alone(sums):
    return sums.clone()


@pytest.mark.parametrize("name", NORMS)
def test_gradcheck_of_a_slice_that_is_the_whole(name):
    _, sharded, options = NORMS[name]
    inputs, _ = problem(torch.float64)
    assert gradcheck(lambda *tensors: sharded(*tensors, total_cols=COLS, total=alone, **options), inputs)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
@pytest.mark.parametrize("name", NORMS)
def test_gradients_that_are_not_wanted(name, wanted):
    _, sharded, options = NORMS[name]
    inputs, dy = problem(torch.float64)
    every = results(sharded, inputs, dy, total_cols=COLS, total=alone, **options)[1:]
    some = [value.detach().requires_grad_(want) for value, want in zip(inputs, wanted, strict=True)]
    sharded(*some, total_cols=COLS, total=alone, **options).backward(dy)
    for value, gradient, want in zip(some, every, wanted, strict=True):
        assert torch.equal(value.grad, gradient) if want else value.grad is None


def test_without_parameters():
    (x, _, _), _ = problem(torch.float32)
    squares = rt.sharded_rms_norm(x, total_cols=COLS, total=alone)
    assert torch.equal(squares, rt.rms_norm(x))
    squares.sum().backward()
    assert x.grad is not None


def test_errors():
    (x, weight, _), dy = problem(torch.float32)
    with pytest.raises(ValueError, match="total_cols is 3"):
        rt.sharded_rms_norm(x, weight, total_cols=3, total=alone)
    with pytest.raises(ValueError, match="total_cols is 3"):
        rt.sharded_layer_norm(x, weight, total_cols=3, total=alone)
    with pytest.raises(ValueError, match="'somewhere'; it must be 'inside' or 'outside'"):
        rt.sharded_rms_norm(x, weight, total_cols=COLS, total=alone, epsilon_placement="somewhere")
    with pytest.raises(ValueError, match="sum_squares"):
        rt.sharded_rms_norm(x, weight, total_cols=COLS, total=lambda sums: sums[:1])
    for _, sharded, _ in NORMS.values():
        out = sharded(x, weight, total_cols=COLS, total=alone)
        with pytest.raises(RuntimeError, match="create_graph is True; it must be False"):
            torch.autograd.grad(out, x, dy, create_graph=True)


def test_compiled_it_is_called_as_it_is():
    (x, weight, _), _ = problem(torch.float32)

    def model(x):
        return rt.sharded_rms_norm(x * 2, weight, total_cols=COLS, total=alone) + 1

    assert torch.equal(torch.compile(model, backend="eager")(x), model(x))


def test_the_example():
    example = pathlib.Path(__file__).parents[3] / "examples/sharded_pytorch.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == 0, run.stderr
    start, rest = run.stdout.split(": within ")
    assert start == "2 ranks, 2048 columns each" and float(rest.split()[0]) <= 5e-7
