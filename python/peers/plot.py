"""The measurements as a picture: the speed of each at its best, as a part of the speed of copying."""

from __future__ import annotations

from pathlib import Path

from table import OURS, grouped

TITLES = {
    "rms_norm": "RMSNorm",
    "layer_norm": "LayerNorm",
    "add_rms_norm": "residual add and RMSNorm",
    "rms_norm_backward": "backward of RMSNorm",
}


def draw(lines: list[dict], threads: int, base: Path) -> list[Path]:
    """Writes BASE.png and BASE.svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = {case: group for case, group in grouped(lines).items() if case[-1] == threads}
    ops = list(dict.fromkeys(case[0] for case in groups))
    types = list(dict.fromkeys(case[1] for case in groups))
    peers = list(dict.fromkeys(line["peer"] for group in groups.values() for line in group if line["peer"] != "copy"))
    peers.sort(key=lambda peer: peer not in OURS)
    colours = dict(zip(peers, plt.get_cmap("tab20").colors, strict=False))
    figure, axes = plt.subplots(
        len(ops), len(types), figsize=(3.6 * len(types) + 1, 2.3 * len(ops) + 1), squeeze=False, sharey=True
    )
    for row, op in zip(axes, ops, strict=True):
        for ax, name in zip(row, types, strict=True):
            cases = [case for case in groups if case[:2] == (op, name)]
            for peer in peers:
                points = [
                    (i, max(line["ratio_to_copy"] for line in groups[case] if line["peer"] == peer))
                    for i, case in enumerate(cases)
                    if any(line["peer"] == peer for line in groups[case])
                ]
                if points:
                    own = peer in OURS
                    ax.plot(*zip(*points, strict=True), marker="o" if own else "x", linestyle="", label=peer,
                            markersize=8 if own else 6, color=colours[peer])  # fmt: skip
            ax.set_yscale("log")
            ax.axhline(1, color="grey", linewidth=0.8)
            ax.set_xticks(
                range(len(cases)), [f"{case[2]}x{case[3]}" for case in cases], rotation=45, ha="right", fontsize=7
            )
            ax.set_title(f"{TITLES[op]}, {name}", fontsize=9)
            ax.grid(axis="y", linewidth=0.3)
        row[0].set_ylabel("speed / copy", fontsize=8)
    handles, labels = {}, []
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = list(handles)
    figure.legend(
        [handles[label] for label in labels], labels, loc="lower center", ncol=min(5, len(labels)), fontsize=8
    )
    figure.suptitle(
        f"1 is the speed of copying the same bytes; {threads} thread{'s' if threads > 1 else ''}", fontsize=10
    )
    figure.tight_layout(rect=(0, 0.06, 1, 0.98))
    paths = [base.with_suffix(".png"), base.with_suffix(".svg")]
    for path in paths:
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths
