#!/usr/bin/env python3
"""How large should a micro-batch be? Trains a model on two ranks with splits of 1 to 60 pictures, in turn with the naive
split of chapter 2, and draws images per second over the split size.

    split_sweep.py --data FOLDER [--model resnet50] [--batch-size 120] [--sizes 1,2,4,…] [--rounds 1] [--svg FILE]

FOLDER holds a multiple of the batch size; 120 pictures are enough, such as make_generated_data --train 120 writes.
Prints Markdown. `predicted` is what simulate says with the costs that the run measured.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT, MARGIN = 560, 320, 50


def train(flags, program, *arguments):
    """Images per second of the second epoch, and the predicted ones."""
    with tempfile.TemporaryDirectory() as folder:
        command = [flags.programs / program, "--data", flags.data, "--model", flags.model, "--batch-size",
                   flags.batch_size, "--epochs", 2, "--lr", 0.001, "--split", flags.split, "--out", folder]  # fmt: skip
        subprocess.run([*map(str, command), *map(str, arguments)], check=True, capture_output=True)
        epoch = json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])
    pictures = epoch["seconds"] * epoch["images_per_second"]
    return epoch["images_per_second"], pictures / epoch["predicted_seconds"]


def draw(sizes, speeds, naive):
    top = 1.1 * max(*speeds, *naive)
    right = max(sizes)

    def place(x, y):
        return MARGIN + x / right * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN)

    def line(points, colour):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'

    level = statistics.median(naive)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    yield '<rect width="100%" height="100%" fill="#fff"/>'
    yield f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}" fill="none" stroke="#444"/>'
    yield line([place(0, level), place(right, level)], "#888")
    yield line([place(*point) for point in zip(sizes, speeds)], "#1f77b4")
    for x, y in zip(sizes, speeds):
        yield '<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="#1f77b4"/>'.format(*place(x, y))
        yield f'<text x="{place(x, 0)[0]:.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{x}</text>'
    for y in (top / 2.2, top / 1.1):
        yield f'<text x="{MARGIN - 6}" y="{place(0, y)[1] + 4:.1f}" text-anchor="end">{y:.0f}</text>'
    yield f'<text x="{WIDTH - MARGIN}" y="{place(0, level)[1] - 6:.1f}" text-anchor="end" fill="#666">naive split</text>'
    yield f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">pictures a micro-batch</text>'
    yield f'<text x="{MARGIN}" y="30">images a second, 1F1B on two ranks</text>'
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=120)
    parser.add_argument("--split", default="11,11", help="layers a stage, the same in all runs")
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
    print("| pictures a micro-batch | micro-batches | img/s | over naive | predicted | ideal |")
    print("|---:|---:|---:|---:|---:|---:|")
    for size in sizes:
        parts = -(-flags.batch_size // size)
        speed, expected = statistics.median(speeds[size]), statistics.median(predicted[size])
        print(f"| {size} | {parts} | {speed:.1f} | {speed / base:.2f} | {expected / base:.2f} "
              f"| {2 * parts / (parts + 1):.2f} |")  # fmt: skip
    if flags.svg:
        medians = [statistics.median(speeds[size]) for size in sizes]
        flags.svg.write_text("\n".join(draw(sizes, medians, naive)) + "\n")


main()
