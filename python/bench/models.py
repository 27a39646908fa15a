"""What rmsnorm.torch.patch changes in whole models: a training step and decoding of a small Llama and a small GPT-2.

    python python/bench/models.py [--json FILE] [--rounds N]

Three variants of each model take turns: as transformers has it, patched, and with its norms removed, which bounds what
any norm could gain. The norms' share of the time is what removing them saves; beside it stands what PyTorch's profiler
says of the forward pass. Medians; threads as PyTorch chooses.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import transformers
from torch import nn

import rmsnorm.torch as ours

VOCABULARY, HIDDEN, LAYERS, HEADS = 4096, 512, 6, 8
BATCH, LENGTH = 4, 128  # of a training step
PROMPT, NEW_TOKENS = 32, 16  # of decoding
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=1408,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS // 2,
        )
    )


def gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=HIDDEN,
            n_layer=LAYERS,
            n_head=HEADS,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
    )


def norms(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if "RMSNorm" in type(m).__name__ or isinstance(m, nn.LayerNorm)]


@contextlib.contextmanager
def without_norms(model: nn.Module) -> Iterator[None]:
    for norm in norms(model):
        norm.forward = lambda x: x
    yield
    for norm in norms(model):
        del norm.forward


@contextlib.contextmanager
def patched(model: nn.Module) -> Iterator[None]:
    report = ours.patch(model)
    if report.left:
        raise SystemExit(f"models: norms were left: {report}")
    yield
    ours.unpatch(model)


def training_step(model: nn.Module) -> Callable[[], None]:
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # the variants must go on computing with the same weights

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    return step


def decoding(model: nn.Module) -> Callable[[], None]:
    prompt = torch.randint(0, VOCABULARY, (1, PROMPT))
    model.eval()

    @torch.no_grad()
    def decode() -> None:
        result = model(input_ids=prompt, use_cache=True)
        for _ in range(NEW_TOKENS):
            token = result.logits[:, -1:].argmax(-1)
            result = model(input_ids=token, past_key_values=result.past_key_values, use_cache=True)

    return decode


def profiled_share(model: nn.Module, work: Callable[[], None]) -> float:
    """The share of the norms in the profiler's time of one run; of a training step the forward pass alone."""
    handles = []
    for norm in norms(model):
        ranges: list[object] = []

        def enter(*_, ranges=ranges):
            ranges.append(torch.profiler.record_function("norm"))
            ranges[-1].__enter__()

        def leave(*_, ranges=ranges):
            ranges.pop().__exit__(None, None, None)

        handles += [norm.register_forward_pre_hook(enter), norm.register_forward_hook(leave)]
    with torch.profiler.profile() as profile:
        work()
    for handle in handles:
        handle.remove()
    averages = profile.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    return next(event.cpu_time_total for event in averages if event.key == "norm") / total


def measure(model: nn.Module, work: Callable[[], None], rounds: int) -> dict[str, float]:
    variants = {"original": contextlib.nullcontext, "patched": patched, "without norms": without_norms}
    times: dict[str, list[float]] = {name: [] for name in variants}
    shares = {}
    for turn in range(rounds + 1):  # the first warms up
        for name, enter in variants.items():
            with enter(model) if enter is not contextlib.nullcontext else enter():
                work()
                started = time.perf_counter()
                work()
                if turn > 0:
                    times[name].append(time.perf_counter() - started)
                elif name != "without norms":
                    shares[name] = profiled_share(model, work)
    medians = {name: statistics.median(values) for name, values in times.items()}
    bare = medians["without norms"]
    return {
        "original_ms": medians["original"] * 1e3,
        "patched_ms": medians["patched"] * 1e3,
        "without_norms_ms": bare * 1e3,
        "gain": medians["original"] / medians["patched"],
        "share_before": 1 - bare / medians["original"],
        "share_after": 1 - bare / medians["patched"],
        "profiler_before": shares["original"],
        "profiler_after": shares["patched"],
    }


COLUMNS = {
    "original, ms": ("original_ms", "{:.1f}"),
    "patched, ms": ("patched_ms", "{:.1f}"),
    "gain": ("gain", "{:.2f}"),
    "norms before": ("share_before", "{:.1%}"),
    "after": ("share_after", "{:.1%}"),
    "profiler before": ("profiler_before", "{:.1%}"),
    "profiler after": ("profiler_after", "{:.1%}"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write one JSON object a line")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--types", nargs="+", choices=TYPES, default=["f32"], help="bf16 is slow without AVX-512 or AMX"
    )
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error(f"rounds is {chosen.rounds}; it must be 1 or more")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    print("| model | type | work | " + " | ".join(COLUMNS) + " |")
    print("|---|---|---|" + "--:|" * len(COLUMNS))
    lines = []
    for name, make in (("Llama", llama), ("GPT-2", gpt2)):
        for type_name in chosen.types:
            for task, prepare in (("training step", training_step), ("decoding", decoding)):
                model = make().to(TYPES[type_name])
                result = measure(model, prepare(model), chosen.rounds)
                lines.append(
                    {"model": name, "type": type_name, "work": task, "threads": torch.get_num_threads()} | result
                )
                cells = [text.format(result[key]) for key, text in COLUMNS.values()]
                print(f"| {name} | {type_name} | {task} | " + " | ".join(cells) + " |", flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
