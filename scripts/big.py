"""Converts and verifies a checkpoint of 13 billion parameters (GPT-NeoX, f16, 26 GB) made shard by shard.

Called by ./dev big. Prints the time, the rate and the memory of each step beside those of a plain copy of the same
files. Needs numpy and 60 GB of disk. The folder is removed at the end; exit code 1 if a step needs more than 1 GiB or
fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WIDTH, LAYERS, VOCABULARY = 5120, 40, 50432
SHARD = 2 << 30  # bytes, about
NEEDED = 60 * 10**9  # two of 26 GB, and a copied shard
MOST_MEMORY = 1 << 30


def tensors() -> list[tuple[str, tuple[int, ...]]]:
    listed = [("gpt_neox.embed_in.weight", (VOCABULARY, WIDTH))]
    for i in range(LAYERS):
        layer = f"gpt_neox.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            listed += [(f"{layer}{norm}.weight", (WIDTH,)), (f"{layer}{norm}.bias", (WIDTH,))]
        for name, out, inside in (
            ("attention.query_key_value", 3 * WIDTH, WIDTH),
            ("attention.dense", WIDTH, WIDTH),
            ("mlp.dense_h_to_4h", 4 * WIDTH, WIDTH),
            ("mlp.dense_4h_to_h", WIDTH, 4 * WIDTH),
        ):
            listed += [(f"{layer}{name}.weight", (out, inside)), (f"{layer}{name}.bias", (out,))]
    listed += [("gpt_neox.final_layer_norm.weight", (WIDTH,)), ("gpt_neox.final_layer_norm.bias", (WIDTH,))]
    return [*listed, ("embed_out.weight", (VOCABULARY, WIDTH))]


def write_checkpoint(folder: Path) -> int:
    """Random numbers with a mean, the same block of 64 MB from another place for each tensor."""
    folder.mkdir(parents=True)
    block = (np.random.default_rng(1).standard_normal(32 << 20, np.float32) * 0.02 + 0.003).astype(np.float16)
    shards, size = [[]], 0
    for name, shape in tensors():
        count = 2 * int(np.prod(shape))
        if size + count > SHARD:
            shards.append([])
            size = 0
        shards[-1].append((name, shape, count))
        size += count
    index, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, shape, count in shard:
            header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + count]}
            index[name] = file
            at += count
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name, _, count in shard:
                start = hash_of(name) % (block.size // 2)
                left = count // 2
                while left > 0:
                    piece = block[start : start + left]
                    out.write(piece.tobytes())
                    left -= piece.size
                    start = 0
        total += at
        print(f"\rmade {number} of {len(shards)} shards", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    )
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 40,
        "vocab_size": VOCABULARY,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return total


def hash_of(name: str) -> int:
    value = 0
    for letter in name:
        value = (value * 131 + ord(letter)) % 1000003
    return value


def copy_all(shards: list[Path], to: Path) -> float:
    """Seconds of copying all files to the disk, one after the other and each in the place of the one before."""
    started = time.monotonic()
    for shard in shards:
        shutil.copyfile(shard, to)
        with open(to, "rb") as file:
            os.fsync(file.fileno())
        to.unlink()
    return time.monotonic() - started


def show(name: str, seconds: float, total: int, memory: str) -> None:
    print(f"{name:<8} {seconds:7.1f} s  {total / seconds / 1e6:7.0f} MB/s  {memory}", flush=True)


def step(name: str, total: int, command: list[str]) -> bool:
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds, memory = time.monotonic() - started, usage.ru_maxrss * 1024
    print(output.rstrip().splitlines()[-1] if output else "")
    show(name, seconds, total, f"{memory / (1 << 20):6.0f} MiB of memory")
    return status == 0 and memory <= MOST_MEMORY


def main() -> int:
    program, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    free = shutil.disk_usage(folder).free
    if free < NEEDED:
        print(f"{folder}: {free // 10**9} GB of disk are free; it must be {NEEDED // 10**9} GB", file=sys.stderr)
        return 1
    try:
        original, converted = folder / "original", folder / "converted"
        total = write_checkpoint(original)
        print(f"{total / 2e9:.1f} billion parameters, {total / 1e9:.1f} GB")
        shards = sorted(original.glob("*.safetensors"))
        show("copy", copy_all(shards, folder / "copy"), total, "")
        good = step("convert", total, [str(program), "convert", str(original), str(converted)])
        return 0 if good and step("verify", total, [str(program), "verify", str(original), str(converted)]) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
