#!/usr/bin/env python3
"""Times pipelines whose ranks share a GPU beside one device with the same micro-batches, in turn.

    cuda_pipeline_ratio.py --data FOLDER [--batch-sizes 64 1024] [--rounds 2] [--programs build/cuda/bin] [--limit 40]
                           [--host]

All train `convnet` with Adam, batches in 4 micro-batches, pipelines on 4 ranks, with and without CUDA graphs
(--no-graph). Of a run, the fastest of its epochs counts; of the rounds, the median. FOLDER is CIFAR-10 or a folder
that make_generated_data wrote. Prints Markdown: images per second, and the share of one device's with graphs. Ends
before a round that would take longer than the limit, in seconds, allows. --host adds what the threads of gpipe's ranks
do in a step, from the trace of its first steps: a GPU is not waited for, so these are the times of launches, of waits
for messages of other threads, and of everything else.
"""

import argparse
import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
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


def command_of(flags, batch_size, arguments, *more):
    command = [flags.programs / arguments[0], "--data", flags.data, "--device", flags.device, "--batch-size", batch_size,
               "--microbatches", 4, "--optimizer", "adam", *arguments[1:], *more]  # fmt: skip
    return [str(word) for word in command]


def images_per_second(flags, batch_size, arguments):
    """The rate of the fastest epoch after the first, which records; None, and a line on why, if the run failed."""
    command = command_of(flags, batch_size, arguments, "--epochs", flags.epochs)
    done = subprocess.run(command, capture_output=True, text=True)
    rates = re.findall(r"^Epoch: .* (\d+) img/s", done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(rates) < 2:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        print(f"{' '.join(arguments)} ended with {done.returncode} and said: {said}\n", flush=True)
        return None
    return max(float(rate) for rate in rates[1:])


def host_times(events):
    """Microseconds per step of each rank by span, without the spans in it; of the later half of the steps in the trace,
    as the first ones record."""
    times = {}
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 1 and event["tid"] < 1000]
    for rank in sorted({span["tid"] for span in spans}):
        own = sorted((span for span in spans if span["tid"] == rank), key=lambda span: (span["ts"], -span["dur"]))
        steps = [span for span in own if span["cat"] == "step"]
        steps = steps[len(steps) // 2 :]
        sums, outer = collections.Counter(), []
        for span in own:
            end = span["ts"] + span["dur"]
            if not steps[0]["ts"] <= span["ts"] < steps[-1]["ts"] + steps[-1]["dur"]:
                continue
            while outer and outer[-1][1] <= span["ts"]:
                outer.pop()
            name = re.sub(r"^\d+([A-Z_]+)\d+$", r"\1", span["name"])  # "1SEND_F0": as in schedules
            name = {"step": "rest", "wait": f"{name}: wait"}.get(span["cat"], name)
            sums[name] += span["dur"] / len(steps)
            if outer:
                sums[outer[-1][0]] -= span["dur"] / len(steps)
            outer.append((name, end))
        times[rank - 1] = sums
    return times


def print_host_times(flags, batch_size):
    """Trains gpipe for an epoch, and prints where its threads' time went."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = command_of(flags, batch_size, RUNS["gpipe"], "--epochs", 1, "--out", run)
        done = subprocess.run(command, capture_output=True)
        if done.returncode != 0 or not (run / "trace.json").exists():
            print(f"\ngpipe, batch {batch_size}, ended with {done.returncode} and wrote no trace")
            return
        times = host_times(json.loads((run / "trace.json").read_text())["traceEvents"])
    names = [name for name, _ in sum(times.values(), collections.Counter()).most_common()]
    print(f"\nThreads of gpipe, batch {batch_size}, us per step with a trace:\n")
    print(f"| rank | step | {' | '.join(names)} |\n|{'---:|' * (len(names) + 2)}")
    for rank, sums in times.items():
        print(f"| {rank} | {sum(sums.values()):.0f} | {' | '.join(f'{sums[name]:.0f}' for name in names)} |")


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
    parser.add_argument("--host", action="store_true", help="print what the threads of gpipe's ranks do")
    parser.add_argument("--device", default="cuda")
    flags = parser.parse_args()

    rates = measure(flags)
    print("| batch | run | img/s, median | of one device | all rounds |\n|---:|---|---:|---:|---|")
    for (size, name), values in rates.items():
        one = rates[size, "one device"]
        if values and one:
            median = statistics.median(values)
            print(f"| {size} | {name} | {median:.0f} | {median / statistics.median(one):.2f} | "
                  f"{', '.join(f'{value:.0f}' for value in values)} |")  # fmt: skip
    for size in flags.batch_sizes if flags.host else ():
        print_host_times(flags, size)
    if not all(rates.values()):
        sys.exit("some runs failed")


if __name__ == "__main__":
    main()
