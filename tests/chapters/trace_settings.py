#!/usr/bin/env python3
"""Trains with random settings of all chapters, clocks and meshes, and checks the trace of each run (check_trace.py), and
that the parts of a step add up to it.

The settings are those of tests/fuzz/flag_settings.py, without its absurd values. A run that is refused is no case:
another one takes its place. Each case is made from --seed and its number alone; `--only NUMBER` runs it again.
Exit code: 0 if all traces were as they should be, 1 if not.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fuzz"))
import flag_settings  # noqa: E402
from check_trace import complaints_of  # noqa: E402

# What takes long, reads other files, needs a GPU, or prevents a trace.
LEFT_OUT = {"data", "device", "resume", "profile-file", "weights", "weights-except", "transport", "timeout", "image-size",
            "seed", "width", "depth", "heads", "lr", "weight-decay", "lr-warmup", "lr-discount", "model", "batch-size", "clock",
            "mesh", "ranks", "microbatches", "split", "threads"}
VIT = ["--model", "vit", "--depth", "2", "--width", "16", "--heads", "2"]
MESHES = {
    "ch06_ddp": ["dp=2,pp=2", "dp=2,pp=3", "dp=3,pp=2", "pp=2"],
    "ch09_sharded_data_parallel": ["dp=2,shard=2", "shard=3", "dp=3,shard=1"],
    "ch08_tensor_parallel": ["tp=2", "tp=2,pp=2", "dp=2,pp=2", "dp=2,tp=2", "dp=2,tp=2,pp=2"],
}
RANK_ORDERS = ["tp-dp-pp", "tp-pp-dp", "dp-pp-tp", "dp-tp-pp", "pp-dp-tp", "pp-tp-dp"]


def command_of(choice):
    """A random command line. `choice` is the try's own random.Random."""
    program = choice.choice(sorted(flag_settings.PROGRAMS))
    known = flag_settings.PROGRAMS[program]
    names = [name for name in sorted(known) if name not in LEFT_OUT]
    command = [program, "--data", "tiny", "--epochs", "1", "--out", "run", "--lr", "0.01"]
    command += ["--batch-size", choice.choice(["4", "8", "12", "16", "40"])]
    if program in MESHES and choice.random() < (1 if program == "ch08_tensor_parallel" else 0.5):
        command += ["--mesh", choice.choice(MESHES[program])]
    elif "ranks" in known:
        command += ["--ranks", choice.choice(["1", "2", "3", "4"])]
    if "microbatches" in known and choice.random() < 0.8:
        command += ["--microbatches", choice.choice(["1", "2", "3", "4", "8"])]
    if "clock" in known:
        command += ["--clock", choice.choice(known["clock"])]
    if program == "ch08_tensor_parallel" or choice.random() < 0.2:
        command += VIT
    for name in choice.sample(names, min(len(names), choice.choice([0, 1, 1, 2, 3]))):
        if name == "rank-order":
            command += ["--rank-order", choice.choice(RANK_ORDERS)]
        else:
            value = None if known[name] is None else choice.choice(known[name])
            if value != "none" or name != "versions":  # which stops at the first weight that changed
                command += [f"--{name}"] + ([] if value is None else [value])
    return command


def complaints_of_parts(metrics):
    """What is wrong with the parts of the steps in the text of a metrics.jsonl."""
    wrong = []
    for epoch in map(json.loads, metrics.splitlines()):
        parts, step = epoch.get("step_parts"), epoch["seconds"] / epoch["steps"]
        if parts is not None and not abs(sum(parts.values()) - step) <= 1e-9 * step:  # nor NaN
            wrong.append(f"the parts of a step of {step} s add up to {sum(parts.values())} s: {parts}")
    return wrong


def run_case(programs, data, seed, number, limit):
    """Runs the first accepted settings of a case. Returns its number, its command, whether it says the
    parts of a step, and what is wrong with its files."""
    for attempt in range(100):
        command = command_of(random.Random(f"{seed}/{number}/{attempt}"))
        with tempfile.TemporaryDirectory(prefix="trace_settings_") as folder:
            os.symlink(data, pathlib.Path(folder) / "tiny")
            (pathlib.Path(folder) / "good.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
            done = subprocess.run([programs / command[0], *command[1:]], cwd=folder, capture_output=True, text=True,
                                  timeout=limit, check=False)  # fmt: skip
            trace = pathlib.Path(folder) / "run" / "trace.json"
            if done.returncode == 0 and trace.exists():
                metrics = (trace.parent / "metrics.jsonl").read_text()
                wrong = complaints_of(json.loads(trace.read_text())) + complaints_of_parts(metrics)
                return number, command, '"step_parts"' in metrics, wrong
            if done.returncode not in (0, 2):
                return number, command, False, [f"exit code {done.returncode}: {done.stderr.strip()}"]
    return number, command, False, ["no settings were accepted"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin", help="folder of the programs")
    parser.add_argument("--count", type=int, default=500, help="number of cases")
    parser.add_argument("--seed", type=int, default=1, help="other seeds make other cases")
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a run hangs")
    flags = parser.parse_args()
    programs = flags.bin.resolve()
    failed, with_parts, chapters = 0, 0, collections.Counter()
    with tempfile.TemporaryDirectory(prefix="trace_settings_") as folder:
        data = pathlib.Path(folder) / "tiny"
        subprocess.run([programs / "make_generated_data", data, "--train", "40", "--test", "10"], check=True,
                       capture_output=True)  # fmt: skip
        numbers = range(flags.count) if flags.only is None else [flags.only]
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
            for number, command, has_parts, wrong in pool.map(
                lambda number: run_case(programs, data, flags.seed, number, flags.limit), numbers
            ):
                chapters[command[0]] += 1
                failed += bool(wrong)
                with_parts += has_parts
                if wrong or flags.only is not None:
                    print(f"case {number}: {shlex.join(command)}", *wrong[:5], sep="\n  ", flush=True)
    print(", ".join(f"{count} of {program}" for program, count in sorted(chapters.items())))
    print(f"{with_parts} runs say where the time of their steps goes")
    print(f"{failed} of {len(numbers)} runs have faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
