#!/usr/bin/env python3
"""Has torch.distributed.pipelining load our tables and validate them. Needs torch 2.15 or later; no GPU, no processes.

  load_schedules.py build/release/bin/ch05_interleaved                 every schedule of it, for 2, 4 and 8 ranks
  load_schedules.py build/release/bin/ch05_interleaved TABLE.csv ...   what it writes when it is given these tables
  load_schedules.py TABLE.csv ...                                      these files, with communication or without

The program writes each table twice: schedule.csv, the computations, and with --table-format pytorch schedule_lowered.csv,
with communication. PyTorch's own code loads the files as they are: `_load_csv` (the notation; `_validate_schedule`; the
passes that add sends, receives and their waits, or the check that each send and reduction has its wait) and
`_simulate_comms_compute` (nothing waits forever). A table is simulated with its receives where it has them, or else as
early as PyTorch posts them, and with its receives at their use. One line per table; exit code 1 if any is refused.

PyTorch's simulator lets a receive wait where it is posted, and not where its tensor is used. A table that posts receives
earlier than PyTorch does can get stuck there; then only the run with receives at their use counts, and the line says so.
"""

import contextlib
import csv
import io
import logging
import pathlib
import subprocess
import sys
import tempfile

from export_pytorch_schedules import RANKS, stages_of_a_rank
from torch.distributed.pipelining.schedules import (
    BACKWARD_INPUT,
    FORWARD,
    FULL_BACKWARD,
    RECV_B,
    RECV_F,
    REDUCE_GRAD,
    RESHARD,
    SEND_B,
    SEND_F,
    UNSHARD,
    WAIT_REDUCE_GRAD,
    WAIT_SEND_B,
    WAIT_SEND_F,
    _Action,
    _PipelineScheduleRuntime,
    _simulate_comms_compute,
)

SENDS = (SEND_F, SEND_B)
COMMUNICATION = (*SENDS, RECV_F, RECV_B, REDUCE_GRAD)
RECEIVE_OF = {FORWARD: RECV_F, FULL_BACKWARD: RECV_B, BACKWARD_INPUT: RECV_B}
NOT_SIMULATED = (UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD)
# What the simulator throws when it is stuck; printing a table that got stuck early is an IndexError of PyTorch's.
STUCK = (IndexError, ValueError)
# More than PyTorch's own classes make: fewer micro-batches than ranks, and groups that are not as large as the ranks.
FURTHER = (
    ("1f1b", 4, 2, ()),
    ("gpipe", 4, 1, ()),
    ("interleaved", 4, 10, ("--group", "5")),
    ("interleaved", 2, 8, ("--chunks", "3", "--group", "3")),
)


def read(path):
    with open(path, newline="") as file:
        rows = [[_Action.from_str(cell) for cell in row] for row in csv.reader(file) if row]
    return dict(enumerate(rows))


def parts(actions):
    """The actions without idle cells, an overlapped pair as its two."""
    return [part for action in actions if action is not None for part in action.sub_actions or (action,)]


def has(table, *operations):
    return any(part.computation_type in operations for actions in table.values() for part in parts(actions))


def at_use(table):
    """`table`, where each receive is directly before the computation that uses what it brings."""
    moved = {}
    for rank, actions in table.items():
        receives = {a[:3]: a for a in actions if a.computation_type in (RECV_F, RECV_B)}
        moved[rank] = []
        for action in actions:
            if action.computation_type in (RECV_F, RECV_B):
                continue
            for part in parts([action]):
                key = (part.stage_index, RECEIVE_OF.get(part.computation_type), part.microbatch_index)
                if key in receives:
                    moved[rank].append(receives.pop(key))
            moved[rank].append(action)
        if receives:
            raise ValueError(f"rank {rank} never uses what {next(iter(receives.values()))} brings")
    return moved


