"""The parts of gpu_check.py that measure, each alone on the GPU: chapter 1 beside the CPU, four ranks beside one, the
kernel tables, epochs beside PyTorch's, pipelines in graphs, and the levels of CPU kernels."""

import functools
import hashlib
import os
import pathlib
import re
import sys

from gpu_check_page import NO_TIME_LEFT, PROJECT, TIMED_OUT, found, output_of

COMPILER_SECONDS = 80


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
    expected, differ, rows = {}, [], ""
    for number, (program, kind, more) in enumerate(FOUR_RANKS):
        name, out = f"ranks-{number}", check.work / f"ranks-{number}"
        status = check.run(name, 40, check.program(program), "--data", data, "--device", "cuda", "--epochs", "1",
                           "--out", out, *more.split())
        if status in (TIMED_OUT, NO_TIME_LEFT):
            check.note_status(part, status, f"{program} {more}")
            return
        weights = out / "weights.safetensors"
        found_hash = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else "none"
        same = status == 0 and found_hash == expected.setdefault(kind, found_hash)
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


@functools.cache
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


# Title, expected seconds, flags. The epochs of the larger models are measured on few images.
PYTORCH_RUNS = (
    ("resnet18, batch 512, TF32", 60, "--model resnet18 --batch-size 512 --tf32"),
    ("vit, batch 512, TF32", 30, "--model vit --batch-size 512 --tf32"),
    ("gpt, batch 512, TF32", 30, "--model gpt --batch-size 512 --tf32"),
    ("convnet, batch 1024", 32, "--model convnet --batch-size 1024"),
    ("convnet, batch 64", 60, "--model convnet --batch-size 64"),
)


@functools.cache
def long_text(check):
    """Seventy steps of 512 sequences, so that an epoch is not mostly its beginning and its end."""
    text = check.work / "text"
    text.write_bytes(8 * (PROJECT / "datasets/text/book.txt").read_bytes())
    return text


def pytorch_data(check, flags):
    if "gpt" in flags:
        return long_text(check)
    return check.data if "convnet" in flags else few_images(check)


def start_pytorch_compilers(check):
    """Lets torch.compile fill its cache on disk, as the measured programs have little time for it."""
    if no_pytorch(check):
        return
    for number, (_, _, flags) in enumerate(PYTORCH_RUNS):
        for layout in ((), ("--channels-last",)) if "resnet18" in flags else ((),):
            check.start_command(f"compiler-{number}{''.join(layout)}", COMPILER_SECONDS, check.python,
                                "tests/benchmarks/torch_cuda_epoch.py", "--data", pytorch_data(check, flags), "--mode",
                                "compile", "--images-on", "device", "--epochs", "1", *flags.split(), *layout)


def finish_pytorch_compilers(check):
    """What did not end in time is compiled again by the measured program."""
    for name in [name for name in check.running if name.startswith("compiler-")]:
        check.finish(name)


def beside_pytorch(check, title, seconds, flags):
    """Our epochs and PyTorch's in turn."""
    part = f"beside PyTorch: {title}"
    if reason := no_pytorch(check):
        check.note(part, f"not run: {reason}")
        return
    name = f"torch-{title.replace(', ', '-').replace(' ', '-')}"
    # Told to end before it is killed, it prints what it has measured.
    status = check.run(name, seconds + 10, check.python, "tests/benchmarks/cuda_epoch_ratio.py", "--data",
                       pytorch_data(check, flags), "--program", check.program("ch01_single_device"), "--limit",
                       str(seconds), *flags.split())
    ratios = re.findall(r"^R(atio to the fastest.*)", check.output(name), re.MULTILINE)
    check.note_status(part, status, f"r{ratios[-1]}" if ratios else "no ratio")
    data = "text (datasets/text/book.txt, eight times)" if "gpt" in flags else f"images ({check.data_name})"
    check.write(f"## Beside PyTorch: {title}\n\nThe same model, {data} and optimizer, in turn. Ways of running "
                "PyTorch: `tests/benchmarks/torch_cuda_epoch.py`.")
    if status == 0:
        check.write(check.output(name).strip())
    else:
        check.write_output(name)


def pipelines(check):
    """Pipelines whose ranks share the GPU, with and without CUDA graphs, beside one device."""
    part = "pipelines in graphs"
    if lack := check.lack("ch01_single_device", "ch03_gpipe", "ch05_interleaved"):
        check.note(part, f"not run: {lack}")
        return
    folder = pathlib.Path(check.program("ch03_gpipe")).parent
    status = check.run("pipelines", 60, sys.executable, "tests/benchmarks/cuda_pipeline_ratio.py", "--data", check.data,
                       "--programs", folder, "--limit", "40", "--host")
    rows = re.findall(r"^\| [0-9]+ \| [0-9]*[a-z]", check.output("pipelines"), re.MULTILINE)
    check.note_status(part, status, f"{len(rows)} rows")
    check.write(f"## Pipelines in graphs\n\n`convnet` in 4 micro-batches, on 4 ranks that share the GPU, on "
                f"{check.data_name}.\n\n{check.output('pipelines').strip()}")
    if status != 0:
        check.write_output("pipelines")


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
