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


def measure(case, types) -> dict[str, list[str]]:
    """The cells of both classes, and the numbers that do not depend on the type."""
    from checkpoints import build, largest, run
    from program import load_rms, succeed
    from saving import load, save

    model = build(case)
    unrounded = run(model, case)
    rows: dict[str, list[str]] = {"stock": [], "RMSNorm": []}
    for dtype in types:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder, "source"), Path(folder, "out")
            save(model, case, source, dtype)
            report = succeed("convert", source, out, *case.options)
            expected = run(load(case.model_class, source), case)
            stored_once = largest(expected, unrounded)
            for target, loaded in (
                ("stock", load(case.model_class, out, case.heads)),
                ("RMSNorm", load_rms(case, out)),
            ):
                rows[target].append(cell(largest(run(loaded, case), expected), stored_once, dtype))
    rows["added"] = [str(report.get("parameters_added", "?"))]
    return rows


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

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    types = chosen.types.split(",")
    print("| model | class | " + " | ".join(types) + " | parameters added |")
    print("|---|---|" + "---|" * len(types) + "--:|")
    seen = set()
    for case in DECODERS + ENCODERS:
        wanted = not chosen.names or case.name in chosen.names or case.family in chosen.names
        if not wanted or (case.family in seen and not chosen.all):
            continue
        seen.add(case.family)
        rows = measure(case, types)
        print(f"| {case.name} | stock | " + " | ".join(rows["stock"]) + f" | {rows['added'][0]} |")
        print("| | RMSNorm | " + " | ".join(rows["RMSNorm"]) + " | |", flush=True)


if __name__ == "__main__":
    main()
