#!/usr/bin/env python3
"""Times tensor parallelism on two cores, beside one rank and beside PyTorch's.

    tensor_parallel_ratio.py [--rounds 3] [--torch PYTHON] [--programs build/release/bin]

Trains a vision transformer on generated images; every step takes all of them. One rank, two ranks of chapter 8, and two
processes of PyTorch (torch_tensor_parallel.py, from the same weights) take turns; the times are medians per step without
the first two steps of every run. Fails unless PyTorch's losses equal ours within 1e-5. `predicted` is the step time of two
ranks that wait for nothing but the computation: what one of them takes alone. Prints Markdown.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STEPS, IMAGES, SKIPPED = 12, 64, 2
SIZES = ["--depth", 8, "--width", 64, "--heads", 4]


def call(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with torch and safetensors")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    flags = parser.parse_args()
    seconds, losses, predicted = {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        data, out = pathlib.Path(folder) / "data", pathlib.Path(folder) / "out"
        call(flags.programs / "make_generated_data", "--train", IMAGES, "--test", 8, data)

        def train(name, *more, steps=STEPS):
            call(flags.programs / "ch08_tensor_parallel", "--data", data, "--model", "vit", *SIZES, "--batch-size", IMAGES,
                 "--epochs", steps, "--out", out, *more)  # fmt: skip
            epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            seconds.setdefault(name, []).extend(epoch["seconds"] for epoch in epochs[SKIPPED:])
            losses[name] = [epoch["loss"] for epoch in epochs]
            return epochs

        # The initial weights: a step with a learning rate this small changes none of them.
        train("initial", "--mesh", "tp=1", "--lr", 1e-30, steps=1)
        weights = (out / "weights.safetensors").rename(pathlib.Path(folder) / "initial.safetensors")
        for _ in range(flags.rounds):
            train("one rank", "--mesh", "tp=1")
            epochs = train("two ranks", "--mesh", "tp=2")
            predicted += [epoch["predicted_seconds"] for epoch in epochs[SKIPPED:]]
            train("two ranks, --overlap", "--mesh", "tp=2", "--overlap")
            if flags.torch:
                text = call(flags.torch, HERE / "torch_tensor_parallel.py", "--data", data, "--weights", weights,
                            "--steps", STEPS, *SIZES)  # fmt: skip
                steps = re.findall(r"loss (\S+) seconds (\S+)", text)
                losses["PyTorch, two ranks"] = [float(loss) for loss, _ in steps]
                seconds.setdefault("PyTorch, two ranks", []).extend(float(time) for _, time in steps[SKIPPED:])
    median = {name: statistics.median(times) for name, times in seconds.items() if times}
    base = median["one rank"]
    print("| | ms per step | speed over one rank |\n|---|---:|---:|")
    for name, time in median.items():
        print(f"| {name} | {1e3 * time:.1f} | {base / time:.2f} |")
    expected = statistics.median(predicted)
    print(f"| two ranks, predicted | {1e3 * expected:.1f} | {base / expected:.2f} |")
    print(f"\nmeasured / predicted: {median['two ranks'] / expected:.3f}")
    if flags.torch:
        theirs = losses["PyTorch, two ranks"]
        difference = max(abs(a - b) / abs(b) for a, b in zip(losses["two ranks"], theirs))
        ratio = median["PyTorch, two ranks"] / median["two ranks"]
        print(f"PyTorch's step takes {ratio:.2f} times as long; the losses of {STEPS} steps differ by {difference:.1e} at most")
        assert difference < 1e-5


if __name__ == "__main__":
    main()
