#!/usr/bin/env python3
"""Times sharded data parallelism on two cores, beside PyTorch's fully_shard.

    sharded_ratio.py [--rounds 3] [--torch PYTHON] [--programs build/release/bin] [--width 128]

Trains a vision transformer on generated images with Adam; every step takes all of them, half on each rank. Chapter 9 in two
processes that communicate by Gloo, the same in two threads, chapter 6, and two processes of PyTorch (torch_fully_shard.py,
from the same weights, a unit per block) take turns; the times are medians per step without the first two steps of every run.
Memory: of ours, what rank 0's tensors take at most from before the model on; of PyTorch, by how much the resident memory of
rank 0's process grows. Fails unless PyTorch's losses equal ours within 1e-5. Prints Markdown.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
START_RANKS = HERE.parents[1] / "scripts/start_ranks.sh"
TORCH = "PyTorch, fully_shard, two processes, Gloo"
STEPS, IMAGES, SKIPPED = 12, 64, 2


def call(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with torch and safetensors")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--width", type=int, default=128)
    flags = parser.parse_args()
    sizes = ["--depth", 8, "--width", flags.width, "--heads", 4]
    seconds, losses, mebibytes = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        data, out = pathlib.Path(folder) / "data", pathlib.Path(folder) / "out"
        call(flags.programs / "make_generated_data", "--train", IMAGES, "--test", 8, data)

        def train(name, program, *more, launch=(), steps=STEPS):
            call(*launch, flags.programs / program, "--data", data, "--model", "vit", *sizes, "--optimizer", "adam",
                 "--batch-size", IMAGES, "--epochs", steps, "--out", out, *more)  # fmt: skip
            epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            seconds.setdefault(name, []).extend(epoch["seconds"] for epoch in epochs[SKIPPED:])
            losses[name] = [epoch["loss"] for epoch in epochs]
            mebibytes[name] = max(epoch["peak_bytes"][0] for epoch in epochs) / 2**20

        # The initial weights: a step with a learning rate this small changes none of them.
        train("initial", "ch01_single_device", "--lr", 1e-30, steps=1)
        weights = (out / "weights.safetensors").rename(pathlib.Path(folder) / "initial.safetensors")
        for _ in range(flags.rounds):
            train("buckets, two threads", "ch06_ddp", "--ranks", 2)
            train("sharded, two threads", "ch09_sharded_data_parallel", "--ranks", 2)
            train("sharded, two processes, Gloo", "ch09_sharded_data_parallel", launch=[START_RANKS, 2])
            if flags.torch:
                text = call(flags.torch, HERE / "torch_fully_shard.py", "--data", data, "--weights", weights,
                            "--steps", STEPS, *sizes)  # fmt: skip
                steps = re.findall(r"loss (\S+) seconds (\S+)", text)
                losses[TORCH] = [float(loss) for loss, _ in steps]
                seconds.setdefault(TORCH, []).extend(float(time) for _, time in steps[SKIPPED:])
                mebibytes[TORCH] = int(re.search(r"grown (\d+)", text)[1]) / 2**20
    median = {name: statistics.median(times) for name, times in seconds.items() if times}
    print("| | ms per step | memory, MiB |\n|---|---:|---:|")
    for name, time in median.items():
        print(f"| {name} | {1e3 * time:.1f} | {mebibytes[name]:.1f} |")
    if flags.torch:
        ours = "sharded, two processes, Gloo"
        difference = max(abs(a - b) / abs(b) for a, b in zip(losses[ours], losses[TORCH]))
        print(f"\nPyTorch's step takes {median[TORCH] / median[ours]:.2f} times as long; the losses of {STEPS} steps differ "
              f"by {difference:.1e} at most")  # fmt: skip
        assert difference < 1e-5


if __name__ == "__main__":
    main()
