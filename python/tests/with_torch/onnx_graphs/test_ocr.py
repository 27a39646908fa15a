"""A published text recogniser, on images of text."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from graph_tools import OCR_MODEL, REFUSED, convert, operators, rmsnorm, run

LINES = ["Call me Ishmael 1851", "RMSNorm", "a b", "0123456789", "Some years ago - never mind how long precisely"]
WIDTHS = (64, 96, 160, 320, 480, 640)


def picture(text, width, size):
    """As the recogniser wants it: 48 rows, colours from -1 to 1."""
    image = Image.new("RGB", (width, 48), (250, 248, 240))
    ImageDraw.Draw(image).text((4, 8), text, fill=(20, 20, 40), font=ImageFont.load_default(size))
    return (np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 127.5 - 1).astype(np.float32)


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-simplified"])
def test_recogniser(tmp_path, target):
    before, after, report = convert(OCR_MODEL, tmp_path, "--target", target)
    assert report["converted"] == len(report["norms"]) == 5
    assert (report["weights_centred"], report["biases_centred"], report["operations_inserted"]) == (4, 4, 1)
    assert report["constants_copied"] == 0
    assert sorted(norm["epsilon"] for norm in report["norms"]) == pytest.approx([1e-6, 1e-5, 1e-5, 1e-5, 1e-5])
    assert operators(after).count("Sub") == 1
    worst, read, yardstick = 0.0, set(), 0.0
    for width in WIDTHS:
        for text in LINES[: 3 if width < 320 else 5]:
            feeds = {"x": picture(text, width, 24)}
            a, b = run(before, feeds)[0], run(after, feeds)[0]
            worst = max(worst, float(np.abs(a - b).max()))
            if width == 320:  # what the runtime's own optimiser changes
                yardstick = max(yardstick, float(np.abs(a - run(before, feeds, optimise=False)[0]).max()))
            assert (a.argmax(-1) == b.argmax(-1)).all()
            read.update(a.argmax(-1).ravel().tolist())
    assert worst < 4e-6 and worst < yardstick, (worst, yardstick)
    assert len(read) > 15, "the images hold text that the recogniser reads"


def test_a_newer_operator_set_is_refused_with_advice(tmp_path):
    message = convert(OCR_MODEL, tmp_path, "--target", "onnx-rms23", code=REFUSED)[2]["refused"]["message"]
    assert "R12" in message and "--target onnx-plain" in message


def test_by_weights_alone_is_refused(tmp_path):
    refused = convert(OCR_MODEL, tmp_path, "--entry", "weights", code=REFUSED)[2]["refused"]
    assert refused["code"] == "R03" and "p2o.Mul.177" in refused["message"]


def test_inspection_names_writers_and_the_entry():
    streams = rmsnorm("inspect", OCR_MODEL)["streams"]
    assert [len(stream["writers"]) for stream in streams] == [8]
    assert "Mul" in streams[0]["operations"][0]["why"]
