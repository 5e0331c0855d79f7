#!/usr/bin/env python3
"""Random settings, good and absurd, for every program: each is honoured, or refused as it should be.

Two kinds of cases, both made from --seed and the number of the case alone:
  flags    a command line for one of the programs
  config   a run's config.json with one or two changed values, from which the run is resumed
A case passes when the program ends in time, with exit code 0, 2, 3, 4 or 130; when an error is one line that names a
flag, a file or a variable that was given (compare has one line per run that it cannot compare); and when no sanitizer
has reported anything. A case that fails is printed with its command; `--only NUMBER` runs it again.
Exit code: 0 if all cases passed, 1 if not.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

EXIT_CODES = {0, 2, 3, 4, 130}
ABSURD = ["", " ", "-1", " -1", "0", "-0", "1e300", "-1e300", "1e-400", "nan", "inf", "32.9", "010", "0x10", "1,2", "foo",
          "3e19", "4294967298", "2147483648", "9223372036854775808", "18446744073709551616", "KiB", "é", "a\nb", "\x1b[31m",
          "9" * 400]

# What a flag may be given: good values, and those at and beyond its bounds. Every flag may get an absurd one too.
COMMON = {
    "batch-size": ["16", "32", "1", "40", "1000", "1048576", "1048577"],
    "optimizer": ["sgd", "adam", "adamw", "adagrad"],
    "lr": ["0", "0.01", "1", "1e-100", "1e100", "1e101"],
    "momentum": ["0", "0.5", "1", "1.1"],
    "weight-decay": ["0", "1e-4", "1e100"],
    "decay": ["all", "weights"],
    "clip-norm": ["0", "0.5", "1e100", "1e101"],
    "lr-schedule": ["constant", "cosine", "step"],
    "lr-warmup": ["0", "3", "1073741824", "1073741825"],
    "seed": ["0", "7", "18446744073709551615"],
    "head": ["logits", "softmax"],
    "model": ["convnet", "toy", "vit", "mlp", "gpt"],
    "depth": ["0", "1", "2", "256", "257"],
    "width": ["0", "16", "512", "8193"],  # 8192 is legal, but a vit of it takes minutes and most of the memory
    "heads": ["0", "2", "3", "1024", "1025"],
    "context": ["0", "1", "16", "4097"],  # attention over 4096 bytes is legal, and takes minutes
    "tie-head": None,
    "weights": ["run/weights.safetensors", "run", "tiny", "nowhere", "profile.json"],
    "weights-except": ["fc", "fc3", "fc1,fc3", ",", "nothing"],
    "dropout": ["0", "0.1", "0.999", "1"],
    "sample": ["0", "5", "1048577"],
    # 1024 is legal too, but the 65,536 patches of a vit's image attend to each other for days.
    "image-size": ["0", "32", "31", "64", "1025"],
    "device": ["cpu", "cpu:0", "cpu:1", "cpu:128", "cuda", "cuda:1", "cuda:4294967296"],
    "threads": ["1", "2", "1025"],
    "resume": ["run", "nowhere", "tiny"],
    "data": ["tiny", "nowhere", "generated", "run", "text:book", "text:profile.json", "text:nowhere"],
    "augment": None,
    "tf32": None,
    "profile": None,
    "summary": None,
    "accept-new-data": None,
}
MICROBATCHES = {"microbatches": ["1", "2", "4", "16", "32", "65536", "65537"]}
RANKS = {
    "profile-file": ["profile.json", "huge_profile.json", "nowhere.json", "tiny"],
    "ranks": ["1", "2", "3", "4", "12", "13", "128", "129"],
    "split": ["6,6", "3,9", "4,4,4", "3,3,3,3", "12", "1,2,9", "6,", ",6", "2147483647,2147483647,14", "13", "0,12"],
    "balance": ["layers", "params", "time", "pipedream"],
    "clock": ["wall", "virtual", "modelled"],
    "link": ["none", "nvlink4", "ethernet100", "20us,12.5GB/s", "2e-5,12.5e9", "1e308GB/s,1", "1,0", "3601,1", "0,1e308GB/s"],
    "transport": ["thread", "nccl"],
    "timeout": ["30", "1e-6", "1e-7", "1e6", "1000001", "1e9", "1e18"],
}
RECOMPUTE = {"recompute": None}
GRAPH = {"graph": None, "no-graph": None}
PROGRAMS = {
    "ch01_single_device": {**COMMON, **MICROBATCHES, "clock": ["wall", "virtual", "modelled"], **GRAPH},
    "ch02_naive_model_parallel": {**COMMON, **RANKS, **GRAPH},
    "ch03_gpipe": {**COMMON, **MICROBATCHES, **RANKS, **RECOMPUTE, **GRAPH, "schedule": ["gpipe", "by-hand", "1f1b"]},
    "ch04_pipedream": {
        **COMMON, **MICROBATCHES, **RANKS, **RECOMPUTE, **GRAPH,
        "versions": ["stash", "vertical", "2bw", "flush", "none"],
        "schedule": ["1f1b", "by-hand", "gpipe"],
        "replicas": ["1,1", "2,1", "1,2,1", "128,128", "2147483647,2", "0,1"],
        "lr-discount": ["0", "3", "1073741824"],
        "ledger": None, "version-check": None, "no-version-check": None,
    },
    "ch05_interleaved": {
        **COMMON, **MICROBATCHES, **RANKS, **RECOMPUTE, **GRAPH,
        "schedule": ["interleaved", "1f1b", "foldx_aiao", "interleaved-sync", "zb-h1", "zb-h2", "interleaved-zb", "zbv",
                     "dualpipev", "gpipe", "naive", "good.csv",
                     "overflow.csv", "huge.csv", "short.csv", "nowhere.csv"],
        "chunks": ["0", "1", "2", "3", "6", "1024", "1025"],
        "receives": ["at-use", "ahead", "1", "7", "0", "-1", "soon"],
        "group": ["0", "2", "4", "65536", "65537"],
    },
    "ch06_ddp": {
        **COMMON, **MICROBATCHES, **RANKS, **RECOMPUTE, **GRAPH,
        "mode": ["buckets", "single", "parameter", "central"],
        "reduce": ["ordered", "native"],
        "mesh": ["dp=2", "dp=2,pp=2", "pp=2", "dp=1,pp=1", "dp=128,pp=2", "dp=2147483647,pp=2", "dp=2,", "dp=2,dp=2"],
        "bucket-size": ["4KiB", "16KiB", "1", "0", "1024GiB", "1099511627777", "16777216TiB", "64kb"],
        "first-bucket-size": ["4KiB", "1", "0", "17179869184GiB"],
        "compress": ["none", "half"],
        "schedule": ["1f1b", "gpipe", "zb-h1", "naive", "good.csv"],
        "find-unused": None, "sync-batch-norm": None,
    },
    "ch07_one_controller": {
        **COMMON, **MICROBATCHES, **{flag: RANKS[flag] for flag in ("ranks", "split", "balance", "clock", "timeout")},
        "form": ["naive", "pipelined", "remote"],
        "splits": ["1", "1,2", "4,1", "0", "1,x", "65"],
        "copy-stream": ["compute", "own"],
        "synchronous": None,
    },
}
PROGRAMS["ch08_tensor_parallel"] = {
    **COMMON, **MICROBATCHES, **RANKS, **RECOMPUTE, **GRAPH,
    "mesh": ["tp=2", "dp=2,tp=2", "pp=2,tp=2", "tp=3", "tp=1", "tp=129", "tp=2,tp=2", "tp=0"],
    "rank-order": ["tp-dp-pp", "pp-dp-tp", "tp-tp-pp", "tp"],
    "tensor-slices": ["1", "2", "4", "0", "129"],
    "sequence-parallel": None,
    "class-parallel": None,
    "overlap": None,
    "schedule": ["1f1b", "gpipe", "zb-h1", "naive", "good.csv"],
    "bucket-size": ["4KiB", "0"],
}
PROGRAMS["ch09_sharded_data_parallel"] = {
    **COMMON, **MICROBATCHES,
    **{flag: RANKS[flag] for flag in ("ranks", "clock", "link", "transport", "timeout")},
    "mesh": ["dp=2,shard=2", "shard=3", "dp=2", "dp=1,shard=1", "pp=2", "shard=129", "dp=2147483647,shard=2", "shard=0"],
    "shard": ["optimizer", "gradients", "parameters"],
    "prefetch": ["0", "1", "3", "65536", "65537"],
    "unit-layers": ["6,6", "3,9", "4,4,4", "12", "13", "0,12", "6,", "2147483647,2147483647,14"],
    "accumulation": ["whole", "sharded"],
    "reshard-after-forward": None, "no-reshard-after-forward": None, "by-hand": None, "sync-batch-norm": None,
}
GENERATED = {"train": ["10", "40", "1000001"], "test": ["10", "20", "1000001"], "seed": COMMON["seed"]}
COMPARED = ["run", "run/metrics.jsonl", "log.txt", "nowhere", "tiny", "huge_profile.json", "run/../run", ""]
ALL_FLAGS = sorted({flag for flags in PROGRAMS.values() for flag in flags})

# As a launcher would start one process.
LAUNCHED = {"RANK": ["0", "-1", "1e300", "4294967296"], "WORLD_SIZE": ["1", "1", "2", "2147483647", "0", "x"],
            "LOCAL_RANK": ["0", "-1", "y"], "MASTER_ADDR": ["127.0.0.1"], "MASTER_PORT": ["29500", "0", "65536", "z"],
            "TORCHELASTIC_RUN_ID": ["none"]}

# What a value of config.json is changed to.
JSON_VALUES = [None, True, False, [], {}, "", "foo", " -1", "2", -1, -3, 0, 1, 2, 3, 32.9, 1e300, -1e300, 4294967298,
               2147483648, 2**63, 2**64, 10**30, 0.5, 1e-300, "virtual", "adam", "1f1b", "6,6", "dp=2,pp=2", "mpi",
               "time", "stash", "buckets", "2147483647,2147483647,14", "a\nb"]


class Case:
    """A command with its folder's changes, and what an error may name besides a flag."""

    def __init__(self, command, environment=(), config=None, run="run"):
        self.command = command
        self.environment = dict(environment)
        self.config = config
        self.run = run

    def __str__(self):
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in self.environment.items())
        change = f"   (with {self.run}/config.json: {json.dumps(self.config)})" if self.config is not None else ""
        return variables + shlex.join(self.command) + change