def sizes(table):
    """The numbers of stages and of micro-batches."""
    every = [part for actions in table.values() for part in parts(actions)]
    if not every:
        raise ValueError("there is no action in it")
    microbatches = [part.microbatch_index for part in every if part.microbatch_index is not None]
    return 1 + max(part.stage_index for part in every), 1 + max(microbatches)


def loaded(path):
    """The schedule that PyTorch makes of the file. Throws what PyTorch throws."""
    table = read(path)
    stages, microbatches = sizes(table)
    schedule = _PipelineScheduleRuntime(stages_of_a_rank(len(table), 1), microbatches)
    schedule._num_stages = stages
    schedule._load_csv(path, format="compute_comms" if has(table, *COMMUNICATION) else "compute_only")
    return schedule


def steps(schedule, table):
    """How many steps PyTorch's simulator takes for `table`. Throws one of STUCK if it gets stuck."""
    order = {r: [a for a in parts(row) if a.computation_type not in NOT_SIMULATED] for r, row in table.items()}
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the whole table when it is stuck
        simulated = _simulate_comms_compute(
            order, lambda stage: schedule.stage_index_to_group_rank[stage], schedule._num_stages
        )
    return max(len(actions) for actions in simulated.values())


def report(label, path):
    """Prints the line of one table. Returns whether PyTorch takes it."""
    remarks = []
    try:
        schedule = loaded(path)
        table = schedule.pipeline_order_with_comms
        last = steps(schedule, at_use(table))
        try:
            first = steps(schedule, table)
        except STUCK:
            first = last
            remarks.append("receives simulated at their use only")
    except (AssertionError, KeyError, RuntimeError, *STUCK) as error:
        print(f"{label}: refused: {type(error).__name__}: {(str(error) or '?').splitlines()[0]}")
        return False
    messages = sum(part.computation_type in SENDS for actions in table.values() for part in parts(actions))
    remark = f" ({'; '.join(remarks)})" if remarks else ""
    print(f"{label}: accepted: {messages} messages, {first} steps, {last} with receives at their use{remark}")
    return True


def schedule_names(program):
    """The names that its --help lists before "or a file"."""
    text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    line = next(line for line in text.splitlines() if line.lstrip().startswith("--schedule "))
    return line.split("=", 1)[1].split(None, 1)[1].split(", or a file")[0].split(", ")


def write_tables(program, folder, name, ranks, microbatches, flags):
    """Has the program write both tables. resnet50 has enough layers for all of them."""
    flags = ["--explain", "--model", "resnet50", "--balance", "layers", "--out", folder, *flags]
    flags += ["--table-format", "pytorch"]
    sizes = ["--schedule", name, "--ranks", str(ranks), "--microbatches", str(microbatches)]
    done = subprocess.run([program, *flags, *sizes], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return sorted(pathlib.Path(folder).glob("schedule*.csv"))


def own_tables(program):
    tables = [(name, ranks, 2 * ranks, ()) for name in schedule_names(program) for ranks in RANKS]
    return (*tables, *FURTHER)


def given_tables(paths):
    for path in paths:
        table = read(path)
        yield path, len(table), sizes(table)[1], ()


def load_all_of(program, tables):
    accepted = []
    for name, ranks, microbatches, flags in tables:
        with tempfile.TemporaryDirectory() as folder:
            label = " ".join([f"{pathlib.Path(name).stem}, {ranks} ranks, {microbatches} micro-batches", *flags])
            for path in write_tables(program, folder, name, ranks, microbatches, flags):
                accepted.append(report(f"{label}, {path.stem}", path))
    return accepted


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    logging.disable()
    if sys.argv[1].endswith(".csv"):
        accepted = [report(pathlib.Path(path).stem, path) for path in sys.argv[1:]]
    else:
        program, *paths = sys.argv[1:]
        accepted = load_all_of(program, given_tables(paths) if paths else own_tables(program))
    print(f"{sum(accepted)} of {len(accepted)} tables accepted")
    sys.exit(0 if all(accepted) else 1)


if __name__ == "__main__":
    main()
