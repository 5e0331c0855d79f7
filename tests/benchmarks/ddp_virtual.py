#!/usr/bin/env python3
"""Times the modes and the bucket sizes of chapter 6 on the virtual clock, beside the arithmetic of latency and bandwidth.

    ddp_virtual.py [--ranks 8] [--link ethernet100] [--rounds 5] [--programs build/release/bin] [--svg FILE]

Trains a vision transformer on generated images, two per rank in a batch. The runs alternate; what is shown are medians
over all epochs except the first of every run. `predicted` is what the program's arithmetic says with the times that it
measured in the same epochs: forward, backward, when each gradient came, and update. Prints Markdown; --svg draws the bucket
sizes.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import line_chart

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS, IMAGES = 4, 256
MODEL = ["--model", "vit", "--width", 128, "--image-size", 16]  # 6.1 MiB of gradients
MODES = ("single", "parameter", "buckets", "central")
KIB = (64, 256, 512, 1024, 2048, 4096, 8192)  # the last one takes everything


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
    batch = 2 * flags.ranks
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        make = [flags.programs / "make_generated_data", "--train", IMAGES, "--test", 64, data]
        subprocess.run([*map(str, make)], check=True, capture_output=True)
        for turn in range(flags.rounds):
            for name, more in runs.items():
                out = pathlib.Path(folder) / f"{name}-{turn}"
                command = [flags.programs / "ch06_ddp", "--data", data, *MODEL, "--ranks", flags.ranks, "--batch-size", batch,
                           "--epochs", EPOCHS, "--clock", "virtual", "--link", flags.link, "--out", out, *more]  # fmt: skip
                subprocess.run([*map(str, command)], check=True, capture_output=True)
                lines = (out / "metrics.jsonl").read_text().splitlines()[1:]
                epochs[name] += [json.loads(line) for line in lines]

    steps = IMAGES / batch
    figure = lambda name, key: statistics.median(epoch[key] for epoch in epochs[name])
    step = lambda name, key: 1e6 * figure(name, key) / steps  # microseconds
    measured = {name: step(name, "seconds") for name in runs}
    predicted = {name: step(name, "predicted_seconds") for name in runs}

    def show(names, title):
        print(f"| {title} | measured, us per step | predicted | measured / predicted | idle | predicted idle | overlap |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name in names:
            print(f"| {name} | {measured[name]:.0f} | {predicted[name]:.0f} | {measured[name] / predicted[name]:.2f} "
                  f"| {figure(name, 'idle'):.1%} | {figure(name, 'predicted_idle'):.1%} "
                  f"| {figure(name, 'overlap'):.1%} |")  # fmt: skip
        by = lambda times: ", ".join(str(name) for name in sorted(names, key=times.get))
        print(f"\nFastest first, measured: {by(measured)}; predicted: {by(predicted)}.\n")

    show(MODES, "mode")
    show(KIB, "bucket size, KiB")
    gains = [times["parameter"] / min(times[size] for size in KIB) for times in (measured, predicted)]
    everything = [times[KIB[-1]] / min(times[size] for size in KIB) for times in (measured, predicted)]
    print("The best size is {:.2f} times as fast as one message per parameter, and {:.2f} times as fast as one bucket of "
          "everything; predicted {:.2f} and {:.2f}.\n".format(gains[0], everything[0], gains[1], everything[1]))
    if flags.svg:
        title = f"microseconds per step: {flags.ranks} ranks, {flags.link}, virtual clock"
        curves = {"measured": [(size, measured[size]) for size in KIB], "predicted": [(size, predicted[size]) for size in KIB]}
        line_chart.draw(flags.programs, flags.svg, title, "bucket size (KiB)", curves, logarithmic=True)


if __name__ == "__main__":
    main()
