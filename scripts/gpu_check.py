#!/usr/bin/env python3
"""Checks and measures Stagecoach on this machine's GPU, in at most eight minutes, and writes a page about it: tests,
compute-sanitizer, chapter 1 on CIFAR-10 beside the CPU, four ranks beside one, the kernel tables, epochs beside
PyTorch's, and the levels of CPU kernels.

Exit status: 0 all passed; 1 a part failed; 2 no GPU, or wrong flags, and nothing was written; 3 nothing failed, but a
part did not run or did not finish; 130 interrupted. The page says which.
"""

import argparse
import functools
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from gpu_check_page import NO_TIME_LEFT, PROJECT, TIMED_OUT, Check, found, output_of

GPU_TESTS = "*cuda*:*Cuda*"  # tests with a CUDA half have it in their names
# Each kernel beside its CPU twin: few tests, as a sanitizer makes them some hundred times slower.
SANITIZED_TESTS = "cuda/*Twins*:*CudaProducts*:*CudaTiles*"
# Tests and sanitizers run side by side, but all wait for the same driver. On an H200 the sanitizers did four to six
# tests per second in all, and the tests of test_core, which take 80 s alone, did not end within 120 s.
TEST_SECONDS = 180
SANITIZER_SECONDS = 200
COMPILER_SECONDS = 80
SANITIZED_PROGRAMS = ("test_cuda", "test_core")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
TEST_PROGRAMS = ("test_core", "test_cuda", "test_nn", "test_datasets", "test_parallel", "test_chapters")


def parse_flags():
    data = os.environ.get("STAGECOACH_CIFAR10") or PROJECT / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", metavar="DIR", type=os.path.abspath,
                        help="use the programs in this folder (or its bin/) instead of building the preset cuda")
    parser.add_argument("--data", metavar="CIFAR_DIR", type=os.path.abspath, default=os.path.abspath(data),
                        help="CIFAR-10 in its binary layout ($STAGECOACH_CIFAR10, or data); without it the speed is "
                             "measured on generated images")
    parser.add_argument("--minutes", type=float, default=8, help="leave parts out after this time (%(default)s)")
    parser.add_argument("--python", default="python3", help="a Python with numpy and torch with CUDA (%(default)s)")
    parser.add_argument("--out", metavar="FILE", type=os.path.abspath,
                        default=str(PROJECT / "docs/measurements/gpu_check.md"),
                        help="the page (docs/measurements/gpu_check.md); the parts' output goes to a folder .logs beside it")
    flags = parser.parse_args()
    if "/" in flags.python:
        flags.python = os.path.abspath(flags.python)
    return flags


def build(check):
    if check.binaries:
        check_libraries(check)
        return
    architecture = check.gpu_capability.replace(".", "") + "-real"
    command = ("scripts/setup.sh --for-benchmarks && scripts/build.sh cuda --target gpu_check "
               f"-DSTAGECOACH_BENCHMARKS=ON -DCMAKE_CUDA_ARCHITECTURES={architecture}")
    status = check.run("build", 300, "bash", "-c", command)
    check.note_status("build", status, f"preset cuda for compute capability {check.gpu_capability}")
    if status == 0:
        check.binaries = PROJECT / "build/cuda"
    else:  # nothing rather than the programs of an older build
        check.binaries = "/nonexistent"
        check.write("## Build")
        check.write_output("build", 30)


def check_libraries(check):
    """Of programs from another machine: that their shared libraries are here."""
    missing = set()
    for path in filter(None, map(check.program, ("ch01_single_device", *TEST_PROGRAMS))):
        said = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        missing.update(re.findall(r"^\s*(\S+) => not found", said, re.MULTILINE))
        missing.update(re.findall(r"version .(GLIBC\S*). not found", said))
    if missing:
        check.note("build", f"FAILED: programs of {check.binaries} need libraries that this machine lacks: "
                            f"{' '.join(sorted(missing))}; the preset portable links them in")
    else:
        check.note("build", f"passed: programs of {check.binaries}")


