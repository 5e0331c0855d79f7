#!/usr/bin/env python3
"""How large should a micro-batch be? Trains a model on two ranks with splits of 1 to 60 images, in turn with the naive
split of chapter 2, and draws images per second over the split size.

    split_sweep.py --data FOLDER [--model resnet50] [--batch-size 120] [--sizes 1,2,4,…] [--rounds 1] [--svg FILE]

FOLDER holds a multiple of the batch size; 120 images are enough, such as make_generated_data --train 120 writes.
Prints Markdown. `predicted` is what simulate says with the costs that the run measured.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import subprocess
import tempfile

import line_chart

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Sweep:
    """Images per second, by images per micro-batch: medians over the rounds."""

    one_device: float
    naive: float
    measured: dict[int, float]
    predicted: dict[int, float]


def train(program, *arguments):
    """Images per second of the second epoch, and the predicted ones, which one device does not have."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--epochs", 2, "--lr", 0.001, "--out", folder, *arguments]
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        epoch = json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])
    images = epoch["seconds"] * epoch["images_per_second"]
    predicted = epoch.get("predicted_seconds")
    return epoch["images_per_second"], images / predicted if predicted else None


def sweep(programs, training, split, batch, sizes, rounds, schedule="1f1b"):
    """Trains with the flags `training`, in turn: on one device, and cut by `split` in whole batches and in micro-batches of
    each size."""
    training = [*training, "--batch-size", batch]
    split = ["--split", split]
    one_device, naive = [], []
    speeds = {size: [] for size in sizes}
    predicted = {size: [] for size in sizes}
    for _ in range(rounds):
        one_device.append(train(programs / "ch01_single_device", *training)[0])
        naive.append(train(programs / "ch02_naive_model_parallel", *training, *split)[0])
        for size in sizes:
            parts = ["--schedule", schedule, "--microbatches", -(-batch // size)]
            speed, expected = train(programs / "ch05_interleaved", *training, *split, *parts)
            speeds[size].append(speed)
            predicted[size].append(expected)
    medians = lambda values_by_size: {size: statistics.median(values) for size, values in values_by_size.items()}
    return Sweep(statistics.median(one_device), statistics.median(naive), medians(speeds), medians(predicted))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=120)
    parser.add_argument("--split", default="11,11", help="layers per stage, the same in all runs")
    parser.add_argument("--sizes", default="1,2,4,6,8,12,15,20,24,30,40,60")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    flags = parser.parse_args()

    sizes = [int(size) for size in flags.sizes.split(",")]
    training = ["--data", flags.data, "--model", flags.model]
    found = sweep(flags.programs, training, flags.split, flags.batch_size, sizes, flags.rounds)
    print(f"{flags.model}, two ranks, batch {flags.batch_size}; one device: {found.one_device:.1f} img/s; the naive split: "
          f"{found.naive:.1f} img/s\n")  # fmt: skip
    print("| images per micro-batch | micro-batches | img/s | over naive | predicted | ideal |")
    print("|---:|---:|---:|---:|---:|---:|")
    for size in sizes:
        parts = -(-flags.batch_size // size)
        print(f"| {size} | {parts} | {found.measured[size]:.1f} | {found.measured[size] / found.naive:.2f} "
              f"| {found.predicted[size] / found.naive:.2f} | {2 * parts / (parts + 1):.2f} |")  # fmt: skip
    if flags.svg:
        curves = {"1F1B": [*found.measured.items()], "naive split": [(size, found.naive) for size in sizes]}
        title = f"images per second: {flags.model} on two ranks"
        line_chart.draw(flags.programs, flags.svg, title, "images per micro-batch", curves)


if __name__ == "__main__":
    main()
