"""How fast converted models are: python python/bench/conversion_speed.py [--onnx] [NAMES..]

Models of transformers with a base model's widths and fewer layers, random parameters, one thread. In PyTorch: the
original, then the checkpoint that `rmsnorm convert` wrote in the stock class, in the class with RMSNorm on this
library's kernels, and in that class on PyTorch's own operators. In ONNX Runtime: the exported graph, then what `rmsnorm
convert` makes of it for each target. They take turns, in another order each round. Medians; of the conversions the
original's time divided by theirs: below 1.00 is a loss. `--prepare --graphs FOLDER` only writes the graphs, so that
nothing else runs while the times are taken.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests/with_torch"
TYPES = ("f32", "bf16")
WIDTH, HEADS, LAYERS, VOCABULARY = 768, 12, 4, 8192
LENGTHS = (128, 1)  # tokens
PICTURE = 224  # pixels
ONNX_OPSET = {"onnx-plain": 17, "onnx-simplified": 17, "onnx-rms23": 23}


def models() -> dict[str, Callable]:
    """By name: the class and its configuration."""
    import transformers as t

    decoder = {"vocab_size": VOCABULARY, "use_cache": False}
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    vision = {**sizes, "image_size": PICTURE, "patch_size": 16}
    wide = {**sizes, "intermediate_size": 4 * WIDTH, **decoder}
    siglip = {"vision_config": {**vision, "intermediate_size": 4 * WIDTH}}
    return {
        "gpt2": lambda: (t.GPT2LMHeadModel, t.GPT2Config(n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, **decoder)),
        "opt": lambda: (
            t.OPTForCausalLM,
            t.OPTConfig(**sizes, ffn_dim=4 * WIDTH, word_embed_proj_dim=WIDTH, **decoder),
        ),
        "gpt_neox": lambda: (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(**wide)),
        "phi": lambda: (t.PhiForCausalLM, t.PhiConfig(**wide)),
        "starcoder2": lambda: (t.Starcoder2ForCausalLM, t.Starcoder2Config(**wide, num_key_value_heads=2)),
        "bloom": lambda: (
            t.BloomForCausalLM,
            t.BloomConfig(hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS, **decoder),
        ),
        "vit": lambda: (t.ViTForImageClassification, t.ViTConfig(**vision)),
        "dinov2": lambda: (t.Dinov2ForImageClassification, t.Dinov2Config(**vision)),
        "siglip": lambda: (t.SiglipForImageClassification, t.SiglipConfig(**siglip)),
    }


def inputs(config) -> list[tuple[str, dict]]:
    import torch

    torch.manual_seed(0)
    if hasattr(config, "image_size") or hasattr(config, "vision_config"):
        return [(f"{PICTURE} x {PICTURE}", {"pixel_values": torch.randn(1, 3, PICTURE, PICTURE)})]
    ids = [torch.randint(0, VOCABULARY, (1, n)) for n in LENGTHS]
    return [(f"{n} token{'s' * (n > 1)}", {"input_ids": x}) for n, x in zip(LENGTHS, ids, strict=True)]


def medians(variants: list[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of each; they take turns, and the first of a round is another one each time."""
    for run in variants:
        run()
    times: list[list[float]] = [[] for _ in variants]
    for number in range(rounds):
        for step in range(len(variants)):
            which = (number + step) % len(variants)
            start = time.perf_counter()
            variants[which]()
            times[which].append(time.perf_counter() - start)
    return [statistics.median(one) for one in times]


def line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def ratios(seconds: list[float]) -> list[str]:
    return [f"{1e3 * seconds[0]:.2f}", *(f"{seconds[0] / other:.2f}" for other in seconds[1:])]