def count_tests(check, label, name):
    """The number that gtest prints after a label such as PASSED, or 0."""
    return int(found(rf"^\[ *{label} *\] ([0-9]+) test", check.output(name), 0))


def rerun_first_failure(check, name, path):
    """Runs the first test that failed, or in which the program ended, once more: alone, to tell it from those that an
    earlier failure took along, and waiting for each kernel, so that the error names the kernel."""
    started = re.findall(r"^\[ RUN *\] (\S+)", check.output(name), re.MULTILINE)
    first = found(r"^\[ *FAILED *\] ([^ ,\n]+)", check.output(name), started[-1] if started else None)
    if first:
        setting = "CUDA_LAUNCH_BLOCKING=1"
        status = check.run(f"{name}-again", 30, "env", setting, path, f"--gtest_filter={first}")
        check.write(f"`{first}` alone, with `{setting}`: exit status {status}")
        check.write_output(f"{name}-again")


def start_tests(check):
    for name in filter(check.program, TEST_PROGRAMS):
        check.start_command(name, TEST_SECONDS, check.program(name), f"--gtest_filter={GPU_TESTS}")


def finish_tests(check):
    for name in TEST_PROGRAMS:
        path = check.program(name)
        if not path:
            check.note(name, "not run: the program is missing")
            continue
        status = check.finish(name)
        ran, passed, skipped = (count_tests(check, label, name) for label in ("=*", "PASSED", "SKIPPED"))
        if status == 0 and ran <= skipped:
            nccl = "skipped: its only GPU tests are those of NCCL, which is not built in or needs more GPUs"
            check.note(name, nccl if name == "test_parallel" else f"not run: {skipped} of {ran} GPU tests were skipped")
            continue
        check.note_status(name, status, f"{passed} passed, {ran - passed - skipped} failed, {skipped} skipped")
        if status != 0:
            check.write(f"## Tests: the output of {name}")
            check.write_output(name, 40)
            rerun_first_failure(check, name, path)


def choose_data(check):
    """Images to measure with: CIFAR-10, or as many generated ones, whose losses say nothing."""
    generator = check.program("make_generated_data")
    if check.has_data() or not generator:
        return
    generated = check.work / "generated"
    if check.run("data", 60, generator, generated, "--train", "50000", "--test", "10000") == 0:
        check.data_name, check.data = "generated images", generated
        check.note("CIFAR-10", "not found: measured on generated images; give --data")


def epoch_figures(log):
    """Epoch: loss, test accuracy and images per second."""
    line = r"^Epoch: (\d+), Loss: ([0-9.]+).*test acc: ([0-9.]+).* (\d+) img/s"
    return {epoch: figures for epoch, *figures in re.findall(line, log, re.MULTILINE)}


def chapter1(check):
    part = f"chapter 1, ten epochs of {check.data_name}"
    if lack := check.lack("ch01_single_device"):
        check.note(part, f"not run: {lack}")
        return
    flags = "--head softmax --optimizer adam --lr 0.001 --batch-size 64"
    command = [check.program("ch01_single_device"), "--device", "cuda", "--data", check.data, "--epochs", "10"]
    status = check.run("chapter1", 100, *command, *flags.split())
    gpu = epoch_figures(check.output("chapter1"))
    cpu_page = (PROJECT / "docs/measurements/ch01_cifar10.md").read_text()
    cpu = epoch_figures(found(r"^## --head softmax$([^#]*)", cpu_page))
    check.note_status(part, status, f"{len(gpu)} epochs")
    rows = ""
    for epoch, on_gpu in gpu.items():
        pairs = zip(cpu.get(epoch, ("", "", "")), on_gpu)
        rows += f"\n| {epoch} | " + " | ".join(f"{one} | {other}" for one, other in pairs) + " |"
    check.write(f"## Chapter 1 on {check.data_name}\n\n`{flags}`. "
                "The CPU columns are those of `docs/measurements/ch01_cifar10.md`, from another machine.")
    check.write("| epoch | loss, CPU | loss, GPU | test acc, CPU | test acc, GPU | img/s, CPU | img/s, GPU |\n"
                "|---:|---:|---:|---:|---:|---:|---:|" + rows)
    if status != 0:
        check.write_output("chapter1")


