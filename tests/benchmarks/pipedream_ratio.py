#!/usr/bin/env python3
"""Times asynchronous pipelines (chapter 4) beside the work of their busiest rank, and beside what `simulate` predicts.

    pipedream_ratio.py --data FOLDER [--rounds 3] [--programs build/release/bin]

All train `convnet` with weight stashing. A machine may be shared and noisy, so the runs alternate, and what is shown are
medians over all epochs but the first of every run. FOLDER is CIFAR-10. Prints Markdown.

busiest    seconds of work of the rank that has most: no schedule can be faster
predicted  what simulate says for the mean time of each stage's actions
replayed   what it says with the time that each single action took in this run
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS = 4
RUNS = {
    "2 stages, wall clock": ["--ranks", "2"],
    "2 stages, wall clock, batch 256": ["--ranks", "2", "--batch-size", "256"],
    "4 stages, virtual clock": ["--ranks", "4", "--clock", "virtual"],
    "2,1, virtual clock": ["--replicas", "2,1", "--clock", "virtual", "--link", "nvlink4"],
    "3,1, virtual clock": ["--replicas", "3,1", "--clock", "virtual", "--link", "nvlink4"],
    "2,2,1, virtual clock": ["--replicas", "2,2,1", "--clock", "virtual", "--link", "nvlink4"],
}
FIGURES = ("seconds", "busiest_seconds", "predicted_seconds", "replayed_seconds")


def run(program, data, arguments):
    """The epochs of a run but the first."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--data", data, "--epochs", EPOCHS, "--versions", "stash", "--out", folder, *arguments]
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    flags = parser.parse_args()

    epochs = {name: [] for name in RUNS}
    for _ in range(flags.rounds):
        for name, arguments in RUNS.items():
            epochs[name] += run(flags.programs / "ch04_pipedream", flags.data, arguments)
    print(f"Seconds per epoch, medians of {flags.rounds * (EPOCHS - 1)} epochs in {flags.rounds} rounds\n")
    print("| run | seconds | busiest | busiest / seconds | predicted | replayed | seconds / replayed | img/s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, all_of in epochs.items():
        median = {key: statistics.median(epoch[key] for epoch in all_of) for key in FIGURES}
        reached = statistics.median(epoch["busiest_seconds"] / epoch["seconds"] for epoch in all_of)
        replayed = statistics.median(epoch["seconds"] / epoch["replayed_seconds"] for epoch in all_of)
        rate = statistics.median(epoch["images_per_second"] for epoch in all_of)
        print(f"| {name} | {median['seconds']:.3f} | {median['busiest_seconds']:.3f} | {reached:.3f} "
              f"| {median['predicted_seconds']:.3f} | {median['replayed_seconds']:.3f} | {replayed:.3f} | {rate:.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
