"""What a conversion changes: python python/bench/conversion.py [--program build/release/rmsnorm] [NAMES..]

A line for every small checkpoint of the tests and each class that loads what `rmsnorm convert` wrote: the largest
difference of an output from the original's, as a part of the largest output, and in brackets that difference as a part
of what storing the original once in the type changes. Everything is computed in f64.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests/with_torch/conversion"
TYPES = ("f64", "f32", "f16", "bf16")


def cell(difference: float, stored_once: float, dtype: str) -> str:
    return f"{difference:.0e}" if dtype == "f64" else f"{difference:.0e} ({difference / stored_once:.2f})"


def loaders(case, target: str) -> dict:
    """By the name of a class: what computes the outputs of a folder that was converted for the target."""
    from checkpoints import run
    from program import load_rms
    from saving import load

    if target == "timm":
        from test_timm import load_timm, run_timm

        return {"timm": lambda out: run_timm(load_timm(out), case)}
    if target == "llama":
        import transformers

        return {"Llama": lambda out: run(load(transformers.LlamaForCausalLM, out), case)}
    return {
        "stock": lambda out: run(load(case.model_class, out, case.heads), case),
        "RMSNorm": lambda out: run(load_rms(case, out), case),
    }


def measure(case, types, target="hf") -> tuple[dict[str, list[str]], str]:
    """The cells of each class, and the number of parameters added."""
    from checkpoints import build, largest, run
    from program import succeed
    from saving import load, save

    model = build(case)
    unrounded = run(model, case)
    compute = loaders(case, target)
    rows: dict[str, list[str]] = {name: [] for name in compute}
    for dtype in types:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder, "source"), Path(folder, "out")
            save(model, case, source, dtype)
            report = succeed("convert", source, out, *case.options, *(() if target == "timm" else ("--target", target)))
            expected = run(load(case.model_class, source), case)
            stored_once = largest(expected, unrounded)
            for name, computed in compute.items():
                rows[name].append(cell(largest(computed(out), expected), stored_once, dtype))
    return rows, str(report.get("parameters_added", "?"))


def table(cases, types, target, chosen) -> None:
    seen = set()
    for case in cases:
        wanted = not chosen.names or case.name in chosen.names or case.family in chosen.names
        if not wanted or (case.family in seen and not chosen.all):
            continue
        seen.add(case.family)
        rows, added = measure(case, types, target)
        for number, (name, cells) in enumerate(rows.items()):
            first = number == 0
            print(f"| {case.name if first else ''} | {name} | " + " | ".join(cells) + f" | {added if first else ''} |")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the command line (default: build/release/rmsnorm)")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--all", action="store_true", help="every variant, not only the first of each family")
    parser.add_argument("names", nargs="*", help="families, or the names of cases")
    chosen = parser.parse_args()
    if chosen.program:
        os.environ["RMSNORM_PROGRAM"] = str(Path(chosen.program).resolve())
    os.environ.setdefault("RMSNORM_KERNELS", "0")
    os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp(prefix="rmsnorm-modules-")
    sys.path.insert(0, str(TESTS))
    import transformers

    from decoders import DECODERS
    from encoders import ENCODERS
    from test_timm import CASES as TIMM_CASES

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    types = chosen.types.split(",")
    print("| model | class | " + " | ".join(types) + " | parameters added |")
    print("|---|---|" + "---|" * len(types) + "--:|")
    table(DECODERS + ENCODERS, types, "hf", chosen)
    table([case for case in DECODERS if case.family == "olmo"], types, "llama", chosen)
    table(TIMM_CASES, types, "timm", chosen)


if __name__ == "__main__":
    main()
