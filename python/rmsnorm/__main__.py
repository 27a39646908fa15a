"""`python -m rmsnorm info`: the version, the targets of this build, and the one in use."""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys

import rmsnorm


def info() -> str:
    """What `rmsnorm info` of the command line says, and the versions of what this package works with."""
    import numpy

    lines = [f"rmsnorm {rmsnorm.version()}, target {rmsnorm.target()} ({rmsnorm.target_reason()})"]
    for target in rmsnorm.targets():
        state = "supported" if target.supported else "not supported by this machine"
        lines.append(f"  {target.name:<12} {state:<30} {target.description}")
    lines.append(f"Python {platform.python_version()}, NumPy {numpy.__version__}")
    for name in ("ml_dtypes", "torch"):
        lines.append(f"{name}: {'installed' if importlib.util.find_spec(name) else 'not installed'}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rmsnorm", description="Normalisation kernels for the CPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="the version, the targets of this build, and the one in use")
    commands.add_parser("torch", help="compile the PyTorch operators now instead of when they are first imported")
    if parser.parse_args(arguments).command == "info":
        print(info())
    else:
        from rmsnorm.torch import _operators

        print(_operators.compiled())
    return 0


if __name__ == "__main__":
    sys.exit(main())