class Workshop:
    """The folder that every case gets a copy of: small data, runs, profiles and tables."""

    def __init__(self, programs, folder):
        self.programs = programs
        self.folder = folder
        self.run(["make_generated_data", "tiny", "--train", "40", "--test", "20"])
        few = ["--data", "tiny", "--epochs", "1", "--batch-size", "16"]
        pipeline = few + ["--balance", "layers", "--microbatches", "2"]
        log = self.run(["ch01_single_device", *few, "--out", "run"])
        (folder / "log.txt").write_text(log)
        self.run(["ch03_gpipe", *pipeline, "--out", "run_gpipe"])
        self.run(["ch04_pipedream", *pipeline, "--profile", "--out", "run_pipedream"])
        shutil.copy(folder / "run_pipedream" / "profile.json", folder)
        self.run(["ch05_interleaved", *pipeline, "--out", "run_interleaved"])
        self.run(["ch06_ddp", *few, "--out", "run_ddp"])
        (folder / "good.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
        (folder / "short.csv").write_text("0F0,0B0\n1F0\n")
        (folder / "overflow.csv").write_text("0F2147483647\n")
        (folder / "huge.csv").write_text("2147483646F0,0F2147483646\n")
        profile = json.loads((folder / "profile.json").read_text())
        profile["layers"][0]["kept_bytes"] = 1e300
        profile["microbatch"] = 2**63
        (folder / "huge_profile.json").write_text(json.dumps(profile))
        self.runs = {name: json.loads((folder / name / "config.json").read_text())
                     for name in ("run", "run_gpipe", "run_pipedream", "run_interleaved", "run_ddp")}

    def run(self, command):
        done = subprocess.run([self.programs / command[0], *command[1:]], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"flag_settings.py: {shlex.join(command)} failed: {done.stderr}")
        return done.stdout

    def flag_case(self, choice):
        """A random command line. `choice` is the case's own random.Random."""
        program = choice.choices([*PROGRAMS, "make_generated_data", "compare"], [4, 3, 4, 5, 5, 5, 4, 4, 4, 1, 2])[0]
        if program == "compare":
            command = [program, *choice.choices(COMPARED, k=choice.randint(0, 3))]
            for flag, values in {"baseline": COMPARED, "svg": ["a.svg", "nowhere/a.svg", ""]}.items():
                if choice.random() < 0.3:
                    command += [f"--{flag}", choice.choice(values)]
            return Case(command + ["--markdown"] * choice.randint(0, 1))
        if program == "make_generated_data":
            return Case([program, "made", *self.flags(choice, GENERATED, ["train", "test", *GENERATED])])
        known = PROGRAMS[program]
        names = choice.sample(sorted(known), choice.choice([1, 2, 3, 4, 6]))
        if choice.random() < 0.05:
            names.append(choice.choice(ALL_FLAGS))  # perhaps of another chapter
        command = [program, *self.flags(choice, known, names)]
        explains = choice.random() < 0.5
        if choice.random() < 0.2:
            # A legal number of epochs that would take days is only explained.
            command += ["--epochs", choice.choice(ABSURD + ["1", "2"] + ["1073741824", "1073741825"] * explains)]
        else:
            command += ["--epochs", "1"]
        if "--data" not in command:
            command += ["--smoke"] if explains and choice.random() < 0.2 else ["--data", "tiny"]
        command += ["--explain"] * explains + ["--out", "new"] * (choice.random() < 0.3)
        launched = choice.random() < 0.06
        return Case(command, {name: choice.choice(values) for name, values in LAUNCHED.items()} if launched else {})

    def flags(self, choice, known, names):
        absurd = choice.choice([0, 0, 0.3])  # the share; without any, legal settings meet
        arguments = []
        for name in names:
            values = known.get(name, ["1"])
            arguments.append(f"--{name}")
            if values is not None:
                arguments.append(choice.choice(ABSURD if choice.random() < absurd else values))
        return arguments

    def config_case(self, choice):
        """A resumed run whose settings were changed."""
        run = choice.choice(sorted(self.runs))
        config = dict(self.runs[run])
        change = {}
        for name in choice.sample(sorted(config), choice.choice([1, 1, 1, 2])):
            if choice.random() < 0.05:
                change[name] = "(left out)"
                del config[name]
            else:
                change[name] = config[name] = choice.choice(JSON_VALUES)
        case = Case([self.runs[run]["program"], "--resume", run, "--epochs", "2"], config=change, run=run)
        case.text = json.dumps(config)
        return case


def complaint(case, code, out, err):
    """What is wrong with how a program ended; "" if all is well."""
    if re.search(r"Sanitizer|runtime error:", out + err):
        return "a sanitizer's report"
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if code == 0:
        return ""
    lines = err.removesuffix("\n").split("\n")
    if len(lines) != 1 and not all(line.startswith("compare: ") and "not comparable" in line for line in lines):
        return f"{len(lines)} lines of errors"
    given = [argument for argument in case.command[1:] if len(argument) > 3 and not argument.startswith("-")]
    files = ["config.json", "checkpoints"] if case.config is not None else []
    named = [word for word in [*given, *files, *case.environment] if word in err]
    without_help = re.sub(r"--help", "", err)
    if not named and not re.search(r"--[a-z]|RUN|not comparable", without_help):
        return "the error names no setting"
    return ""


def run_case(workshop, case, limit):
    """Runs `case` in a folder of its own. Returns its exit code (or "hang"), what is wrong, and its errors."""
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHED} | case.environment
    with tempfile.TemporaryDirectory(prefix="flag_settings_") as folder:
        shutil.copytree(workshop.folder, folder, dirs_exist_ok=True)
        if case.config is not None:
            (pathlib.Path(folder) / case.run / "config.json").write_text(case.text)
        command = [workshop.programs / case.command[0], *case.command[1:]]
        try:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=limit,
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return "hang", f"no end within {limit} s", ""
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return done.returncode, complaint(case, done.returncode, out, err), err


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin", help="folder of the programs")
    parser.add_argument("--count", type=int, default=2000, help="number of cases")
    parser.add_argument("--config", type=float, default=0.25, help="share of the cases that change config.json")
    parser.add_argument("--seed", type=int, default=1, help="other seeds make other cases")
    parser.add_argument("--only", type=int, help="run this case alone, and show its errors")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a case hangs")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flag_settings_") as folder:
        workshop = Workshop(flags.bin.resolve(), pathlib.Path(folder))

        def run_number(number):
            choice = random.Random(f"{flags.seed}/{number}")
            is_config = choice.random() < flags.config
            case = workshop.config_case(choice) if is_config else workshop.flag_case(choice)
            return number, is_config, case, *run_case(workshop, case, flags.limit)

        numbers = range(flags.count) if flags.only is None else [flags.only]
        codes = {False: collections.Counter(), True: collections.Counter()}
        failed = 0
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
            for number, is_config, case, code, wrong, err in pool.map(run_number, numbers):
                codes[is_config][code] += 1
                failed += bool(wrong)
                if wrong or flags.only is not None:
                    print(f"case {number}: {wrong or f'exit code {code}'}\n  {case}\n  {err.strip()}", flush=True)
    for is_config, kind in enumerate(["flag settings", "changed config.json"]):
        counts = codes[bool(is_config)]
        each = ", ".join(f"{count} with {code}" for code, count in sorted(counts.items(), key=str))
        print(f"{kind}: {counts.total()} cases ended: {each or 'none'}")
    print(f"{failed} of {len(numbers)} cases failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
