#!/usr/bin/env python3
"""Sets figures that others published beside what `simulate` says and what this machine measures.

    published.py --data FOLDER [--programs build/release/bin] [--rounds 2] [--epochs 10] [--svg FILE]

FOLDER is CIFAR-10. Prints the page docs/measurements/published.md without its heading: published_page.md with the figures
filled in. scripts/measure_published.sh runs it. --rounds are those of ResNet-50; the other figures are medians of epochs.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import string
import subprocess
import tempfile

import split_sweep

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGS = ROOT / "docs/published"
STEPS = -(-50_000 // 64)  # of an epoch of the course
COURSE = ["--head", "softmax", "--optimizer", "adam", "--lr", "0.001", "--batch-size", "64"]
FOUR, TWO, PARTS = ["--ranks", "4", "--split", "3,3,5,2"], ["--ranks", "2", "--split", "3,10"], ["--microbatches", "8"]
COURSE_RUNS = {
    "one_virtual": ["ch01_single_device", "--clock", "virtual"],
    "one_in_8_virtual": ["ch01_single_device", "--clock", "virtual", *PARTS],
    "naive_4_virtual": ["ch02_naive_model_parallel", "--clock", "virtual", *FOUR],
    "pipeline_4_virtual": ["ch03_gpipe", "--clock", "virtual", *FOUR, *PARTS],
    "pipeline_4_of_16_virtual": ["ch03_gpipe", "--clock", "virtual", *FOUR, "--microbatches", "4"],
    "one_wall": ["ch01_single_device"],
    "naive_2_wall": ["ch02_naive_model_parallel", *TWO],
    "pipeline_2_wall": ["ch03_gpipe", *TWO, *PARTS],
}
# Seconds of three batches of ResNet-50 in the tutorials: by what ran, and by the number given to the RPC program.
TUTORIAL = {"one GPU": 3.75, "naive": 4.02, 20: 2.51, 12: 2.43}
RPC_TUTORIAL = {1: 16.45, 2: 12.33, 4: 10.16, 8: 9.08}
RESNET_BATCH, RESNET_IMAGE = 120, 128
# torchgpipe's speed with n partitions and m micro-batches, against n = 2, m = 1.
TORCHGPIPE = {(2, 4): 1.539, (2, 32): 1.773, (4, 4): 1.666, (4, 32): 2.709, (8, 4): 2.621, (8, 32): 4.953}
SOURCES = {
    "course": "the course",
    "li2019": "Li 2019",
    "li2020rpc": "Li 2020",
    "narayanan2021megatron": "Narayanan and others 2021",
    "kim2020": "Kim and others 2020",
}
MANY = 1200  # splits, so many that only the limit of endlessly many counts
DEPTH = 16  # equal blocks of the model with equal stages
EQUAL = ["--model", "vit", "--depth", DEPTH]


@dataclasses.dataclass
class Row:
    """A published figure and ours. The ratio is ours over the published one: measured, or else simulated."""

    figure: str
    source: str  # an anchor of docs/bibliography.md
    published: float
    simulated: float | None
    measured: float | None
    form: str = "{:.2f}"

    def markdown(self):
        show = lambda value: "–" if value is None else self.form.format(value)
        ours = self.simulated if self.measured is None else self.measured
        source = f"[{SOURCES[self.source]}](../bibliography.md#{self.source})"
        values = [show(self.published), show(self.simulated), show(self.measured), f"{ours / self.published:.2f}"]
        return f"| {' | '.join([self.figure, source, *values])} |"


def run(program, *arguments):
    done = subprocess.run([str(word) for word in (program, *arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{program} failed: {done.stderr}")
    return done.stdout


def median_of(folder, key):
    """The median of a figure over a run's epochs except the first; None if it has none."""
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values = [epoch[key] for epoch in epochs[1:] if key in epoch]
    return statistics.median(values) if values else None


def published_seconds(name):
    """The median epoch of a log without the first, as compare computes it."""
    return statistics.median(map(float, re.findall(r"time cost: ([\d.]+)s", (LOGS / name).read_text())[1:]))


def course_rows(flags, runs):
    """Trains as the course did. Its pipeline has four ranks; on two cores, those of the wall clock have two."""
    for name, (program, *arguments) in COURSE_RUNS.items():
        training = ["--data", flags.data, "--epochs", flags.epochs, *COURSE]
        run(flags.programs / program, *training, *arguments, "--out", runs / name)
    measured = {name: median_of(runs / name, "seconds") for name in COURSE_RUNS}
    predicted = {name: median_of(runs / name, "predicted_seconds") for name in COURSE_RUNS}
    logs = {"one": "single_gpu.log", "naive": "naive_4_gpus.log", "pipeline": "pipeline_4_gpus.log"}
    published = {kind: published_seconds(log) for kind, log in logs.items()}
    rows = [Row(f"one device, seconds per epoch, {clock} clock", "course", published["one"], None, measured[f"one_{clock}"])
            for clock in ("virtual", "wall")]  # fmt: skip
    for kind in ("naive", "pipeline"):
        name = f"{kind}_4_virtual"
        rows.append(Row(f"{kind}, four ranks, seconds per epoch, virtual clock", "course", published[kind], predicted[name],
                        measured[name]))  # fmt: skip
    for ranks, clock, where in (4, "virtual", "four ranks, virtual clock"), (2, "wall", "two ranks on two cores, wall clock"):
        one = measured[f"one_{clock}"]
        for kind in ("naive", "pipeline"):
            name = f"{kind}_{ranks}_{clock}"
            rows.append(Row(f"{kind}, {where}: speed over one device", "course", published["one"] / published[kind],
                            one / predicted[name], one / measured[name]))  # fmt: skip
    return rows, published, measured


