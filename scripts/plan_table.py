#!/usr/bin/env python3
"""Plans several techniques for several devices and links, and prints their step times as a table.

    scripts/plan_table.py --model 'FLAGS' 'TITLE: FLAGS'… << END
    NAME: PROGRAM FLAGS
    END

A column has the flags of a device and a link, a line on standard input is a row: each program plans a step of the model (by
--explain --clock modelled) with the flags of its row and column. Where a value is written A|B|C, all are planned, and the
fastest is shown. A row whose name ends in ", further" shows further steps of a long training, which begin while the last one
drains (docs/reference/zero_bubble.md).

A cell has the milliseconds of a step, the micro-batches, and the GiB of the rank that needs most. "*" marks the fastest of a
column, and ties: less than 5% more. Rows below a line "---" are not compared. Programs are those in build/release/bin.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TIE = 1.05
CELL = "{:7.1f}{} {:2} {:5.1f}"


@functools.cache
def plan(program, flags):
    """The plan that one program writes, as a dictionary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [f"build/release/bin/{program}", "--explain", "--clock", "modelled", *flags, "--out", f"{folder}/plan"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"plan_table: {' '.join(command)}\n{run.stderr.strip()}")
        return json.loads(pathlib.Path(folder, "plan/prediction.json").read_text())


def cell(row, model, column):
    """(seconds, micro-batches, bytes) of the fastest of a row's variants."""
    name, _, command = row.partition(":")
    seconds = "further_step_seconds" if name.endswith(", further") else "step_seconds"
    variants = []
    for program, *flags in itertools.product(*(word.split("|") for word in command.split())):
        result = plan(program, (*model.split(), *column.split(), *flags))
        variants.append((result[seconds], result["settings"]["microbatches"], max(result["memory_bytes"])))
    return min(variants)


def print_row(name, cells):
    print("  ".join([name, *cells]).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="flags of all cells")
    parser.add_argument("columns", nargs="+", help="TITLE: flags of a column")
    arguments = parser.parse_args()
    titles, columns = zip(*(column.split(":", 1) for column in arguments.columns))
    lines = [line.strip() for line in sys.stdin if line.strip()]
    compared = lines.index("---") if "---" in lines else len(lines)
    rows = [line for line in lines if line != "---"]
    names = [row.split(":", 1)[0] for row in rows]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        table = [[pool.submit(cell, row, arguments.model, column) for column in columns] for row in rows]
        table = [[future.result() for future in row] for row in table]

    fastest = [min(column)[0] for column in zip(*table[:compared])]
    width = max(map(len, names))
    print_row(" " * width, [f"{title:^17.17}" for title in titles])
    print_row(" " * width, ["     ms   m   GiB"] * len(columns))
    for i, (name, row) in enumerate(zip(names, table)):
        texts = [
            CELL.format(1e3 * seconds, "*" if i < compared and seconds < TIE * least else " ", microbatches, size / 2**30)
            for (seconds, microbatches, size), least in zip(row, fastest)
        ]
        print_row(f"{name:{width}}", texts)


if __name__ == "__main__":
    main()
