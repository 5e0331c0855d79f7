#!/usr/bin/env python3
"""Draws the loss and the accuracy of runs over their epochs, as an SVG picture on standard output.

    scripts/plot_epochs.py runs/softmax runs/logits > docs/figures/ch01_heads.svg

Each argument is the --out folder of a run; its last part is the name in the legend. Needs nothing but Python.
"""

import json
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 360, 240, 44
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"]


def read_run(folder):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry.get("event") == "epoch"]


def panel(left, title, curves):
    """One diagram; a curve is (points, colour, dash)."""
    epochs = [x for points, _, _ in curves for x, _ in points]
    values = [y for points, _, _ in curves for _, y in points]
    low, high = min(values), max(values)
    span = (high - low) or 1

    def place(x, y):
        across = (x - min(epochs)) / ((max(epochs) - min(epochs)) or 1)
        return left + MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - (y - low) / span * (HEIGHT - 2 * MARGIN)

    bottom = HEIGHT - MARGIN
    yield f'<text x="{left + WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{escape(title)}</text>'
    yield f'<path d="M{left + MARGIN} {MARGIN}V{bottom}H{left + WIDTH - MARGIN}" fill="none" stroke="#444"/>'
    for y in (low, (low + high) / 2, high):
        yield f'<text x="{left + MARGIN - 6}" y="{place(0, y)[1] + 4:.1f}" text-anchor="end">{y:.2f}</text>'
    for x in (min(epochs), max(epochs)):
        yield f'<text x="{place(x, low)[0]:.1f}" y="{bottom + 16}" text-anchor="middle">{x}</text>'
    yield f'<text x="{left + WIDTH / 2}" y="{bottom + 30}" text-anchor="middle">epoch</text>'
    for points, colour, dash in curves:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    runs = [(pathlib.Path(folder).name, read_run(folder), colour) for folder, colour in zip(sys.argv[1:], COLOURS)]

    def curves(key, dash):
        return [([(e["epoch"], e[key]) for e in entries], colour, dash) for _, entries, colour in runs]

    height = HEIGHT + 20 * (len(runs) + 1)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {height}" '
          'font-family="sans-serif" font-size="12">')  # fmt: skip
    print('<rect width="100%" height="100%" fill="white"/>')
    print("\n".join(panel(0, "training loss", curves("loss", ""))))
    print("\n".join(panel(WIDTH, "accuracy", curves("acc", "4 3") + curves("test_acc", ""))))
    for i, (name, entries, colour) in enumerate(runs):
        y = HEIGHT + 8 + 20 * i
        print(f'<path d="M20 {y}H50" stroke="{colour}" stroke-width="2"/><text x="58" y="{y + 4}">{escape(name)}: '
              f'loss {entries[-1]["loss"]:.2f}, test accuracy {entries[-1]["test_acc"]:.2f}</text>')  # fmt: skip
    print(f'<text x="20" y="{HEIGHT + 12 + 20 * len(runs)}">dashed: training accuracy; solid: test</text>')
    print("</svg>")


main()
