"""The measurements as a table, and who wins where."""

from __future__ import annotations

from collections.abc import Iterable

OURS = ("rmsnorm", "rmsnorm.torch")


def case_of(line: dict) -> tuple:
    return (line["op"], line["type"], line["rows"], line["cols"], line["threads"])


def grouped(lines: Iterable[dict]) -> dict[tuple, list[dict]]:
    groups: dict[tuple, list[dict]] = {}
    for line in lines:
        if "us" in line:
            groups.setdefault(case_of(line), []).append(line)
    return groups


def microseconds(us: float) -> str:
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def ulp(error: float | None) -> str:
    if error is None:
        return ""
    return f"{error:.2f}" if error < 1000 else f"{error:.1e}"


def print_cases(lines: list[dict]) -> None:
    """Every measurement: under each case the fastest first."""
    for (op, name, rows, cols, threads), group in grouped(lines).items():
        print(f"\n{op} {name} {rows}x{cols}, {threads} thread{'s' if threads > 1 else ''}")
        print(f"  {'peer':<18} {'setting':<18} {'us':>10} {'of copy':>8} {'error (ulp)':>12}")
        for line in sorted(group, key=lambda each: each["us"]):
            print(
                f"  {line['peer']:<18} {line['setting']:<18} {microseconds(line['us']):>10} "
                f"{line['ratio_to_copy']:>8.2f} {ulp(line['error_ulp']):>12}"
            )


def summary(lines: list[dict]) -> list[list[str]]:
    """One row a case: ours at its best against the fastest peer at its best."""
    rows = [["case", "threads", "rmsnorm us", "fastest peer", "us", "times faster", "error", "its error"]]
    for (op, name, rows_, cols, threads), group in grouped(lines).items():
        ours = [line for line in group if line["peer"] in OURS]
        others = [line for line in group if line["peer"] not in (*OURS, "copy")]
        if not ours or not others:
            continue
        mine, best = (min(each, key=lambda line: line["us"]) for each in (ours, others))
        rows.append(
            [
                f"{op} {name} {rows_}x{cols}",
                str(threads),
                microseconds(mine["us"]),
                f"{best['peer']} ({best['setting']})",
                microseconds(best["us"]),
                f"{best['us'] / mine['us']:.2f}",
                ulp(mine["error_ulp"]),
                ulp(best["error_ulp"]),
            ]
        )
    return rows


def print_summary(lines: list[dict]) -> None:
    rows = summary(lines)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print("\nrmsnorm against the fastest peer of each case (below 1: it is faster)")
    for row in rows:
        print(
            "  ".join(
                f"{cell:<{w}}" if i in (0, 3) else f"{cell:>{w}}"
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )


def markdown(lines: list[dict]) -> str:
    rows = summary(lines)
    text = ["| " + " | ".join(rows[0]) + " |", "|---|--:|--:|---|--:|--:|--:|--:|"]
    text += ["| " + " | ".join(row) + " |" for row in rows[1:]]
    return "\n".join(text) + "\n"
