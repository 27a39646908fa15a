"""What the commands do with files: nothing of a model is replaced, an output is whole or absent."""

import signal
import subprocess
import time

import onnx
import pytest

from graph_tools import PROGRAM, USAGE, convert, decoder, rmsnorm

WRITING = ".after.onnx.rmsnorm-"  # the name of an output that is not finished begins with it


@pytest.fixture
def large(tmp_path):
    """Large enough to be caught at it: 67 MB."""
    path = tmp_path / "large.onnx"
    onnx.save(decoder(18, width=1024, blocks=4).model(), path)
    return path


def start(*arguments):
    return subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores it, and so does what that starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_of_two_at_once_one_wins(tmp_path, large):
    runs = [start("convert", large, tmp_path / "after.onnx") for _ in range(2)]
    said = [run.communicate(timeout=300)[1] for run in runs]
    assert sorted(run.returncode for run in runs) == [0, 4], said
    assert "exists" in "".join(said)
    assert rmsnorm("verify", large, tmp_path / "after.onnx", "--vectors", 1)["equal"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.onnx", "large.onnx"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_signal_in_the_middle_leaves_no_output(tmp_path, large, number):
    after = tmp_path / "after.onnx"
    for _ in range(20):  # until one is caught before it ends
        run = start("convert", large, after)
        deadline = time.monotonic() + 60
        while run.poll() is None and not any(path.name.startswith(WRITING) for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline
        run.send_signal(number)
        said = run.communicate(timeout=300)[1]
        if run.returncode != 0:
            break
        after.unlink()
    assert run.returncode == -number, said
    left = [path.name for path in tmp_path.iterdir() if path != large]
    assert all(name.startswith(WRITING) for name in left) and len(left) <= (number == signal.SIGKILL)


def test_a_drawing_replaces_drawings_alone(tmp_path):
    before, after, _ = convert(decoder(18).model(), tmp_path)
    bytes_before = before.read_bytes()
    assert "must not lie in" in rmsnorm("inspect", before, "--svg", before, code=USAGE)["stderr"]
    link = tmp_path / "link.svg"
    link.symlink_to(before)
    assert "must not lie in" in rmsnorm("inspect", before, "--svg", link, code=USAGE)["stderr"]
    assert "is no drawing" in rmsnorm("inspect", before, "--svg", after, code=USAGE)["stderr"]
    assert before.read_bytes() == bytes_before
    drawing = tmp_path / "streams.svg"
    for _ in range(2):
        rmsnorm("inspect", before, "--svg", drawing)
        assert drawing.read_text().startswith("<svg")
    both = rmsnorm("inspect", before, "--svg", drawing, "--report", tmp_path / "." / "streams.svg", code=USAGE)
    assert "is no report" in both["stderr"]
    new = tmp_path / "new"
    assert "two files" in rmsnorm("inspect", before, "--svg", new, "--report", new, code=USAGE)["stderr"]
    assert not new.exists()


def test_a_directory_and_a_file_are_not_compared(tmp_path):
    before, _, _ = convert(decoder(18).model(), tmp_path)
    for pair in ((before, tmp_path), (tmp_path, before)):
        assert "both be one or the other" in rmsnorm("verify", *pair, code=USAGE)["stderr"]
