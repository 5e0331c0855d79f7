#!/usr/bin/env python3
"""Checks and measures Stagecoach on this machine's GPU, in at most eight minutes, and writes a page about it: tests,
compute-sanitizer, chapter 1 on CIFAR-10 beside the CPU, four ranks beside one, the kernel tables, epochs beside
PyTorch's, pipelines in graphs, and the levels of CPU kernels. Where the time is short, the least important parts are
left out; --plan says which.

Exit status: 0 all passed; 1 a part failed; 2 no GPU, or wrong flags, and nothing was written; 3 nothing failed, but a
part did not run or did not finish; 130 interrupted. The page says which.
"""

import argparse
import functools
import os
import signal
import sys

import gpu_check_speed as speed
import gpu_check_tests as tests
from gpu_check_page import PROJECT, Check, output_of, usable_seconds
from gpu_check_plan import Part, describe, run_plan


def parse_flags():
    data = os.environ.get("STAGECOACH_CIFAR10") or PROJECT / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", metavar="DIR", type=os.path.abspath,
                        help="use the programs in this folder (or its bin/) instead of building the preset cuda")
    parser.add_argument("--data", metavar="CIFAR_DIR", type=os.path.abspath, default=os.path.abspath(data),
                        help="CIFAR-10 in its binary layout ($STAGECOACH_CIFAR10, or data); without it the speed is "
                             "measured on generated images")
    parser.add_argument("--minutes", type=float, default=8, help="leave parts out that take longer (%(default)s)")
    parser.add_argument("--plan", action="store_true", help="print what would run, and end; needs no GPU")
    parser.add_argument("--sanitize", metavar="FILTER", default=tests.SANITIZED_TESTS,
                        help="run compute-sanitizer on these tests (%(default)s)")
    parser.add_argument("--python", default="python3", help="a Python with numpy and torch with CUDA (%(default)s)")
    parser.add_argument("--out", metavar="FILE", type=os.path.abspath,
                        default=str(PROJECT / "docs/measurements/gpu_check.md"),
                        help="the page (docs/measurements/gpu_check.md); the parts' output goes to a folder .logs beside it")
    flags = parser.parse_args()
    if "/" in flags.python:
        flags.python = os.path.abspath(flags.python)
    return flags


def parts_of_check(flags):
    """All parts in their order, with the seconds that they took on an H200. The sanitizers and the compilers run beside
    the tests, and add only the time by which they outlast them."""
    pytorch = [Part(f"beside PyTorch: {title}", priority, seconds,
                    functools.partial(speed.beside_pytorch, title=title, seconds=seconds, flags=model_flags))
               for priority, (title, seconds, model_flags) in zip((5, 5, 5, 6, 7), speed.PYTORCH_RUNS)]  # fmt: skip
    few_sanitized = flags.sanitize != tests.SANITIZED_TESTS
    return [
        Part("build", 1, 1 if flags.binaries else 200, tests.build),
        Part("data", 1, 1, speed.choose_data),
        Part("tests", 1, 60, tests.finish_tests, tests.start_tests),
        Part("compute-sanitizer", 4, 30 if few_sanitized else 80, tests.finish_sanitizers, tests.start_sanitizers),
        Part("PyTorch's compilers", 5, 1, speed.finish_pytorch_compilers, speed.start_pytorch_compilers),
        Part("chapter 1", 2, 5, speed.chapter1),
        Part("four ranks", 2, 10, speed.four_ranks),
        Part("kernel table", 3, 20, speed.kernels),
        Part("convolution, step by step", 3, 5, speed.convolution_steps),
        *pytorch,
        Part("pipelines in graphs", 4, 45, speed.pipelines),
        Part("levels of CPU kernels", 8, 10, speed.processor_levels),
    ]


def main():
    flags = parse_flags()
    parts = parts_of_check(flags)
    plan = describe(parts, usable_seconds(flags.minutes))
    if flags.plan:
        print(plan)
        return 0
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
    if not gpu:
        print("gpu_check: nvidia-smi lists no GPU; nothing was checked", file=sys.stderr)
        return 2
    os.chdir(PROJECT)
    print(plan, flush=True)
    check = Check(flags, gpu)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_plan(check, parts)
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
