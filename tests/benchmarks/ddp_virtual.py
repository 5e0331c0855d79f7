#!/usr/bin/env python3
"""Times the modes and the bucket sizes of chapter 6 on the virtual clock, beside the arithmetic of latency and bandwidth.

    ddp_virtual.py [--ranks 8] [--link ethernet100] [--rounds 5] [--programs build/release/bin] [--svg FILE]

Trains `convnet` on generated pictures, 64 in a batch. The runs alternate; what is shown are medians over all epochs but
the first of every run. `predicted` is what the program's arithmetic says with the times that it measured in the same
epochs: forward, backward, when each gradient came, and update. Prints Markdown; --svg draws the bucket sizes.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS, PICTURES, BATCH = 4, 6400, 64
MODES = ("single", "parameter", "buckets", "central", "replicate")
KIB = (1, 4, 16, 64, 256)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--link", default="ethernet100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--svg", type=pathlib.Path)
    flags = parser.parse_args()
    runs = {mode: ["--mode", mode] for mode in MODES}
    runs |= {size: ["--first-bucket-size", f"{size}KiB", "--bucket-size", f"{size}KiB"] for size in KIB}
    epochs = {name: [] for name in runs}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        make = [flags.programs / "make_generated_data", "--train", PICTURES, "--test", 64, data]
        subprocess.run([*map(str, make)], check=True, capture_output=True)
        for turn in range(flags.rounds):
            for name, more in runs.items():
                out = pathlib.Path(folder) / f"{name}-{turn}"
                command = [flags.programs / "ch06_ddp", "--data", data, "--ranks", flags.ranks, "--batch-size", BATCH,
                           "--epochs", EPOCHS, "--clock", "virtual", "--link", flags.link, "--out", out, *more]  # fmt: skip
                subprocess.run([*map(str, command)], check=True, capture_output=True)
                lines = (out / "metrics.jsonl").read_text().splitlines()[1:]
                epochs[name] += [json.loads(line) for line in lines]

    steps = PICTURES / BATCH
    figure = lambda name, key: statistics.median(epoch[key] for epoch in epochs[name])
    step = lambda name, key: 1e6 * figure(name, key) / steps  # microseconds
    measured = {name: step(name, "seconds") for name in runs}
    predicted = {name: step(name, "predicted_seconds") for name in runs}

    def show(names, title):
        print(f"| {title} | measured, us a step | predicted | measured / predicted | idle | predicted idle | overlap |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name in names:
            print(f"| {name} | {measured[name]:.0f} | {predicted[name]:.0f} | {measured[name] / predicted[name]:.2f} "
                  f"| {figure(name, 'idle'):.1%} | {figure(name, 'predicted_idle'):.1%} "
                  f"| {figure(name, 'overlap'):.1%} |")  # fmt: skip
        by = lambda times: ", ".join(str(name) for name in sorted(names, key=times.get))
        print(f"\nFastest first, measured: {by(measured)}; predicted: {by(predicted)}.\n")

    show(MODES, "mode")
    show(KIB, "bucket size, KiB")
    if flags.svg:
        flags.svg.write_text(picture(measured, predicted, f"{flags.ranks} ranks, {flags.link}, virtual clock"))


def picture(measured, predicted, title):
    """Microseconds a step over the bucket size, which grows fourfold from point to point."""
    width, height, left, top = 640, 320, 70, 40
    most = 1.1 * max(max(times[size] for size in KIB) for times in (measured, predicted))
    x = lambda i: left + i * (width - left - 40) / (len(KIB) - 1)
    y = lambda time: height - 50 - time / most * (height - 50 - top)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             f'<text x="10" y="20" font-size="14">Microseconds a step over the bucket size: {title}</text>']  # fmt: skip
    for part in range(5):
        value = most * part / 4
        parts.append(f'<line x1="{left}" x2="{width - 30}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    for i, size in enumerate(KIB):
        parts.append(f'<text x="{x(i):.1f}" y="{height - 28}" text-anchor="middle">{size} KiB</text>')
    for line, (name, times, colour) in enumerate((("measured", measured, "#1f77b4"), ("predicted", predicted, "#d62728"))):
        points = " ".join(f"{x(i):.1f},{y(times[size]):.1f}" for i, size in enumerate(KIB))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 90 * line}" y="{height - 8}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