def in_pytorch(name: str, rounds: int) -> None:
    import torch

    from checkpoints import floating, randomise
    from program import rms_class, succeed
    from saving import TYPES as DTYPES

    model_class, config = models()[name]()
    for dtype in TYPES:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder, "source"), Path(folder, "out")
            model = model_class(config)
            randomise(model, name)
            model.to(DTYPES[dtype]).save_pretrained(source)
            succeed("convert", source, out)
            rms = rms_class(model_class.__name__, out)
            program = sys.modules[rms.__module__]
            kernels = program.KERNELS
            if kernels is None:
                raise SystemExit("conversion_speed: the package rmsnorm and its operators for PyTorch must be there")
            loaded = [c.from_pretrained(f).eval() for c, f in ((model_class, source), (model_class, out), (rms, out))]
            assert all(next(m.parameters()).dtype == DTYPES[dtype] for m in loaded)

            def forward(which: int, chosen: object, given: dict, loaded=loaded, program=program) -> Callable:
                def run():
                    program.KERNELS = chosen
                    return loaded[which](**given).logits

                return run

            for what, given in inputs(config):
                given = floating(given, DTYPES[dtype])
                with torch.inference_mode():
                    variants = [forward(w, k, given) for w, k in ((0, None), (1, None), (2, kernels), (2, None))]
                    seconds = medians(variants, rounds if what != "1 token" else 10 * rounds)
                line(name, dtype, what, *ratios(seconds))
            program.KERNELS = kernels


def graphs(name: str, folder: Path) -> dict[int, list[Path]]:
    """By operator set: the exported graph, then what `rmsnorm convert` makes of it for each target."""
    from graph_tools import rmsnorm
    from test_exported import export

    model_class, config = models()[name]()
    config._attn_implementation = "eager"
    given = inputs(config)[0][1]

    def family():
        import torch

        def pick(model, x):
            if "pixel_values" in given:
                return model(pixel_values=x).logits
            # With a mask: what transformers does without one, the exporter cannot write.
            return model(input_ids=x, attention_mask=torch.ones_like(x)).logits

        return model_class(config), pick, next(iter(given.values()))

    found = {}
    for opset in sorted(set(ONNX_OPSET.values())):
        source = folder / f"{name}-{opset}.onnx"
        targets = {t: folder / f"{name}-{t}.onnx" for t, o in ONNX_OPSET.items() if o == opset}
        if not source.exists():
            with contextlib.redirect_stdout(sys.stderr):  # the exporter talks
                export(family, source, opset > 17, opset)
        for target, path in targets.items():
            if not path.exists():
                rmsnorm("convert", source, path, "--target", target)
                rmsnorm("verify", source, path)
        found[opset] = [source, *targets.values()]
    return found


def in_onnx_runtime(name: str, rounds: int, folder: Path) -> None:
    from graph_tools import session

    what, given = inputs(models()[name]()[1])[0]
    feeds = {"x": next(iter(given.values())).numpy()}
    cells = []
    for paths in graphs(name, folder).values():
        sessions = [session(str(p), os.stat(p).st_mtime_ns, True) for p in paths]
        cells += ratios(medians([partial(s.run, None, feeds) for s in sessions], rounds))
    line(name, "f32", what, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the command line (default: build/release/rmsnorm)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--onnx", action="store_true", help="in ONNX Runtime instead of PyTorch")
    parser.add_argument("--graphs", help="with --onnx: the folder where they are kept; those that are there are taken")
    parser.add_argument("--prepare", action="store_true", help="with --onnx: write the graphs, measure nothing")
    parser.add_argument("names", nargs="*", help="families; default: all")
    chosen = parser.parse_args()
    if chosen.prepare and not chosen.graphs:
        parser.error("--prepare needs --graphs")
    if chosen.program:
        os.environ["RMSNORM_PROGRAM"] = str(Path(chosen.program).resolve())
    os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp(prefix="rmsnorm-modules-")
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path[:0] = [str(TESTS / "conversion"), str(TESTS / "onnx_graphs")]
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    names = chosen.names or list(models())
    if chosen.graphs:
        Path(chosen.graphs).mkdir(exist_ok=True)
    if chosen.prepare:
        for name in names:
            graphs(name, Path(chosen.graphs))
        return
    if chosen.onnx:
        line("model", "type", "input", "original ms", "plain", "simplified", "original ms, set 23", "rms23")
    else:
        line("model", "type", "input", "original ms", "stock class", "RMSNorm, kernels", "RMSNorm, PyTorch's own")
    line("---", "---", "---", *["--:"] * (5 if chosen.onnx else 4))
    for name in names:
        if chosen.onnx:
            with tempfile.TemporaryDirectory() as folder:
                in_onnx_runtime(name, chosen.rounds, Path(chosen.graphs or folder))
        else:
            in_pytorch(name, chosen.rounds)


if __name__ == "__main__":
    main()
