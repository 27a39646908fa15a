import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
import transformers


@pytest.fixture(autouse=True, scope="session")
def small_and_quiet():
    torch.set_num_threads(1)  # the models are too small for more
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
