#!/usr/bin/env python3
"""What the inner loops of the convolution kernels really execute: instructions by kind, counted in the machine code.
And how long the forward pass of the layers of convolution_arithmetic.py takes at least, as an SM of an H200
starts the instructions of four warps in a cycle. Needs no GPU. Needs nvcc, and nvdisasm of the CUDA Toolkit (the
Python package triton brings one too).

    scripts/count_instructions.py [--arch sm_90a] [--nvdisasm FILE] [SOURCE]

SOURCE is a .cu file that includes matrix_product.cuh, in any checkout: core/kernels/cuda/conv2d.cu if not given.
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from convolution_arithmetic import CLOCK, FMA_WARPS, LAYERS, SMS, ceil, register_tile, tensor_core_tile

ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = {  # instructions that begin like this
    "multiply-adds": ("FFMA", "HMMA", "HGMMA.64x128x8"),
    "from memory": ("LDG",),
    "to shared memory": ("STS",),
    "from shared memory": ("LDS", "LD."),
}
PASSES = {  # an operand that only this pass has
    "TransposedIm2col": "gradient of the weight",
    "GradientIm2col": "gradient of the input",
    "Im2col": "forward",
}


def compiled(source, arch, folder):
    """The machine code, and what ptxas says of registers."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    code = folder / "code.cubin"
    root = source.resolve().parents[3]  # of core/kernels/cuda/
    done = subprocess.run([nvcc, "-O3", "-DNDEBUG", f"-arch={arch}", "-std=c++20", "--extended-lambda",
                           "--expt-relaxed-constexpr", "-Xptxas", "-v", f"-I{root}", "-cubin", "-o", code, source],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        sys.exit(done.stderr)
    return code, done.stderr


def find_nvdisasm(given):
    places = [given, shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"]
    try:
        import triton

        places.append(pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm")
    except ImportError:
        pass
    for place in places:
        if place and pathlib.Path(place).exists():
            return place
    sys.exit("nvdisasm was not found; give --nvdisasm FILE")


def readable(names):
    lines = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, (line.replace("stagecoach::cuda::", "") for line in lines.splitlines())))


def functions(listing):
    """Name to lines: ("label", name) and ("instruction", text)."""
    found = {}
    lines = None
    for line in listing.splitlines():
        if match := re.match(r"\s*\.section\s+\.text\.([^,]+),", line):
            lines = found.setdefault(match[1], [])
        elif match := re.match(r"(\.L_\w+):", line):
            lines.append(("label", match[1]))
        elif match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            lines.append(("instruction", match[1]))
    return found


def main_loop(lines):
    """The loop with barriers that multiplies most: from the label of a backward branch to the branch."""
    labels = {text: i for i, (kind, text) in enumerate(lines) if kind == "label"}
    best = []
    for i, (kind, text) in enumerate(lines):
        target = re.search(r"BRA `\((\.L_\w+)\)", text)
        if kind == "instruction" and target and labels.get(target[1], i) < i:
            body = [line for what, line in lines[labels[target[1]] : i + 1] if what == "instruction"]
            if any("BAR.SYNC" in line for line in body) and count(body)["multiply-adds"] > count(best)["multiply-adds"]:
                best = body
    return best


def count(body):
    counts = collections.Counter()
    for line in body:
        operation = re.sub(r"^@!?U?P\S+\s+", "", line)
        counts[next((kind for kind, starts in KINDS.items() if operation.startswith(starts)), "others")] += 1
    return counts


def print_tables(listing, resources):
    registers = dict(re.findall(r"entry function '(\S+)'.*?Used (\d+) registers", resources, re.DOTALL))
    code = functions(listing)
    names = readable(list(code))
    rows = collections.defaultdict(dict)
    for name, lines in code.items():
        kernel = re.match(r"void product_(registers|tensor_cores|warpgroups)<(?:float, )?(.*)", names[name])
        direction = next((what for operand, what in PASSES.items() if operand in names[name]), None)
        if kernel and direction:
            tile = re.match(r"\w+Tiles?<([\d, ]+)>", kernel[2])
            what = kernel[1].replace("_", " ") + (f", tile {tile[1]}" if tile else "")
            rows[direction][what] = [registers[name], count(main_loop(lines))]
    for direction, kernels in rows.items():
        print(f"\n**{direction}**\n")
        print("| kernel | registers | " + " | ".join(KINDS) + " | others | of all, multiply-adds |")
        print("|---|---:|" + "---:|" * (len(KINDS) + 2))
        for what, (used, counts) in sorted(kernels.items()):
            share = 100 * counts["multiply-adds"] / max(counts.total(), 1)
            columns = " | ".join(str(counts[kind]) for kind in [*KINDS, "others"])
            print(f"| {what} | {used} | {columns} | {share:.0f}% |")
    if rows:
        print_times({what: counts for what, (_, counts) in rows["forward"].items()})


def print_times(forward):
    """The least time of the forward pass with the tiles that product_plan.h takes."""
    print("\n**forward, at least**\n\n| layer | kernel | instructions, us | of these, multiply-adds, us |")
    print("|---|---|---:|---:|")
    for name, n, c, h, w, o, k, padding in LAYERS:
        p, q = h + 2 * padding - k + 1, w + 2 * padding - k + 1
        low = register_tile(o)
        for rows, columns, what in [(low.rows, low.columns, "registers"), (*tensor_core_tile(o), "tensor cores"),
                                    (*tensor_core_tile(o), "warpgroups")]:
            for kernel, counts in forward.items():
                tile = [int(number) for number in re.findall(r"\d+", kernel)]
                if not kernel.startswith(what) or tile[:2] != [rows, columns]:
                    continue
                depth = tile[2] if len(tile) > 2 else 16
                warps = rows * columns // (tile[3] * tile[4] if len(tile) > 2 else 64) // 32
                tiles = ceil(o, rows) // rows * ceil(n * p * q, columns) // columns * ceil(c * k * k, depth) // depth
                cycles = tiles * warps / FMA_WARPS / SMS
                print(f"| {name} | {kernel} | {1e6 * cycles * counts.total() / CLOCK:.1f} "
                      f"| {1e6 * cycles * counts['multiply-adds'] / CLOCK:.1f} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="Counts the instructions of the convolution kernels' inner loops.")
    parser.add_argument("source", nargs="?", type=pathlib.Path, default=ROOT / "core/kernels/cuda/conv2d.cu")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--nvdisasm")
    flags = parser.parse_args()
    nvdisasm = find_nvdisasm(flags.nvdisasm)
    with tempfile.TemporaryDirectory() as folder:
        code, resources = compiled(flags.source, flags.arch, pathlib.Path(folder))
        listing = subprocess.run([nvdisasm, "-c", code], capture_output=True, text=True, check=True).stdout
    print_tables(listing, resources)


if __name__ == "__main__":
    main()