# Programs with four ranks that share the GPU, and the run of chapter 1 whose weights theirs must equal.
FOUR_RANKS = (
    ("ch01_single_device", "whole", ""),
    ("ch02_naive_model_parallel", "whole", "--ranks 4 --balance layers"),
    ("ch01_single_device", "microbatches", "--microbatches 4"),
    ("ch03_gpipe", "microbatches", "--ranks 4 --microbatches 4 --balance layers"),
    ("ch04_pipedream", "microbatches", "--ranks 4 --microbatches 4 --balance layers --versions flush"),
    ("ch05_interleaved", "microbatches", "--ranks 4 --microbatches 4 --balance layers --schedule 1f1b"),
    ("ch05_interleaved", "microbatches", "--ranks 4 --microbatches 4 --balance layers --schedule interleaved"),
    ("ch06_ddp", "microbatches", "--ranks 4"),
    ("ch01_single_device", "whole", ""),
    ("ch01_single_device", "whole", ""),
)


def four_ranks(check):
    """Chapter 1 three times, and chapters 2 to 6: they must write the same weights."""
    part = "four ranks on one GPU, and one three times"
    if lack := check.lack(*sorted({name for name, _, _ in FOUR_RANKS})):
        check.note(part, f"not run: {lack}")
        return
    data = few_images(check)
    wanted, differ, rows = {}, [], ""
    for number, (program, kind, more) in enumerate(FOUR_RANKS):
        name, out = f"ranks-{number}", check.work / f"ranks-{number}"
        status = check.run(name, 40, check.program(program), "--data", data, "--device", "cuda", "--epochs", "1",
                           "--out", out, *more.split())
        if status in (TIMED_OUT, NO_TIME_LEFT):
            check.note_status(part, status, f"{program} {more}")
            return
        weights = out / "weights.safetensors"
        found_hash = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else "none"
        same = status == 0 and found_hash == wanted.setdefault(kind, found_hash)
        if not same:
            differ.append(f"{program} {more} (exit {status})")
        rows += f"\n| `{program} {more}` | {found_hash[:16]} | {'' if same else 'no'} |"
    check.note_status(part, 1 if differ else 0, f"{'; '.join(differ)} differ" if differ else "equal bytes")
    check.write("## Weights of one device and of four ranks\n\n| after 160 steps | SHA-256 begins with | as expected |\n"
                "|---|---|---|" + rows)


def table(check, part, title, name, seconds, program, row, *environment):
    """A benchmark that prints a Markdown table; `row` is a pattern of its rows."""
    path = check.program(program)
    if not path:
        check.note(part, f"not run: {program} is missing")
        return
    status = check.run(name, seconds, "env", *environment, path)
    rows = re.findall(row, check.output(name), re.MULTILINE)
    check.note_status(part, status, f"{len(rows)} rows")
    check.write(f"## {title}\n\n{check.output(name).strip()}")
    if status != 0:
        check.write_output(name)


def kernels(check):
    # cuBLAS and cuDNN, to compare with, may be Python packages.
    libraries = output_of(check.python, "-c", """
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
places = spec.submodule_search_locations if spec else []
print(":".join(str(folder) for place in places for folder in pathlib.Path(place).glob("*/lib")))""")
    places = ":".join(filter(None, (libraries, os.environ.get("LD_LIBRARY_PATH"), "/usr/local/cuda/lib64")))
    table(check, "kernel table", "Kernels", "kernels", 90, "cuda_kernels_benchmark", r"^\| .* \| [0-9]*% \| ",
          f"LD_LIBRARY_PATH={places}")


