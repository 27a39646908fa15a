"""torchrun --nproc-per-node 2 examples/sharded_pytorch.py: each rank holds a part of the columns of every row."""

import torch
import torch.distributed as dist

import rmsnorm.torch

dist.init_process_group("gloo")
rank, ranks, cols = dist.get_rank(), dist.get_world_size(), 4096

whole = torch.randn(8, cols, generator=torch.Generator().manual_seed(1))
mine = whole.chunk(ranks, -1)[rank].clone().requires_grad_()
out = rmsnorm.torch.sharded_rms_norm(mine, total_cols=cols)
out.square().mean().backward()

difference = (out - rmsnorm.torch.rms_norm(whole).chunk(ranks, -1)[rank]).abs().max().detach()
dist.all_reduce(difference, dist.ReduceOp.MAX)
if rank == 0:
    print(f"{ranks} ranks, {mine.shape[-1]} columns each: within {difference.item():.0e} of the norm of whole rows")
dist.destroy_process_group()
