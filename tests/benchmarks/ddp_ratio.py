#!/usr/bin/env python3
"""Times data parallel training on two ranks beside one rank, beside the machine's own limit, and beside PyTorch.

    ddp_ratio.py --data FOLDER [--rounds 5] [--programs build/release/bin] [--torch PYTHON]

All train `convnet` by SGD, 64 images per rank, by the wall clock. The runs alternate; what is shown are medians over the
rounds of each run's fastest epoch but the first. PYTHON has torch. Prints Markdown.

limit    two programs of one rank at the same time, each on a core of its own, which do not talk to each other
limit, step by step
         what is left of that when each step takes as long as the slower of the two programs', from their traces: what
         ranks that meet once a step would reach if talking took no time
idle     the share of the ranks' time in which they wait, from metrics.jsonl
overlap  the share of the reductions' time that lies within backwards, from trace.json
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS = 4
CORES = 2
MODES = {
    "single": [],
    "parameter": [],
    "buckets": [],
    "buckets of 16 KiB": ["--first-bucket-size", "4KiB", "--bucket-size", "16KiB"],
    "central": [],
}


def fastest(text):
    """The best rate of all epochs but the first."""
    return max(float(rate) for rate in re.findall(r"^Epoch: .* (\d+) img/s", text, re.MULTILINE)[1:])


def steps_of(trace):
    """Microseconds of the computing of each step, the first ones left out."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    steps = []
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["cat"] in ("forward", "backward", "update"):
            if event["name"] == "normalize":  # the first of a step
                steps.append(0.0)
            steps[-1] += event["dur"]
    return steps[10:]


def idle_of(run):
    """The median over the epochs but the first."""
    lines = (run / "metrics.jsonl").read_text().splitlines()[1:]
    return statistics.median(json.loads(line)["idle"] for line in lines)


def overlap_of(trace):
    """The share of what lies on the tracks beside the ranks within the ranks' backwards."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    backwards, hidden, total = {}, 0.0, 0.0
    for event in events:
        if event["name"] == "backward" and event["cat"] == "action":
            backwards.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for event in events:
        if event["cat"] == "communication":
            begin, end = event["ts"], event["ts"] + event["dur"]
            total += end - begin
            hidden += sum(max(0.0, min(end, b) - max(begin, a)) for a, b in backwards.get(event["tid"] - 1000, []))
    return hidden / total if total else 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--torch", help="a Python that has torch; without it PyTorch is left out")
    flags = parser.parse_args()
    common = ["--data", flags.data, "--epochs", str(EPOCHS)]
    one = [str(flags.programs / "ch01_single_device"), *common, "--batch-size", "64"]

    def run(command, core=None):
        pinned = ["taskset", "-c", str(core)] if core is not None else []
        return subprocess.Popen([*pinned, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def rate(processes):
        texts = [process.communicate()[0] for process in processes]
        assert all(process.returncode == 0 for process in processes)
        return sum(fastest(text) for text in texts)

    rates, overlaps, idles = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(flags.rounds):
            rates.setdefault("one rank", []).append(rate([run(one, 0)]))
            outs = [pathlib.Path(folder) / f"core{core}" for core in range(CORES)]
            limit = rate([run([*one, "--out", str(out)], core) for core, out in enumerate(outs)])
            steps = [steps_of(out / "trace.json") for out in outs]
            slower = sum(max(pair) for pair in zip(*steps))
            rates.setdefault("limit", []).append(limit)
            rates.setdefault("limit, step by step", []).append(
                limit * sum(sum(pair) / CORES for pair in zip(*steps)) / slower
            )
            subprocess.run(["rm", "-r", *map(str, outs)], check=True)
            for name, more in MODES.items():
                out = pathlib.Path(folder) / name
                command = [str(flags.programs / "ch06_ddp"), *common, "--ranks", str(CORES), "--batch-size", "128",
                           "--mode", name.split()[0], *more, "--out", str(out)]  # fmt: skip
                rates.setdefault(name, []).append(rate([run(command)]))
                overlaps.setdefault(name, []).append(overlap_of(out / "trace.json"))
                idles.setdefault(name, []).append(idle_of(out))
                subprocess.run(["rm", "-r", str(out)], check=True)
            if flags.torch:
                command = [flags.torch, str(HERE / "torch_ddp.py"), *common, "--ranks", str(CORES)]
                rates.setdefault("PyTorch DDP, gloo", []).append(rate([run(command)]))

    median = {name: statistics.median(values) for name, values in rates.items()}
    print("| run | img/s | over one rank | over PyTorch | idle | overlap |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, value in median.items():
        torch = f"{value / median['PyTorch DDP, gloo']:.2f}" if flags.torch else "-"
        overlap = f"{statistics.median(overlaps[name]):.1%}" if name in overlaps else "-"
        idle = f"{statistics.median(idles[name]):.1%}" if name in idles else "-"
        print(f"| {name} | {value:.0f} | {value / median['one rank']:.2f} | {torch} | {idle} | {overlap} |")


if __name__ == "__main__":
    main()