def convolution_steps(check):
    """The five convolution kernels, for docs/convolution_kernel.md."""
    table(check, "convolution, step by step", "The convolution, step by step", "convolution", 40,
          "convolution_steps_benchmark", r"^\| .* \| [0-9.]* \| [0-9]* \| ")


def few_images(check):
    """A few thousand images, for a model whose epochs are long: twenty steps of 512."""
    source = check.data / "cifar-10-batches-bin"
    source = source if source.is_dir() else check.data
    few = check.work / "few"
    few.mkdir(exist_ok=True)
    for name, images in (("data_batch_1", 5120), ("data_batch_2", 5120), ("test_batch", 512)):
        with open(source / f"{name}.bin", "rb") as file:
            (few / f"{name}.bin").write_bytes(file.read(3073 * images))
    return few


@functools.cache  # as loading takes seconds
def no_pytorch(check):
    """Why nothing can be compared with PyTorch, or nothing."""
    if lack := check.lack("ch01_single_device"):
        return lack
    loads = "import numpy, sys, torch; sys.exit(not torch.cuda.is_available())"
    status = check.run("torch", 120, check.python, "-c", loads)
    reasons = {0: "", TIMED_OUT: f"{check.python} did not load torch within its time limit",
               NO_TIME_LEFT: f"the {check.minutes:g} minutes were used up"}
    return reasons.get(status, f"{check.python} lacks numpy, or torch with CUDA")


def pytorch_runs(check):
    """Name, title, data and flags of each."""
    few = few_images(check)
    return (
        ("torch-64", "convnet, batch 64", check.data, "--model", "convnet", "--batch-size", "64"),
        ("torch-1024", "convnet, batch 1024", check.data, "--model", "convnet", "--batch-size", "1024"),
        ("torch-resnet18", "resnet18, batch 512, TF32", few, "--model", "resnet18", "--batch-size", "512", "--tf32"),
        ("torch-vit", "vit, batch 512, TF32", few, "--model", "vit", "--batch-size", "512", "--tf32"),
    )


def beside_pytorch(check):
    """Our epochs and PyTorch's in turn."""
    if reason := no_pytorch(check):
        check.note("beside PyTorch", f"not run: {reason}")
        return
    check.write(f"## Epochs beside PyTorch\n\nThe same model, images ({check.data_name}) and optimizer. Ways of running "
                "PyTorch: `tests/benchmarks/torch_cuda_epoch.py`.")
    runs = pytorch_runs(check)
    for left, (name, title, data, *flags) in zip(range(len(runs), 0, -1), runs):
        check.begin()
        part = f"beside PyTorch: {title}"
        limit = min(75, int(check.seconds_left()) // left)
        if limit < 25:  # not enough to load PyTorch and train
            check.note(part, "not run: out of time")
            continue
        program = check.program("ch01_single_device")
        status = check.run(name, limit, check.python, "tests/benchmarks/cuda_epoch_ratio.py", "--data", data,
                           "--program", program, "--limit", str(limit - 8), *flags)
        ratios = re.findall(r"^R(atio to the fastest.*)", check.output(name), re.MULTILINE)
        check.note_status(part, status, f"r{ratios[-1]}" if ratios else "no ratio")
        check.write(f"### {title}")
        if status == 0:
            check.write(check.output(name).strip())
        else:
            check.write_output(name)


def processor_levels(check):
    """Chapter 1 with each level of CPU kernels, for docs/measurements/platforms.md: the machines that have a GPU often
    have AVX-512 too."""
    part = "levels of CPU kernels"
    if lack := check.lack("ch01_single_device"):
        check.note(part, f"not run: {lack}")
        return
    status = check.run("levels", 60, sys.executable, "tests/benchmarks/level_ratio.py", "--data", few_images(check),
                       "--program", check.program("ch01_single_device"), "--rounds", "3")
    if status == 3:
        check.note(part, "skipped: the program has no two levels for this processor; the preset portable builds two")
        return
    check.note_status(part, status, "chapter 1 with each in turn")
    model = found(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), "unknown")
    check.write(f"## Levels of CPU kernels\n\nProcessor: {model}. {check.output('levels').strip()}")
    if status != 0:
        check.write_output("levels")


