import torch, rmsnorm.torch
x = torch.tensor([[1, 2, 3, 4], [-1e30, 0, 1e30, 2e30]])
print(rmsnorm.torch.rms_norm(x, weight=torch.tensor([1.0, 1, 2, 2]), epsilon=1e-5))
