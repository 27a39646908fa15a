"""A Llama of 6 million parameters on Moby-Dick: python python/bench/train_llama.py [--seeds 5] [--steps 250]

`rmsnorm-lab train` trains it with the norms of this library (fused) and with PyTorch's own (native), from the same
initial values and over the same batches for each seed. Printed are the held-out losses, their paired difference with
its 95 % interval (Student's t), how far the logits of `transformers` lie from ours on the saved model, its held-out
loss there, and how both continue a sentence. A run that is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTEXT, BATCH = 128, 8
SIZE = ("--width", 256, "--layers", 8, "--heads", 8, "--key-value-heads", 4, "--context", CONTEXT, "--batch", BATCH)
CODES = ("fused", "native")
PROMPT = "Call me "
CONTINUED = 80  # bytes
EQUAL = 1e-5  # of logits, f32


def called(program: Path, *arguments: object) -> dict:
    line = [str(program), *map(str, arguments), "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def train(program: Path, folder: Path, code: str, seed: int, steps: int) -> dict:
    name = folder / f"{code}-{seed}"
    report = name.with_suffix(".json")
    if not report.exists():
        print(f"training {name.name}", file=sys.stderr, flush=True)
        keep = ("--checkpoint", f"{name}-run", "--checkpoint-every", 50, "--out", name)
        options = (*SIZE, "--steps", steps, "--warm-up", steps // 10, "--evaluate-parts", 32)
        result = called(program, "train", *options, "--code", code, "--seed", seed, *keep)
        report.write_text(json.dumps(result))
    result = json.loads(report.read_text())
    if (found := len(result["steps"])) != steps:
        sys.exit(f"{report} has {found} steps; it must have {steps}: remove {folder}, or name another --folder")
    return result


def interval(differences: list[float]) -> tuple[float, float, float]:
    from scipy.stats import t

    mean = statistics.mean(differences)
    half = t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    return mean, mean - half, mean + half


def in_transformers(program: Path, model: Path) -> dict:
    import torch
    from transformers import LlamaForCausalLM

    theirs = LlamaForCausalLM.from_pretrained(model).eval()
    tokens = torch.tensor([list(PROMPT.encode())])
    ours = called(program, "generate", model, "--prompt", PROMPT, "--tokens", 0, "--logits")["logits"]
    with torch.no_grad():
        logits = theirs(tokens).logits[0]
        continued = theirs.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=CONTINUED, do_sample=False, pad_token_id=0
        )
    return {
        "logit_difference": (torch.tensor(ours, dtype=torch.float64) - logits).abs().max().item(),
        "ours": called(program, "generate", model, "--prompt", PROMPT, "--tokens", CONTINUED)["text"],
        "theirs": bytes(continued[0].tolist()).decode(errors="replace").removeprefix(PROMPT),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/rmsnorm-lab")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/lab/llama", help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=5, help="2 or more")
    parser.add_argument("--steps", type=int, default=250)
    a = parser.parse_args()
    if a.seeds < 2:
        parser.error(f"--seeds is {a.seeds}; it must be at least 2")
    a.folder.mkdir(parents=True, exist_ok=True)

    losses: dict[str, list[float]] = {code: [] for code in CODES}
    print(f"| seed | {' | '.join(CODES)} | fused less native |")
    print(f"|--:|{'--:|' * (len(CODES) + 1)}")
    for seed in range(1, a.seeds + 1):
        for code in CODES:
            result = train(a.program, a.folder, code, seed, a.steps)
            losses[code].append(result["evaluations"][-1]["held_out_loss"])
        fused, native = (losses[code][-1] for code in CODES)
        print(f"| {seed} | {fused:.5f} | {native:.5f} | {fused - native:+.5f} |", flush=True)
    mean, low, high = interval([f - n for f, n in zip(*losses.values(), strict=True)])
    inside = low <= 0 <= high
    print(
        f"\n{result['parameters']} parameters, {a.steps} steps of {BATCH} x {CONTEXT} bytes; "
        f"held-out loss in nats a byte."
    )
    print(f"Fused less native: {mean:+.6f} [{low:+.6f}, {high:+.6f}]; zero lies {'in' if inside else 'out'}side.")
    there = in_transformers(a.program, a.folder / "fused-1")
    print(f"Logits of transformers differ by at most {there['logit_difference']:.1e} (limit {EQUAL:.0e}).")
    print(f"rmsnorm-lab:  {there['ours']!r}\ntransformers: {there['theirs']!r}")
    if not inside or there["logit_difference"] > EQUAL or there["ours"] != there["theirs"]:
        sys.exit("the two do not agree")


if __name__ == "__main__":
    main()
