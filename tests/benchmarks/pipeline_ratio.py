#!/usr/bin/env python3
"""Times pipelines of two ranks beside one device, beside what `simulate` predicts, and beside PyTorch, in turn.

    pipeline_ratio.py --data FOLDER [--rounds 5] [--programs build/release/bin] [--torch PYTHON]

All train `convnet` with batch 256, a pipeline in 8 micro-batches. A machine may be shared and noisy, so the programs
alternate, and what is compared are medians over the rounds. FOLDER is CIFAR-10. PYTHON is one that has torch and numpy;
without it PyTorch is left out. Prints Markdown.

`predicted` is the time that simulate gives for the costs which the run itself measured, action by action. PyTorch's
step is that of torch_pipeline.py, beside it: the same layers per stage as ours chose, two processes that talk by gloo.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BATCH, MICROBATCHES, EPOCHS = 256, 8, 3
STEPS = -(-50_000 // BATCH)  # of an epoch of CIFAR-10
PARTS = ["--microbatches", str(MICROBATCHES)]
RUNS = {
    "one device": ["ch01_single_device", *PARTS],
    "one device, whole batches": ["ch01_single_device"],
    "naive": ["ch02_naive_model_parallel"],
    "gpipe": ["ch03_gpipe", *PARTS],
    "1f1b": ["ch05_interleaved", "--schedule", "1f1b", *PARTS],
    "virtual: 1f1b, 4 ranks": ["ch05_interleaved", "--schedule", "1f1b", "--ranks", "4", "--clock", "virtual", *PARTS],
}


def run_ours(programs, data, arguments):
    """The epochs of a run but the first, and the layers of its stages."""
    with tempfile.TemporaryDirectory() as folder:
        command = [programs / arguments[0], "--data", data, "--batch-size", BATCH, "--epochs", EPOCHS, "--out", folder]
        text = subprocess.run([*map(str, command), *arguments[1:]], check=True, capture_output=True, text=True).stdout
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    stages = re.search(r"^  stages +(\S+) layers", text, re.MULTILINE)
    return [json.loads(line) for line in lines][1:], stages.group(1) if stages else ""


def run_torch(python, data, schedule, split):
    command = [python, HERE / "torch_pipeline.py", "--data", data, "--schedule", schedule, "--split", split,
               "--batch-size", BATCH, *PARTS, "--steps", 60]  # fmt: skip
    text = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout
    return json.loads(text.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--torch", help="a Python that has torch")
    flags = parser.parse_args()

    seconds = {name: [] for name in RUNS}
    predicted = {name: [] for name in RUNS}
    torch_steps = {"gpipe": [], "1f1b": []}
    for _ in range(flags.rounds):
        splits = {}
        for name, arguments in RUNS.items():
            epochs, splits[name] = run_ours(flags.programs, flags.data, arguments)
            seconds[name].append(statistics.median(epoch["seconds"] for epoch in epochs))
            if "predicted_seconds" in epochs[0]:
                predicted[name].append(statistics.median(epoch["predicted_seconds"] for epoch in epochs))
        for schedule, steps in torch_steps.items():
            if flags.torch:
                steps.append(run_torch(flags.torch, flags.data, schedule, splits[schedule])["seconds_a_step"])

    median = {name: statistics.median(values) for name, values in seconds.items()}
    one = median["one device"]
    print(f"Seconds per epoch, medians of {flags.rounds} rounds in turn\n")
    print("| run | seconds | predicted | measured / predicted | speed-up | predicted speed-up | reached | spread |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, values in seconds.items():
        row = [f"{median[name]:.3f}", "", "", f"{one / median[name]:.3f}", "", ""]
        if predicted[name]:
            expected = statistics.median(predicted[name])
            row[1:6] = [f"{expected:.3f}", f"{median[name] / expected:.3f}", f"{one / median[name]:.3f}",
                        f"{one / expected:.3f}", f"{100 * expected / median[name]:.1f}%"]  # fmt: skip
        print(f"| {name} | {' | '.join(row)} | {100 * (max(values) / min(values) - 1):.1f}% |")
    whole = median["one device, whole batches"]
    print(f"\nnaive / one device, both with whole batches: {median['naive'] / whole:.3f}")
    for schedule, steps in torch_steps.items():
        if steps:
            ours = median[schedule] / STEPS
            print(f"{schedule}: a step takes {1e3 * ours:.2f} ms here, {1e3 * statistics.median(steps):.2f} ms in "
                  f"PyTorch: {ours / statistics.median(steps):.3f} of its time")  # fmt: skip


main()