def explain(flags, program, *arguments):
    """What simulate says for a step whose stages are equal, in units: a forward takes 1, a backward 2."""
    with tempfile.TemporaryDirectory() as folder:
        equal = ["--smoke", "--model", "resnet50", "--batch-size", MANY, "--balance", "layers"]  # planned, never run
        run(flags.programs / program, *equal, *arguments, "--explain", "--out", folder)
        step = json.loads((pathlib.Path(folder) / "prediction.json").read_text())
        trace = json.loads((pathlib.Path(folder) / "schedule_trace.json").read_text())
    return step["step_seconds"], step["idle"], forwards_of(trace)


def forwards_of(trace):
    """(start, seconds) of the measured forwards of a trace, or of the predicted ones if it has no others."""
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X" and re.fullmatch(r"\d+F\d+", event["name"])]
    first = min(span["pid"] for span in spans)
    return [(span["ts"] / 1e6, span["dur"] / 1e6) for span in spans if span["pid"] == first and span["cat"] == "action"]


def blocks_per_stage(stages):
    """The layers of each stage with equally many blocks; the embedding comes before them, norm, mean and head after."""
    layers = [DEPTH // stages] * stages
    layers[0] += 1
    layers[-1] += 3
    return ["--split", ",".join(map(str, layers))]


def train_equal(flags, runs, name, program, ranks, parts, *arguments, stages=None):
    """Trains the model with equal stages on the virtual clock; returns the folder of the run."""
    training = ["--data", runs / "images", "--batch-size", 256, "--epochs", 4, "--clock", "virtual"]
    pipeline = ["--ranks", ranks, "--microbatches", parts, *blocks_per_stage(stages or ranks)]
    run(flags.programs / program, *EQUAL, *training, *pipeline, *arguments, "--out", runs / name)
    return runs / name


def tick_row(flags, runs):
    """How many ticks the forwards of a step take, where a tick is the median time of its forwards."""
    folder = train_equal(flags, runs, "ticks", "ch03_gpipe", 4, 8)
    forwards = sorted(forwards_of(json.loads((folder / "trace.json").read_text())))
    ticks = []
    for step in range(0, len(forwards), 4 * 8):
        spans = forwards[step : step + 4 * 8]
        length = max(start + seconds for start, seconds in spans) - spans[0][0]
        ticks.append(length / statistics.median(seconds for _, seconds in spans))
    units = explain(flags, "ch03_gpipe", "--ranks", 4, "--microbatches", 8)[2]
    return Row("clock ticks of the forward of 8 micro-batches on 4 stages", "course", 11,
               max(start + seconds for start, seconds in units), statistics.median(ticks), "{:.1f}")  # fmt: skip


def bubble_rows(flags, runs):
    """Interleaved 1F1B with v chunks per rank: its idle time over that of v = 1."""
    simulated, measured = {}, {}
    for chunks in (1, 2, 4):
        schedule = ["--schedule", "1f1b" if chunks == 1 else "interleaved", "--chunks", chunks]
        seconds, idle, _ = explain(flags, "ch05_interleaved", "--ranks", 4, "--microbatches", 8, *schedule)
        simulated[chunks] = seconds * idle / chunks  # a chunk's forward takes 1 / chunks of a stage's
        folder = train_equal(flags, runs, f"chunks_{chunks}", "ch05_interleaved", 4, 8, *schedule, stages=4 * chunks)
        measured[chunks] = median_of(folder, "seconds") * median_of(folder, "idle")
    return [Row(f"interleaved 1F1B, v = {chunks}: idle time over that of v = 1", "narayanan2021megatron", 1 / chunks,
                simulated[chunks] / simulated[1], measured[chunks] / measured[1]) for chunks in (2, 4)]  # fmt: skip


def torchgpipe_rows(flags, runs):
    """GPipe with recomputation: speed over two ranks without micro-batches."""

    def seconds(ranks, parts):
        units = explain(flags, "ch03_gpipe", "--ranks", ranks, "--microbatches", parts)[0] / (ranks * parts)
        folder = train_equal(flags, runs, f"gpipe_{ranks}_{parts}", "ch03_gpipe", ranks, parts, "--recompute")
        return units, median_of(folder, "seconds")

    base = seconds(2, 1)
    rows = []
    for (ranks, parts), published in TORCHGPIPE.items():
        units, measured = seconds(ranks, parts)
        rows.append(Row(f"torchgpipe, n = {ranks}, m = {parts}: speed over n = 2, m = 1", "kim2020", published,
                        base[0] / units, base[1] / measured))  # fmt: skip
    return rows


def resnet_rows(flags, runs):
    """The two ResNet-50 tutorials: images of 128 x 128, batches of 120, cut after the second group of blocks."""
    training = ["--data", runs / "resnet", "--model", "resnet50", "--image-size", RESNET_IMAGE]
    sizes = sorted({20, 12, *RPC_TUTORIAL, *(RESNET_BATCH // parts for parts in RPC_TUTORIAL)})
    found = split_sweep.sweep(flags.programs, training, "11,11", RESNET_BATCH, sizes, flags.rounds, "gpipe")
    return [*tutorial_rows(found), *ideal_rows(flags), *rpc_rows(found)]


def tutorial_rows(found):
    gpu, naive = TUTORIAL["one GPU"], TUTORIAL["naive"]
    rows = [Row("ResNet-50, naive split over two devices: speed over one", "li2019", gpu / naive, None,
                found.naive / found.one_device)]  # fmt: skip
    for size, over, published, ours in ((20, "one device", gpu, found.one_device), (12, "one device", gpu, found.one_device),
                                        (20, "the naive split", naive, found.naive)):  # fmt: skip
        rows.append(Row(f"ResNet-50 in splits of {size} images: speed over {over}", "li2019", published / TUTORIAL[size],
                        found.predicted[size] / ours, found.measured[size] / ours))  # fmt: skip
    return rows


def ideal_rows(flags):
    """What the tutorials compare with: two equal halves, in six splits and in so many that only the limit counts."""
    naive = explain(flags, "ch02_naive_model_parallel", "--ranks", 2)[0]
    rows = []
    for name, parts, ideal in ("six", 6, 12 / 7), ("endlessly many", MANY, 2):
        units = explain(flags, "ch03_gpipe", "--ranks", 2, "--microbatches", parts)[0] / parts
        rows.append(Row(f"equal halves in {name} splits: speed over the naive split", "li2019", ideal, naive / units, None))
    return rows


def rpc_rows(found):
    """The numbers 1, 2, 4, 8 as the text reads them, splits of a batch, and as its program takes them, images of a split."""
    rows = []
    for number, seconds in RPC_TUTORIAL.items():
        readings = [("{} split{}", RESNET_BATCH // number, RESNET_BATCH), ("splits of {} image{}", number, 1)]
        for what, size, base in readings if number > 1 else readings[:1]:
            figure, first = what.format(number, "s" * (number > 1)), what.format(1, "")
            rows.append(Row(f"ResNet-50 by remote calls, {figure}: speed over {first}", "li2020rpc",
                            RPC_TUTORIAL[1] / seconds, found.predicted[size] / found.predicted[base],
                            found.measured[size] / found.measured[base]))  # fmt: skip
    return rows


def comparison(flags, runs):
    """The table of compare: the course's logs, and ours, each group beside its own run on one device."""
    logs = [LOGS / name for name in ("single_gpu.log", "naive_4_gpus.log", "pipeline_4_gpus.log")]
    baselines = [logs[0], runs / "one_virtual", runs / "one_wall"]
    chosen = [word for baseline in baselines for word in ("--baseline", baseline)]
    svg = ["--svg", flags.svg] if flags.svg else []
    return run(flags.programs / "compare", *logs, *(runs / name for name in COURSE_RUNS), *chosen, *svg, "--markdown")


def texts(published, measured):
    """The figures in the text of the page."""
    added = lambda slow, fast: 1e3 * (slow - fast) / STEPS / 7  # milliseconds for each further micro-batch
    ours = {name: f"{measured['one_' + name.split('_')[-1]] / measured[name]:.2f}" for name in COURSE_RUNS}
    return ours | {
        "steps": str(STEPS),
        "published_step": f"{1e3 * published['one'] / STEPS:.1f}",
        "published_added": f"{added(published['pipeline'], published['naive']):.1f}",
        "our_step": f"{1e3 * measured['one_virtual'] / STEPS:.1f}",
        "our_step_in_8": f"{1e3 * measured['one_in_8_virtual'] / STEPS:.1f}",
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--svg", type=pathlib.Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = pathlib.Path(folder)
        for name, images in {"images": 1024, "resnet": RESNET_BATCH}.items():
            run(flags.programs / "make_generated_data", "--train", images, "--test", 16, runs / name)
        rows, published, measured = course_rows(flags, runs)
        rows += [tick_row(flags, runs), *resnet_rows(flags, runs), *bubble_rows(flags, runs), *torchgpipe_rows(flags, runs)]
        filled = texts(published, measured) | {
            "rows": "\n".join(row.markdown() for row in rows),
            "comparison": comparison(flags, runs).rstrip(),
            "rounds": flags.rounds,
            "epochs": flags.epochs,
        }
    print(string.Template(pathlib.Path(__file__).with_name("published_page.md").read_text()).substitute(filled), end="")


if __name__ == "__main__":
    main()
