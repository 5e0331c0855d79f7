#!/usr/bin/env python3
"""Trains with each level of CPU kernels that a program has and this processor supports, in turn, and prints their
images per second beside those of the highest level.

    level_ratio.py --data FOLDER [--model convnet] [--threads 1] [--rounds 5]
                   [--program build/levels/bin/ch01_single_device]

The machine may be shared and noisy, so the levels alternate and the medians are compared. Exits with 3 where there are
no two levels to compare. Needs Python and taskset.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def run(command, level):
    return subprocess.run(command, env=os.environ | {"STAGECOACH_LEVEL": level}, capture_output=True, text=True)


def supported_levels(program):
    """From the lowest to the highest."""
    built = re.search(r"^CPU kernels: .*, of (.*);", run([program, "--help"], "").stdout, re.MULTILINE)[1].split(", ")
    return [level for level in built if run([program, "--help"], level).returncode == 0]


def images_per_second(command, level):
    done = run(command, level)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return float(re.findall(r"^Epoch: .* (\d+) img/s", done.stdout, re.MULTILINE)[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=["convnet", "mlp", "resnet18", "vit"], default="convnet")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="per round; the last one counts")
    parser.add_argument("--program", default=str(PROJECT / "build/levels/bin/ch01_single_device"))
    flags = parser.parse_args()
    levels = supported_levels(flags.program)
    if len(levels) < 2:
        print(f"level_ratio: {flags.program} has no two levels for this processor, but {', '.join(levels)}; "
              "the preset levels builds three", file=sys.stderr)
        return 3
    command = ["taskset", "-c", ",".join(map(str, range(flags.threads))), flags.program, "--data", flags.data, "--model",
               flags.model, "--threads", str(flags.threads), "--epochs", str(flags.epochs), "--batch-size", "64",
               "--optimizer", "adam"]
    rates = {level: [] for level in levels}
    for _ in range(flags.rounds):
        for level in levels:
            rates[level].append(images_per_second(command, level))
    highest = statistics.median(rates[levels[-1]])
    cores = "core" if flags.threads == 1 else "cores"
    print(f"{flags.model}, {flags.threads} {cores}, batch 64, Adam, medians of {flags.rounds} rounds in turn:\n")
    print(f"| level | img/s | share of {levels[-1]} | from | to |\n|---|---:|---:|---:|---:|")
    for level, level_rates in rates.items():
        median = statistics.median(level_rates)
        print(f"| {level} | {median:.0f} | {median / highest:.2f} | {min(level_rates):.0f} | {max(level_rates):.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
