#!/usr/bin/env python3
"""Times pipelines whose ranks share a GPU beside one device with the same micro-batches, in turn.

    cuda_pipeline_ratio.py --data FOLDER [--batch-sizes 64 1024] [--rounds 2] [--programs build/cuda/bin] [--limit 40]

All train `convnet` with Adam, batches in 4 micro-batches, pipelines on 4 ranks, with and without CUDA graphs
(--no-graph). Of a run, the fastest of its epochs counts; of the rounds, the median. FOLDER is CIFAR-10 or a folder
that make_generated_data wrote. Prints Markdown: images per second, and the share of one device's with graphs. Ends
before a round that would take longer than the limit, in seconds, allows.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FOUR = ["--ranks", "4", "--balance", "layers"]
RUNS = {
    "one device": ["ch01_single_device"],
    "one device, launches": ["ch01_single_device", "--no-graph"],
    "gpipe": ["ch03_gpipe", *FOUR],
    "gpipe, launches": ["ch03_gpipe", *FOUR, "--no-graph"],
    "1f1b": ["ch05_interleaved", *FOUR, "--schedule", "1f1b"],
}


def images_per_second(flags, batch_size, arguments):
    """The rate of the fastest epoch after the first, which records; None, and a line on why, if the run failed."""
    command = [flags.programs / arguments[0], "--data", flags.data, "--device", "cuda", "--epochs", flags.epochs,
               "--batch-size", batch_size, "--microbatches", 4, "--optimizer", "adam", *arguments[1:]]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    rates = re.findall(r"^Epoch: .* (\d+) img/s", done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(rates) < 2:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        print(f"{' '.join(arguments)} ended with {done.returncode} and said: {said}\n", flush=True)
        return None
    return max(float(rate) for rate in rates[1:])


def measure(flags):
    """The rates of each batch size and run, round by round."""
    rates = {(size, name): [] for size in flags.batch_sizes for name in RUNS}
    start = time.monotonic()
    for _ in range(flags.rounds):
        round_start = time.monotonic()
        for (size, name), values in rates.items():
            rate = images_per_second(flags, size, RUNS[name])
            if rate is not None:
                values.append(rate)
        now = time.monotonic()
        if now + (now - round_start) > start + flags.limit:
            break
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/cuda/bin")
    parser.add_argument("--limit", type=float, default=40)
    flags = parser.parse_args()

    rates = measure(flags)
    print("| batch | run | img/s, median | of one device | all rounds |\n|---:|---|---:|---:|---|")
    for (size, name), values in rates.items():
        one = rates[size, "one device"]
        if values and one:
            median = statistics.median(values)
            print(f"| {size} | {name} | {median:.0f} | {median / statistics.median(one):.2f} | "
                  f"{', '.join(f'{value:.0f}' for value in values)} |")  # fmt: skip
    if not all(rates.values()):
        sys.exit("some runs failed")


if __name__ == "__main__":
    main()
