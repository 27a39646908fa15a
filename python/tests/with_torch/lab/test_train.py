"""`rmsnorm-lab train`: killed at any moment it is taken up to the same bits; over MPI it agrees with itself."""

import random
import shutil
import signal
import subprocess
import time

import pytest
from lab_program import SMALL, call, line_of, refusal, succeed
from safetensors import safe_open

KEPT = (*SMALL, "--steps", 60, "--checkpoint-every", 2)


def kept_tensors(run):
    with safe_open(run / "checkpoint.safetensors", "np") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}


def without_times(report):
    return [(step["step"], step["loss"], step["gradient_norm"]) for step in report["steps"]], report["evaluations"]


def test_killed_at_a_random_moment(tmp_path):
    plain = succeed("train", *KEPT, "--checkpoint", tmp_path / "plain")
    start = time.monotonic()
    succeed("train", *KEPT, "--checkpoint", tmp_path / "timed")
    whole = time.monotonic() - start
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    kills = 0
    for _ in range(3):
        process = subprocess.Popen(
            line_of("train", *KEPT, "--checkpoint", tmp_path / "killed"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(draw.uniform(0.2, 0.9) * whole)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    resumed = succeed("train", *KEPT, "--checkpoint", tmp_path / "killed")
    assert kills > 0, f"seed {seed}: every run ended before it was killed"
    assert without_times(resumed) == without_times(plain), f"seed {seed}"
    assert kept_tensors(tmp_path / "killed") == kept_tensors(tmp_path / "plain"), f"seed {seed}"
    assert [file.name for file in (tmp_path / "killed").iterdir()] == ["checkpoint.safetensors"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    run = tmp_path / "run"
    succeed("train", *SMALL, "--steps", 2, "--checkpoint", run)
    assert "seed" in refusal(3, "train", *SMALL, "--steps", 2, "--checkpoint", run, "--seed", 2)
    assert "identity" in refusal(3, "train", *SMALL, "--steps", 2, "--checkpoint", run, "--epsilon", 1e-3)


@pytest.mark.parametrize(
    ("code", "arguments", "part"),
    [
        (2, ("--model", "bert"), "--model"),
        (3, ("--norm", "rms"), "rms_norm"),
        (3, ("--width", 33), "width is 33"),
        (2, ("--model", "gpt2", "--untied"), "--untied"),
        (2, ("--batch", 0), "batch is 0"),
        (2, ("--mpi", "rows"), "--mpi"),
        (4, ("--data", "missing.txt"), "missing.txt"),
    ],
)
def test_bad_options(code, arguments, part):
    assert part in refusal(code, "train", *arguments)


def test_a_run_that_diverges_says_so():
    done = call(line_of("train", *SMALL, "--steps", 50, "--learning-rate", 1e30, "--clip", 0, "--norm", "none"))
    assert done.returncode == 5, done.stderr
    assert "not finite" in done.stderr


def test_help_has_an_example():
    for command in ("train", "generate", "export"):
        text = call(line_of(command, "--help")).stdout
        assert f"rmsnorm-lab {command} " in text.split("Example")[1]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
@pytest.mark.parametrize("split", ["data", "hidden"])
def test_two_processes_agree_with_one(split, tmp_path):
    run = (*SMALL, "--steps", 20)
    launcher = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
    plain = succeed("train", *run)
    parallel = succeed("train", *run, "--mpi", split, "--out", tmp_path / "out", launcher=launcher)
    for one, two in zip(plain["steps"], parallel["steps"], strict=True):
        assert abs(one["loss"] - two["loss"]) < 1e-4
    assert parallel["processes"] == 2
    sent = parallel["sent_in_a_step"]
    if split == "data":
        # Every gradient in f32, once, for the tokens of a step.
        assert sent["gradients"]["bytes_per_token"] == plain["parameters"] * 4 / (8 * 32)
        assert "norms" not in sent
    else:
        # Two norms a block and one more, forward and backward, an f64 number each.
        assert sent["norms"] == {"rounds": 10, "bytes_per_token": 80.0}
        assert "gradients" not in sent
    assert succeed("generate", tmp_path / "out", "--prompt", "Call", "--tokens", 5)["text"]
