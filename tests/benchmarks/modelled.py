#!/usr/bin/env python3
"""How honest are modelled devices? Sets modelled times beside measured ones, and says which of them were fitted.

    modelled.py --programs FOLDER        Markdown, on standard output

FOLDER has modelled_steps, calibrate, the chapters and make_generated_data. Takes two minutes on one core.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU_PAGE = ROOT / "docs/measurements/gpu_check.md"
# Images per second of a training epoch on the H200 (docs/measurements/cuda.md).
EPOCHS = [("convnet", 64, [], 439190), ("convnet", 1024, [], 1591312), ("resnet18", 512, ["--tf32"], 44263),
          ("vit", 512, ["--tf32"], 167360), ("gpt", 512, ["--tf32"], 302285)]  # fmt: skip
COURSE = {"one device": 14.23, "naive": 14.98, "pipeline": 26.39}  # seconds per epoch (docs/published)
STEPS, BATCH, STAGES, PARTS = 782, 64, 4, 8
# Li 2019: ResNet-50, images of 128 x 128, batch 120, two halves: speed over one device.
TUTORIAL = {20: 1.49, 12: 1.54}
IMAGES = {"convnet": 6400, "vit": 320, "resnet18": 64}


class Machine:
    def __init__(self, programs, runs):
        self.programs, self.runs = programs, runs

    def run(self, program, *arguments):
        command = [self.programs / program, *arguments]
        return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, cwd=self.runs).stdout

    def step(self, device, model, batch, parts=1, size=0):
        """Modelled seconds of a training step, and its launches on the device."""
        _, seconds, launches = self.run("modelled_steps", f"{model},{batch},{parts},{size}", device).split()
        return float(seconds), int(launches)

    def calibrated(self, name, *arguments):
        file = self.runs / f"{name}.json"
        self.run("calibrate", file, "--overwrite", *arguments)
        return file

    def epoch_speed(self, program, *arguments):
        """Images per second of the last epoch."""
        self.run(program, "--optimizer", "adam", "--out", "out", *arguments)
        return json.loads((self.runs / "out/metrics.jsonl").read_text().splitlines()[-1])["images_per_second"]


def percent(modelled, measured):
    return f"{100 * (modelled / measured - 1):+.0f}%"


def print_gpu(machine):
    print("## Epochs on an H200\n")
    print("Microseconds per step. The model is fitted to the 190 calls of [gpu_check.md](gpu_check.md), once with all of")
    print("them and once without those of the row's model and batch. The measured steps are those of the epochs in")
    print("[cuda.md](cuda.md); they took no part in any fit.\n")
    print("| model, batch | measured | all calls in the fit | error | without its calls | error |")
    print("|---|---:|---:|---:|---:|---:|")
    for model, batch, tf32, speed in EPOCHS:
        page = ["--times", GPU_PAGE, "--like", "h200", *tf32]
        full = machine.step(machine.calibrated("all", *page), model, batch)[0]
        without = machine.step(machine.calibrated("without", *page, "--without", f"{model} {batch}"), model, batch)[0]
        measured = batch / speed
        name = f"{model}, {batch}" + (", TF32" if tf32 else "")
        print(f"| {name} | {1e6 * measured:.0f} | {1e6 * full:.0f} | {percent(full, measured)} "
              f"| {1e6 * without:.0f} | {percent(without, measured)} |")  # fmt: skip
    print("\nWithout its calls no convolution with many channels is in resnet18's fit, and matrix products, whose rate then stands for")
    print("them, are further from their floor: the rate is 187 teraflop/s instead of 248. Nor does any other call move so many bytes,")
    print("and short ones reach less bandwidth: 2.59 TB/s instead of 2.92. What is missing for resnet18 are large calls in the fit, not")
    print("a kind of call: with its own it is 11% off. The rows `h200` and `h200-tf32` are older than this page: they were fitted when a step")
    print("of resnet18 took 15.1 ms, and so give 15.2 ms for it, 31% more than it takes now. The other steps are within 11% by these rows.")


def print_cpu(machine):
    print("\n## Chapter 1 on this machine\n")
    print("Images per second with batches of 64 images, on one core with the kernels for AVX2: measured on the virtual clock,")
    print("which counts the processor time of the thread, and modelled with a file that `calibrate` has just written, with")
    print("the calls of all three models and without those of the row's model. The steps took no part in any fit; the errors")
    print("are those of their times.\n")
    print("| model | micro-batch | measured | all calls in the fit | error | without its calls | error |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    full = machine.calibrated("full")
    for model, images in IMAGES.items():
        without = machine.calibrated("without", "--without", model)
        machine.run("make_generated_data", model, "--train", images, "--test", 10)
        for parts in (1, 4, 16):
            flags = ["--data", model, "--model", model, "--batch-size", 64, "--microbatches", parts]
            measured = machine.epoch_speed("ch01_single_device", *flags, "--epochs", 2, "--clock", "virtual")
            speeds = [64 / machine.step(file, model, 64, parts)[0] for file in (full, without)]
            cells = " | ".join(f"{speed:.0f} | {percent(measured, speed)}" for speed in speeds)
            print(f"| {model} | {64 // parts} | {measured:.0f} | {cells} |")
    print("\nThe convolutions of resnet18, all but the first, are wide ones: they have a channel in each lane of a vector, those of")
    print("convnet an image, and each kind has a rate of its own. Where no call in the fit is wide, their rate comes from matrix")
    print("products, which have the same inner loop.")


def print_course(machine):
    one_seconds, one = machine.step("v100", "convnet", BATCH)
    pipeline = machine.step("v100", "convnet", BATCH, PARTS)[1] + 2 * (STAGES - 1) * PARTS
    naive = one + 2 * (STAGES - 1)
    per_launch = (COURSE["pipeline"] - COURSE["one device"]) / STEPS / (pipeline - one)
    loading = COURSE["one device"] / STEPS - one * per_launch
    predicted = COURSE["one device"] / (STEPS * (loading + naive * per_launch))
    print("\n## The published course\n")
    print("Its network is so small that the host is what takes the time: it loads a batch, and launches one kernel after the")
    print(f"other. A step of `convnet` is {one} launches, and {pipeline} in {PARTS} micro-batches on {STAGES} devices, with a copy per")
    print("micro-batch, border and direction. Two of the course's times fix the two unknowns: the host takes "
          f"{1e6 * per_launch:.0f} µs per")  # fmt: skip
    print(f"launch, and {1e6 * loading / BATCH:.0f} µs to load an image. (The kernels of a step would take {1e6 * one_seconds:.0f} µs on a `v100`.)\n")
    print("| run | published, s per epoch | modelled | |")
    print("|---|---:|---:|---|")
    for name, launches in (("one device", one), ("pipeline", pipeline), ("naive", naive)):
        seconds = STEPS * (loading + launches * per_launch)
        print(f"| {name} | {COURSE[name]} | {seconds:.2f} | {'predicted' if name == 'naive' else 'fitted'} |")
    print(f"\nThe naive split is predicted at {predicted:.2f} of the speed of one device; published is "
          f"{COURSE['one device'] / COURSE['naive']:.2f}. Here each step waits for its batch, as in the course; the programs of this")  # fmt: skip
    print("project load one batch ahead, so on the modelled clock they hide that time behind the step before.")


def print_tutorial(machine):
    print("\n## ResNet-50 in splits\n")
    print("Images of 128 x 128, batches of 120, two halves, GPipe: the speed over one device, modelled for a `v100` with links")
    print("of `pcie4`. Nothing was fitted.\n")
    print("| images per split | published | modelled | error |")
    print("|---:|---:|---:|---:|")
    one = machine.step("v100", "resnet50", 120, 1, 128)[0]
    for size, published in TUTORIAL.items():
        machine.run("ch05_interleaved", "--model", "resnet50", "--image-size", 128, "--batch-size", 120, "--optimizer", "adam",
                    "--ranks", 2, "--split", "11,11", "--schedule", "gpipe", "--microbatches", 120 // size, "--explain",
                    "--clock", "modelled", "--device-model", "v100", "--link", "pcie4", "--out", "plan")  # fmt: skip
        speed = one / json.loads((machine.runs / "plan/prediction.json").read_text())["step_seconds"]
        print(f"| {size} | {published} | {speed:.2f} | {percent(speed, published)} |")


def print_head():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    print("# Modelled devices\n")
    print(f"Made by `scripts/measure_modelled.sh` on {datetime.date.today()}: {cpu}, one core with the kernels for AVX2, commit "
          f"{commit.strip()}; load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors.\n")  # fmt: skip
    print("A [device model](../reference/device_model.md) computes what a kernel takes from its operations and bytes. This page")
    print("shows how far modelled times are from measured ones. Errors are those of times: +10% is modelled too slow.\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(flags.programs.resolve(), pathlib.Path(folder))
        print_head()
        print_gpu(machine)
        print_cpu(machine)
        print_course(machine)
        print_tutorial(machine)


if __name__ == "__main__":
    main()
