"""Turns `cpu_kernels_benchmark --benchmark_format=json` into a Markdown table, on standard output.

    cpu_kernels_benchmark --benchmark_format=json --benchmark_repetitions=5 | kernel_table.py

With repetitions the medians are shown.
"""

import json
import sys


def main():
    run = json.load(sys.stdin)
    rows = run["benchmarks"]
    medians = [row for row in rows if row.get("aggregate_name") == "median"]
    context = run["context"]
    print(f"`cpu_kernels_benchmark` on one core of {context['num_cpus']} at {context['mhz_per_cpu']} MHz; best matrix-product "
          f"rate {float(context['best_gflops']):.0f} GFLOP/s\n(the best of OpenBLAS and our own product over six shapes). "
          "A row such as `64x3x32x32 to 6, k5`: images x channels x height x\nwidth, outputs, kernel, stride (s), padding "
          "(p). `plain`: the plain loops; `openblas`: OpenBLAS, for convolutions after\nim2col; `step`: a whole training step. "
          "µs by the clock on the wall, GFLOP/s by processor time.\n")
    print("| operation | µs | GFLOP/s | of the best rate |\n|---|---:|---:|---:|")
    for row in medians or rows:
        rate = f"{row['GFLOP/s']:.1f} | {100 * row['of_best']:.0f}%" if "GFLOP/s" in row else "|"
        print(f"| {row['run_name']} | {row['real_time']:.1f} | {rate} |")


main()
