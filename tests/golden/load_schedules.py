#!/usr/bin/env python3
"""Has torch.distributed.pipelining load our tables and validate them. Needs torch 2.15 or later; no GPU, no processes.

  python3 tests/golden/load_schedules.py build/release/bin/ch05_interleaved   every schedule of it, for 2, 4 and 8 ranks
  python3 tests/golden/load_schedules.py TABLE.csv ...                         these files, with communication or without

Each table goes through PyTorch's own code: `_load_csv` (the notation; `_validate_schedule`; the passes that add sends,
receives and their waits) and `_simulate_comms_compute` (nothing waits forever). It is simulated with its receives where
the table has them, or else as early as PyTorch posts them, and with its receives at their use. One line per table; exit
code 1 if any is refused.

Where PyTorch asks for more than a legal table of ours has, the line says what was done about it:
- It wants a WAIT_SEND for each send and a WAIT_REDUCE_GRAD for each REDUCE_GRAD. Here a send that is not waited for
  ends with the step. PyTorch's `_add_wait_send` adds the first, this script the second.
- Its simulator lets a receive wait where it is posted, and not where its tensor is used. A table that posts receives
  earlier than PyTorch does can get stuck there; then only the run with receives at their use counts.
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
    _add_wait_send,
    _PipelineScheduleRuntime,
    _simulate_comms_compute,
)

SENDS = (SEND_F, SEND_B)
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


def with_waits(table, remarks):
    """`table`, where each send and each reduction has its wait."""
    if has(table, *SENDS) and not has(table, WAIT_SEND_F, WAIT_SEND_B):
        remarks.append("WAIT_SEND added")
        table = _add_wait_send(table)
    if has(table, REDUCE_GRAD) and not has(table, WAIT_REDUCE_GRAD):
        remarks.append("WAIT_REDUCE_GRAD added")
        for rank, actions in table.items():
            table[rank] = []
            for action in actions:
                table[rank].append(action)
                if action.computation_type == REDUCE_GRAD:
                    table[rank].append(action._replace(computation_type=WAIT_REDUCE_GRAD))
    return table


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


def loaded(path, remarks):
    """The schedule that PyTorch makes of the file. Throws what PyTorch throws."""
    table = read(path)
    every = [part for actions in table.values() for part in parts(actions)]
    if not every:
        raise ValueError("there is no action in it")
    stages = 1 + max(part.stage_index for part in every)
    microbatches = 1 + max(part.microbatch_index for part in every if part.microbatch_index is not None)
    schedule = _PipelineScheduleRuntime(stages_of_a_rank(len(table), 1), microbatches)
    schedule._num_stages = stages
    if has(table, RECV_F, RECV_B, REDUCE_GRAD):
        actions = {rank: [a for a in row if a is not None] for rank, row in table.items()}
        schedule._prepare_schedule_with_comms(with_waits(actions, remarks), format="compute_comms")
    else:
        schedule._load_csv(path, format="compute_only")
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
        schedule = loaded(path, remarks)
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
    """Has the program write its table, and the lowered one if it does. resnet50 has enough layers for all of them."""
    flags = ["--explain", "--model", "resnet50", "--balance", "layers", "--out", folder, *flags]
    sizes = ["--schedule", name, "--ranks", str(ranks), "--microbatches", str(microbatches)]
    done = subprocess.run([program, *flags, *sizes], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return sorted(pathlib.Path(folder).glob("schedule*.csv"))


def load_all_of(program):
    tables = [(name, ranks, 2 * ranks, ()) for name in schedule_names(program) for ranks in RANKS]
    accepted = []
    for name, ranks, microbatches, flags in (*tables, *FURTHER):
        with tempfile.TemporaryDirectory() as folder:
            label = " ".join([f"{name}, {ranks} ranks, {microbatches} micro-batches", *flags])
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
        accepted = load_all_of(sys.argv[1])
    print(f"{sum(accepted)} of {len(accepted)} tables accepted")
    sys.exit(0 if all(accepted) else 1)


if __name__ == "__main__":
    main()
