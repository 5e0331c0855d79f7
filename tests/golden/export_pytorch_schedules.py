#!/usr/bin/env python3
"""Writes schedules/: the tables of torch.distributed.pipelining for 2, 4 and 8 ranks, as its `_dump_csv` writes them.

The files there are PyTorch 2.15.0's. To write them again (needs torch; no GPU and no process group):
  python3 tests/golden/export_pytorch_schedules.py

NAME-pP-mM[-vV].csv lists computations (the format "compute_only"), NAME-pP-mM[-vV]-comms.csv sends, receives and
reductions too ("compute_comms"): P ranks, M micro-batches, V stages per rank where there are several.
tests/parallel/pytorch_tables_test.cpp checks and trains them; load_schedules.py has PyTorch read ours.

ScheduleGPipe and Schedule1F1B have no `_dump_csv`. Their tables go through _PipelineScheduleRuntime, which has one and
adds the communication. It takes computations only, so their REDUCE_GRAD and WAIT_REDUCE_GRAD are taken out first.
Schedule1F1B numbers the forwards of its last rank 1 ... m. PyTorch's own validation refuses that, so here they are
numbered 0 ... m-1. schedules/refused/ has one table as Schedule1F1B lists it.
"""

import logging
import pathlib
from types import SimpleNamespace

import torch
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.schedules import FORWARD, _PipelineScheduleRuntime

FOLDER = pathlib.Path(__file__).with_name("schedules")
RANKS = (2, 4, 8)
ONE_STAGE_PER_RANK = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
TWO_STAGES_PER_RANK = {
    "interleaved": ScheduleInterleaved1F1B,
    "looped-bfs": ScheduleLoopedBFS,
    "interleaved-zb": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
    "dualpipev": ScheduleDualPipeV,
}


def stages_of_a_rank(ranks, per_rank):
    """What a schedule asks of its stages before it runs: how many there are, and on how many ranks."""
    return [
        SimpleNamespace(num_stages=ranks * per_rank, group_size=ranks, group_rank=0, submod=None) for _ in range(per_rank)
    ]


def in_runtime(order, microbatches):
    """A schedule with the table `order`: validated by PyTorch, with communication added by it."""
    schedule = _PipelineScheduleRuntime(stages_of_a_rank(len(order), 1), microbatches)
    schedule.pipeline_order = order
    schedule._prepare_schedule_with_comms(order)
    return schedule


def computations(order):
    return {rank: [a for a in actions if a is None or a.is_compute_op] for rank, actions in order.items()}


def numbered_from_zero(order):
    """`order`, where the last rank's forwards count from 0, as its backwards and all other ranks do."""
    last = max(order)
    first = min(a.microbatch_index for a in order[last] if a is not None and a.computation_type == FORWARD)
    shifted = [
        a._replace(microbatch_index=a.microbatch_index - first) if a is not None and a.computation_type == FORWARD else a
        for a in order[last]
    ]
    return {**order, last: shifted}


def write(schedule, name):
    schedule._dump_csv(FOLDER / f"{name}.csv", format="compute_only")
    schedule._dump_csv(FOLDER / f"{name}-comms.csv", format="compute_comms")


def write_as_listed(order, microbatches, name):
    """Writes a table that PyTorch itself refuses; says so if a newer one does not."""
    try:
        in_runtime(order, microbatches)
        print(f"{name} is accepted by this PyTorch: schedules/refused is out of date")
    except AssertionError:
        runtime = _PipelineScheduleRuntime(stages_of_a_rank(len(order), 1), microbatches)
        runtime.pipeline_order = order
        runtime._dump_csv(FOLDER / "refused" / f"{name}.csv", format="compute_only")


def main():
    logging.disable()  # a warning for each schedule that it is a prototype
    (FOLDER / "refused").mkdir(parents=True, exist_ok=True)
    for ranks in RANKS:
        microbatches = 2 * ranks  # the fewest that DualPipeV takes
        size = f"p{ranks}-m{microbatches}"
        for name, kind in ONE_STAGE_PER_RANK.items():
            listed = computations(kind(stages_of_a_rank(ranks, 1)[0], microbatches).pipeline_order)
            write(in_runtime(numbered_from_zero(listed), microbatches), f"{name}-{size}")
            if kind is Schedule1F1B and ranks == min(RANKS):
                write_as_listed(listed, microbatches, f"{name}-{size}")
        for name, kind in TWO_STAGES_PER_RANK.items():
            write(kind(stages_of_a_rank(ranks, 2), microbatches), f"{name}-{size}-v2")
    print(f"PyTorch {torch.__version__}: {len(list(FOLDER.glob('*.csv')))} tables in {FOLDER}")


if __name__ == "__main__":
    main()
