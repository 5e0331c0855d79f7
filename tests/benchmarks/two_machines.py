#!/usr/bin/env python3
"""Trains on two machines that a virtual link joins, and compares a step with what simulate says about that link.

    two_machines.py [--link SECONDS,BYTES_PER_SECOND] [--programs build/release/bin]

Needs root (scripts/two_machines.sh). The prediction is that of --explain --profile with the same link; what is measured
is the median of all epochs but the first, a step of it, by the wall clock. The weights are compared with those that
threads train. Prints Markdown.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = 30
BATCH = 64
EPOCHS = 4
RUNS = [
    ("ch02_naive_model_parallel", []),
    ("ch03_gpipe", ["--microbatches", "4"]),
    ("ch03_gpipe", ["--microbatches", "8", "--receives", "8"]),  # with fewer, the prediction waits for receives to be posted
    ("ch05_interleaved", ["--microbatches", "8", "--schedule", "1f1b"]),
]


def run(command, **environment):
    """Runs a command; stops with what it said if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment})
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{result.stdout}{result.stderr}")


def measured_step(folder):
    """Seconds of a step, the median over all epochs but the first."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return statistics.median(json.loads(line)["seconds"] for line in lines[1:]) / STEPS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="0.02,12.5e6")
    parser.add_argument("--programs", default="build/release/bin")
    options = parser.parse_args()
    programs = (ROOT / options.programs).resolve()
    print("| program | predicted, ms a step | measured, ms | measured / predicted | weights |")
    print("|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data = folder / "data"
        run([programs / "make_generated_data", data, "--train", str(STEPS * BATCH), "--test", "64"])
        for number, (name, flags) in enumerate(RUNS):
            training = [programs / name, "--data", data, "--epochs", str(EPOCHS), "--split", "3,9", *flags]
            plan, far, near = (folder / f"{what}{number}" for what in ("plan", "far", "near"))
            run([*training, "--ranks", "2", "--clock", "virtual", "--link", options.link, "--explain", "--profile",
                 "--out", plan])
            run([ROOT / "scripts/two_machines.sh", "2", *training, "--out", far], LINK=options.link)
            run([*training, "--ranks", "2", "--out", near])
            predicted = json.loads((plan / "prediction.json").read_text())["step_seconds"]
            measured = measured_step(far)
            same = (far / "weights.safetensors").read_bytes() == (near / "weights.safetensors").read_bytes()
            print(f"| {' '.join([name, *flags])} | {1e3 * predicted:.1f} | {1e3 * measured:.1f} | "
                  f"{measured / predicted:.3f} | {'those of threads' if same else 'DIFFER'} |", flush=True)


if __name__ == "__main__":
    main()
