#!/usr/bin/env python3
"""What each convolution kernel of core/kernels/cuda should take, by arithmetic alone: the tables of
docs/convolution_kernel.md. Needs no GPU.

    scripts/convolution_arithmetic.py
"""

from dataclasses import dataclass

# An H200 (SXM). Source: NVIDIA H200 data sheet, 2024, and the Hopper tuning guide.
SMS = 132
CLOCK = 1.98e9  # Hz, boost
MEMORY = 4.8e12  # bytes per second
TENSOR_CORES = 494e12  # TF32 operations per second
FMA_WARPS = 4  # warps for which an SM starts a multiply-add per cycle
LOAD_WARPS = 1  # warps that it serves from shared memory (or the first-level cache) per cycle

LAYERS = [  # name, N, C, H, W, O, K, padding
    ("convnet conv1, batch 64", 64, 3, 32, 32, 6, 5, 0),
    ("convnet conv2, batch 64", 64, 6, 14, 14, 16, 5, 0),
    ("resnet18 64 channels, batch 512", 512, 64, 32, 32, 64, 3, 1),
]


@dataclass
class Kernel:
    name: str
    rows: int  # of the result that a block makes
    columns: int
    loads: float  # from shared memory (or the cache) per multiply-add, in warps


def registers(rows, columns, thread_rows, thread_columns):
    # Values of a row come four at a time, and one load serves all threads that want the same; columns come one by one.
    loads = (max(thread_rows / 4, 1) + thread_columns) / (thread_rows * thread_columns)
    return Kernel(f"registers {thread_rows} x {thread_columns}", rows, columns, loads)


def register_tile(rows):
    """As in product_plan.h, for results of many columns."""
    if rows <= 16:
        return registers(16, 128, 8, 2)
    return registers(64, 64, 4, 4)


def tensor_core_tile(rows):
    return (64, 256) if rows <= 64 else (128, 128)


def ceil(a, b):
    return -(-a // b) * b


def table(name, n, c, h, w, o, k, padding):
    p, q = h + 2 * padding - k + 1, w + 2 * padding - k + 1
    rows, columns, depth = o, n * p * q, c * k * k
    operations = 2 * rows * columns * depth
    compulsory = 4 * (n * c * h * w + o * c * k * k + n * o * p * q)
    floor_compute = operations / (SMS * CLOCK * FMA_WARPS * 32 * 2)
    floor_memory = compulsory / MEMORY
    print(f"\n**{name}**: the result has {rows} x {columns} elements of {depth} products; "
          f"{operations / 1e6:.0f} million operations, {compulsory / 1e6:.1f} MB at least; "
          f"floor {1e6 * floor_compute:.1f} us (operations), {1e6 * floor_memory:.1f} us (bytes)\n")
    print("| kernel | of the tile's work useful | cycles per multiply-add | bytes fetched by blocks | predicted, us |")
    print("|---|---:|---:|---:|---:|")
    for kernel in (Kernel("plain", 1, 256, 2.0), Kernel("tiled", 16, 16, 2.0), register_tile(rows)):
        done = ceil(rows, kernel.rows) * ceil(columns, kernel.columns)
        cycles = max(1 / FMA_WARPS, kernel.loads / LOAD_WARPS)
        fetched = 4 * depth * done * (1 / kernel.rows + 1 / kernel.columns)
        seconds = max(done * depth / 32 * cycles / (SMS * CLOCK), floor_memory)
        print(f"| {kernel.name} | {100 * rows * columns / done:.0f}% | {cycles:.2f} | {fetched / 1e6:.0f} MB "
              f"| {1e6 * seconds:.1f} |")
    tile = tensor_core_tile(rows)
    done = ceil(rows, tile[0]) * ceil(columns, tile[1])
    seconds = max(2 * done * depth / TENSOR_CORES, floor_memory)
    print(f"| tensor cores, warpgroups | {100 * rows * columns / done:.0f}% | | "
          f"{4 * depth * done * (1 / tile[0] + 1 / tile[1]) / 1e6:.0f} MB | {1e6 * seconds:.1f} |")


if __name__ == "__main__":
    for layer in LAYERS:
        table(*layer)