def find_sanitizer():
    return shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")


def start_sanitizers(check):
    """The kernel tests under the tools of compute-sanitizer."""
    if not find_sanitizer():
        return
    for tool in SANITIZERS:
        for name in filter(check.program, SANITIZED_PROGRAMS):
            command = [find_sanitizer(), "--tool", tool, "--error-exitcode", "99", check.program(name)]
            check.start_command(f"{tool}-{name}", SANITIZER_SECONDS, *command, f"--gtest_filter={SANITIZED_TESTS}")


def finish_sanitizers(check):
    if not find_sanitizer():
        check.note("compute-sanitizer", "not run: compute-sanitizer not found")
        return
    for tool in SANITIZERS:
        for name in SANITIZED_PROGRAMS:
            finish_sanitizer(check, tool, name)


def finish_sanitizer(check, tool, name):
    part = f"compute-sanitizer, {tool}, {name}"
    log = f"{tool}-{name}"
    if not check.program(name):
        check.note(part, f"not run: {name} is missing")
        return
    status = check.finish(log)
    tests_run = count_tests(check, "=*", log) - count_tests(check, "SKIPPED", log)
    if status == 0 and tests_run <= 0:
        check.note(part, f"not run: no test matched {SANITIZED_TESTS}")
        return
    output = check.output(log)
    summaries = re.findall(r"^=* *([A-Z]* SUMMARY: .*)", output, re.MULTILINE)
    reports = re.findall(r"^========= (?!COMPUTE-SANITIZER|.*SUMMARY)\S", output, re.MULTILINE)
    passed = len(re.findall(r"^\[ *OK *\]", output, re.MULTILINE))
    if status == TIMED_OUT and reports:
        status = 1
    words = f"{tests_run} tests; {summaries[-1]}" if summaries else f"{passed} tests passed, {len(reports)} reports"
    check.note_status(part, status, words)
    if status not in (0, TIMED_OUT, NO_TIME_LEFT):
        check.write(f"## {part}: its output")
        check.write_output(log, 40)


def start_pytorch_compilers(check):
    """Lets torch.compile fill its cache on disk, as the measured programs have little time for it."""
    if no_pytorch(check):
        return
    for name, _, data, *flags in pytorch_runs(check):
        for layout in ((), ("--channels-last",)) if "resnet18" in flags else ((),):
            check.start_command(f"{name}-compiler{len(layout)}", COMPILER_SECONDS, check.python,
                                "tests/benchmarks/torch_cuda_epoch.py", "--data", data, "--mode", "compile",
                                "--images-on", "device", "--epochs", "1", *flags, *layout)


def unmeasured(check):
    """What needs the processor more than the GPU, and whose speed does not count: side by side, and first."""
    start_tests(check)
    start_sanitizers(check)
    start_pytorch_compilers(check)
    finish_tests(check)
    finish_sanitizers(check)
    for name in [name for name in check.running if "-compiler" in name]:
        check.finish(name)


def main():
    flags = parse_flags()
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
    if not gpu:
        print("gpu_check: nvidia-smi lists no GPU; nothing was checked", file=sys.stderr)
        return 2
    os.chdir(PROJECT)
    check = Check(flags, gpu)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for part in (build, choose_data, unmeasured, chapter1, four_ranks, kernels, convolution_steps, beside_pytorch,
                     processor_levels):
            check.begin()
            part(check)
    except KeyboardInterrupt:
        for process, _ in check.running.values():
            process.terminate()
        check.note("the rest", "not run: interrupted")
        return 130
    finally:
        check.write_page()
    failed = any(result.startswith("FAILED") for result in check.results)
    return 1 if failed else 3 if any(result.startswith("not") for result in check.results) else 0


if __name__ == "__main__":
    sys.exit(main())
