#!/usr/bin/env python3
"""Idle share of an asynchronous pipeline (chapter 4) over the number of micro-batches that it runs without draining.

    pipedream_idle.py [--programs build/release/bin]

Trains `convnet` on generated pictures with weight stashing, batch 64, on two ranks by the virtual clock. Prints Markdown.

idle       the measured share of the epoch in which a rank waits, the mean over ranks, median of the epochs but the first
predicted  what simulate says for the mean time of each stage's actions
unequal    what is left when nothing but the slowest stage counts: the other rank's waiting for it
formula    (p - 1) / (N + p - 1), the idle share of equally slow stages
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RANKS, BATCH, EPOCHS = 2, 64, 6
COUNTS = (2, 8, 32, 128, 512)


def measure(programs, batches, folder):
    data, out = folder / f"data-{batches}", folder / f"run-{batches}"
    pictures = [programs / "make_generated_data", "--train", batches * BATCH, "--test", 64, data]
    train = [programs / "ch04_pipedream", "--data", data, "--ranks", RANKS, "--split", "3,9", "--batch-size", BATCH,
             "--epochs", EPOCHS, "--clock", "virtual", "--out", out]  # fmt: skip
    for command in (pictures, train):
        subprocess.run([*map(str, command)], check=True, capture_output=True)
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()][1:]
    middle = lambda figure: statistics.median(figure(epoch) for epoch in epochs)
    work = lambda epoch: (1 - epoch["predicted_idle"]) * epoch["predicted_seconds"]  # the mean over ranks
    return (middle(lambda e: e["idle"]), middle(lambda e: e["predicted_idle"]),
            middle(lambda e: 1 - work(e) / e["busiest_seconds"]))  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    flags = parser.parse_args()

    print("| micro-batches | idle | predicted | unequal stages | idle less that | formula |")
    print("|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            idle, predicted, unequal = measure(flags.programs.resolve(), count, pathlib.Path(folder))
            formula = (RANKS - 1) / (count + RANKS - 1)
            print(f"| {count} | {idle:.1%} | {predicted:.1%} | {unequal:.1%} | {idle - unequal:.1%} | {formula:.1%} |")


if __name__ == "__main__":
    main()
