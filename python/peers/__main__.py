"""Measures this library and others that normalise on the CPU, side by side in one run.

example: python python/peers --quick --ops rms_norm --types f32 --json peers.jsonl
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parent))

from peer_cases import DTYPES, OPS, QUICK_SHAPES, SHAPES
from table import markdown, print_cases, print_summary
from worker import PEERS


def machine() -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs"


def shape(text: str) -> tuple[int, int]:
    rows, _, cols = text.partition("x")
    if not (rows.isdigit() and cols.isdigit() and int(rows) > 0 and int(cols) > 0):
        raise argparse.ArgumentTypeError(f"shape is {text}; it must be ROWSxCOLS, both above 0")
    return int(rows), int(cols)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--types", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--shapes", nargs="+", type=shape, metavar="RxC", help="default: those of language models")
    parser.add_argument("--threads", nargs="+", type=int, default=None, metavar="N", help="default: 1 and 2")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=None, help="default: all that are installed")
    parser.add_argument("--quick", action="store_true", help="three shapes, one thread")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write one JSON object a line")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the summary as a table")
    parser.add_argument(
        "--plot", type=Path, metavar="BASE", help="also draw BASE.png and BASE.svg, of the first --threads"
    )
    return parser.parse_args()


def run_once(threads: int, request: dict, cases: int) -> tuple[list[dict], str | None]:
    """What the worker says, and the peer that was running if it crashed."""
    command = [sys.executable, str(Path(__file__).with_name("worker.py")), str(threads), json.dumps(request)]
    lines, seen, running = [], set(), "none"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        errors = Tail(process.stderr)
        for text in process.stdout:
            if not text.startswith("{"):
                continue  # what a peer prints
            line = json.loads(text)
            if "starting" in line:
                running = line["starting"]
                continue
            lines.append(line)
            if "op" in line:
                seen.add((line["op"], line["type"], line["rows"], line["cols"]))
            if sys.stderr.isatty():
                print(f"\r{threads} thread(s): case {len(seen)} of {cases} ", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if process.returncode > 0:
        sys.exit(f"peers: the run on {threads} thread(s) failed:\n{errors.text()}")
    return lines, running if process.returncode < 0 else None


class Tail(threading.Thread):
    """Reads a stream to its end and keeps its last lines."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self.stream, self.lines = stream, collections.deque(maxlen=20)
        self.start()

    def run(self) -> None:
        self.lines.extend(self.stream)

    def text(self) -> str:
        self.join()
        return "".join(self.lines)


def run_worker(threads: int, request: dict, cases: int) -> list[dict]:
    """Without the peers that crash, which are named."""
    left_out: list[dict] = []
    while True:
        lines, crashed = run_once(threads, request, cases)
        if crashed is None:
            return left_out + lines
        if crashed not in (request["peers"] or PEERS):
            sys.exit(f"peers: the run on {threads} thread(s) crashed before any peer ran")
        left_out.append({"peer": crashed, "unavailable": f"crashed on {threads} thread(s)"})
        request = {**request, "peers": [p for p in request["peers"] or PEERS if p != crashed]}


def main() -> None:
    chosen = arguments()
    available = len(os.sched_getaffinity(0))
    threads = chosen.threads or ([1] if chosen.quick else [1, 2])
    for each in threads:
        if not 1 <= each <= available:
            sys.exit(f"peers: threads is {each}; it must be from 1 to {available}, the CPUs of this process")
    shapes = chosen.shapes or (QUICK_SHAPES if chosen.quick else SHAPES)
    request = {"ops": chosen.ops, "types": chosen.types, "shapes": shapes, "peers": chosen.peers}
    lines: list[dict] = []
    for each in threads:
        lines += run_worker(each, request, len(chosen.ops) * len(chosen.types) * len(shapes))

    print(machine())
    for line in lines:
        if "version" in line:
            print(f"{line['peer']:<14} {line['version']}")
    for reason in sorted(
        {(line["peer"], line.get("type", ""), line["unavailable"]) for line in lines if "unavailable" in line}
    ):
        print(f"left out: {reason[0]} {reason[1]}: {reason[2]}")
    print_cases(lines)
    print_summary(lines)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if chosen.markdown:
        chosen.markdown.write_text(markdown(lines))
    if chosen.plot:
        from plot import draw

        print("drawn:", *draw(lines, threads[0], chosen.plot))


if __name__ == "__main__":
    main()
