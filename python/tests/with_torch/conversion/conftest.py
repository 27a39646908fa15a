import os
import tempfile

# Read when transformers is imported: copies of modeling_rmsnorm.py go there.
os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp(prefix="rmsnorm-modules-")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("RMSNORM_KERNELS", "0")  # f64 is compared with PyTorch's own arithmetic; test_program.py has both

import pytest
import torch
import transformers


@pytest.fixture(autouse=True, scope="session")
def small_and_quiet():
    torch.set_num_threads(1)  # the models are too small for more
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
