#!/usr/bin/env python3
"""How large should a micro-batch be? Trains a model on two ranks with splits of 1 to 60 images, in turn with the naive
split of chapter 2, and draws images per second over the split size.

    split_sweep.py --data FOLDER [--model resnet50] [--batch-size 120] [--sizes 1,2,4,…] [--rounds 1] [--svg FILE]

FOLDER holds a multiple of the batch size; 120 images are enough, such as make_generated_data --train 120 writes.
Prints Markdown. `predicted` is what simulate says with the costs that the run measured.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import line_chart

HERE = pathlib.Path(__file__).resolve().parent


def train(flags, program, *arguments):
    """Images per second of the second epoch, and the predicted ones."""
    with tempfile.TemporaryDirectory() as folder:
        command = [flags.programs / program, "--data", flags.data, "--model", flags.model, "--batch-size",
                   flags.batch_size, "--epochs", 2, "--lr", 0.001, "--split", flags.split, "--out", folder]  # fmt: skip
        subprocess.run([*map(str, command), *map(str, arguments)], check=True, capture_output=True)
        epoch = json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])
    images = epoch["seconds"] * epoch["images_per_second"]
    return epoch["images_per_second"], images / epoch["predicted_seconds"]


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
    speeds = {size: [] for size in sizes}
    predicted = {size: [] for size in sizes}
    naive = []
    for _ in range(flags.rounds):
        naive.append(train(flags, "ch02_naive_model_parallel")[0])
        for size in sizes:
            parts = -(-flags.batch_size // size)
            speed, expected = train(flags, "ch05_interleaved", "--schedule", "1f1b", "--microbatches", parts)
            speeds[size].append(speed)
            predicted[size].append(expected)
    base = statistics.median(naive)
    print(f"{flags.model}, two ranks, batch {flags.batch_size}; the naive split: {base:.1f} img/s\n")
    print("| images per micro-batch | micro-batches | img/s | over naive | predicted | ideal |")
    print("|---:|---:|---:|---:|---:|---:|")
    for size in sizes:
        parts = -(-flags.batch_size // size)
        speed, expected = statistics.median(speeds[size]), statistics.median(predicted[size])
        print(f"| {size} | {parts} | {speed:.1f} | {speed / base:.2f} | {expected / base:.2f} "
              f"| {2 * parts / (parts + 1):.2f} |")  # fmt: skip
    if flags.svg:
        medians = [(size, statistics.median(speeds[size])) for size in sizes]
        curves = {"1F1B": medians, "naive split": [(size, base) for size in sizes]}
        title = f"images per second: {flags.model} on two ranks"
        line_chart.draw(flags.programs, flags.svg, title, "images per micro-batch", curves)


main()
