"""Reads a lab report and its pieces back and checks that the numbers can be true: check_lab.py PROGRAM FOLDER.

Not for speed and not for verdicts: a smoke run is too small for either.
"""

import json
import math
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

VERDICTS = {"holds", "holds in part", "refuted", "not settled", "cannot be tested here"}
METADATA = ("experiment", "key", "scale", "machine", "commit", "command", "seconds", "value")

faults = []


def require(condition, text):
    if not condition:
        faults.append(text)


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def numbers(value, path=()):
    """Every number of a piece with the names on the way to it; what is not finite is {"not_finite": ..}."""
    if isinstance(value, dict):
        if set(value) == {"not_finite"}:
            yield path, float(value["not_finite"])
            return
        for name, item in value.items():
            yield from numbers(item, (*path, name))
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def check_number(where, path, value):
    name = path[-1].lower() if path else ""
    if "accuracy" in name or name.endswith("_share"):
        require(0 <= value <= 1, f"{where}: {'/'.join(path)} is {value}; it must lie in 0 .. 1")
    elif name in ("loss", "losses", "final_loss"):
        require(math.isnan(value) or value >= 0, f"{where}: {'/'.join(path)} is {value}; it must be >= 0 or NaN")
    elif name in ("seconds", "step_seconds", "ns", "ms"):
        require(value > 0 and math.isfinite(value), f"{where}: {'/'.join(path)} is {value}; it must be > 0")


def check_pieces(folder, names):
    pieces = {}
    for file in sorted(folder.glob("*/*.json")):
        piece = json.loads(file.read_text())
        where = f"{file.parent.name}/{file.name}"
        missing = [name for name in METADATA if name not in piece]
        require(not missing, f"{where}: {missing} missing")
        require(piece.get("scale") == folder.name, f"{where}: scale is {piece.get('scale')}; it must be {folder.name}")
        require(piece.get("experiment") == file.parent.name, f"{where}: experiment is {piece.get('experiment')}")
        count = 0
        for path, value in numbers(piece.get("value")):
            count += 1
            check_number(where, path, value)
        require(count > 0, f"{where}: it has no number")
        pieces[(file.parent.name, file.stem)] = piece["value"]
    for name in names:
        require(any(key[0] == name for key in pieces), f"{name}: it has no piece")
    leftover = list(folder.glob("*/scratch/*"))
    require(not leftover, f"scratch folders are left: {leftover}")
    return pieces


def check_page(folder, names):
    html = (folder / "report.html").read_text()
    page = ElementTree.fromstring(html.removeprefix("<!DOCTYPE html>"))
    ledger = page.find(".//table[@id='ledger']")
    rows = ledger.findall("./tbody/tr")
    for row in rows:
        cells = [text_of(cell) for cell in row]
        require(len(cells) == 7 and all(cells), f"ledger: a row has an empty cell: {cells}")
        require(cells[5] in VERDICTS, f"ledger: a verdict is {cells[5]}")
    linked = {row.find(".//a").get("href") for row in rows}
    require(linked == {f"#{name}" for name in names}, f"ledger: experiments are {sorted(linked)}")
    require({section.get("id") for section in page.findall(".//section")} == set(names), "chapters are missing")
    svg = "{http://www.w3.org/2000/svg}"
    for figure in page.findall(".//figure"):
        title = text_of(figure.find("figcaption"))
        texts = figure.findall(f"{svg}svg/{svg}text")
        require(len(texts) >= 2, f"plot {title}: it has no axis labels")
        marks = [e for tag in ("path", "circle") for e in figure.iter(svg + tag)]
        require(len(marks) >= 4, f"plot {title}: it is empty")
    for word in ("not a number", "nan", "inf "):
        require(word not in text_of(ledger).lower(), f"ledger: it says {word!r}")
    markdown = (folder / "report.md").read_text()
    table = markdown.split("## The ledger of claims", 1)[1].split("\n\n", 2)[1].splitlines()
    require(len(table) == len(rows) + 2, f"report.md: the ledger has {len(table) - 2} rows; it must have {len(rows)}")
    for name in re.findall(r"\]\((plots/[^)]+)\)", markdown):
        require((folder / name).is_file(), f"report.md: {name} is missing")
    return page


def check_cost(page, pieces):
    """The saving at one width, computed here, is the one in the table."""
    starts = [value["cells"] for (name, key), value in pieces.items() if name == "cost" and key.startswith("times-")]
    require(len(starts) >= 2, "cost: it must have at least 2 starts")
    for cells in starts:
        for path, value in numbers(cells):
            require(0 < value < 1e4, f"cost: {'/'.join(path)} is {value} ns per element")
    ratios = [s["scalar"]["rms_norm"]["1024"] / s["scalar"]["layer_norm"]["1024"] for s in starts]
    expected = 100 * (1 - statistics.median(ratios))
    section = page.find(".//section[@id='cost']")
    rows = [[text_of(cell) for cell in row] for row in section.findall(".//tr")]
    cell = next(row[4] for row in rows if row[:2] == ["scalar loop", "1024"])
    found = float(re.match(r"-?[0-9.]+", cell.replace("\N{MINUS SIGN}", "-"))[0])
    require(abs(found - expected) <= 0.51, f"cost: the saving is {found}; it must be {expected}")
    counts = pieces["cost", "instructions"]["scalar"]
    if None not in counts.values():
        require(counts["rms_norm"] < counts["layer_norm"], f"cost: instructions are {counts}")


def check_starts(pieces):
    """What is timed comes from several process starts, which measured the same things."""
    timed = [("cost", "times"), ("small_llama", "times"), ("memory", "times"), ("vit", "times")]
    timed += [("step_share", what) for what in ("train-64", "decode-64", "gru")]
    for name, stem in timed:
        starts = [value for (owner, key), value in pieces.items() if owner == name and key.startswith(f"{stem}-")]
        require(len(starts) >= 2, f"{name}: it has {len(starts)} process starts; it must have at least 2")
        paths = [[path for path, _ in numbers(start)] for start in starts]
        require(all(one == paths[0] for one in paths), f"{name}: its starts measured different things")
        for start in starts:
            for path, value in numbers(start):
                if path[-1] != "profiled_norms":  # a model without norms spends next to nothing there
                    require(value > 0 and math.isfinite(value), f"{name}: {'/'.join(path)} is {value}; it must be > 0")


def check_soak(pieces):
    soak = pieces["soak", "soak"]
    require(soak["cases"] >= 50, f"soak: {soak['cases']} cases")
    require(not soak["faults"], f"soak: {soak['faults']}")
    require(sum(soak["cases_of"].values()) == soak["cases"], "soak: cases by operation do not add up")


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    listed = subprocess.run([program, "list", "--json"], check=True, capture_output=True, text=True).stdout
    names = [json.loads(line)["name"] for line in listed.splitlines()]
    require(len(names) >= 2, f"experiments are {names}")
    pieces = check_pieces(folder, names)
    page = check_page(folder, names)
    check_cost(page, pieces)
    check_starts(pieces)
    check_soak(pieces)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(names)} experiments, {len(pieces)} pieces, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
