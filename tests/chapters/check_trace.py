#!/usr/bin/env python3
"""Checks traces (trace.json of --out): what a viewer would drop, or show in the wrong place.

On each track, slices nest or are disjoint, by the times as a viewer reads them, and an outer slice comes first. Tracks
and processes have a name and a place in the order, and no number 0. Each predicted action is there as often as it was
measured, on the rank that ran it; each step was measured once on each rank, and predicted once where anything was. Both
ends of an arrow are there.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

MEASURED, PREDICTED = 1, 2
ACTION = re.compile(r"\d+[FBIW]\d+")


def nanoseconds(microseconds):
    """As Perfetto reads a number: a double, cut off."""
    return int(microseconds * 1000)


def crossing_slices(slices):
    """The slices, in the order of the file, that begin within an earlier one of their track and end after it."""
    found, outer = [], []
    ordered = sorted(slices, key=lambda event: nanoseconds(event["ts"]))  # stable: the order of the file counts
    for event in ordered:
        begin = nanoseconds(event["ts"])
        end = begin + nanoseconds(event["dur"])
        while outer and outer[-1][0] <= begin:
            outer.pop()
        if outer and end > outer[-1][0]:
            found.append(f"'{event['name']}' at {event['ts']} us crosses the end of '{outer[-1][1]}'")
        else:
            outer.append((end, event["name"]))
    return found


def complaints_of(trace):
    """What is wrong with a trace, one line each."""
    events = trace["traceEvents"]
    found = []
    tracks, names, places = collections.defaultdict(list), {}, {}
    arrows = collections.defaultdict(list)
    for event in events:
        process = event["pid"]
        track = (process, event["tid"])
        if 0 in track:
            found.append(f"number 0: {event}")
        if event["ph"] == "X":
            tracks[track].append(event)
        elif event["ph"] in "sf":
            arrows[event["cat"], event["id"]].append(event["ph"])
        elif event["ph"] == "M":
            key = process if event["name"].startswith("process_") else track
            (names if event["name"].endswith("_name") else places)[key] = event["args"]
    for (process, track), slices in tracks.items():
        for key in (process, (process, track)):
            found += [f"no {what} of {key}" for what, known in (("name", names), ("place", places)) if key not in known]
        where = f"track '{names.get((process, track), {}).get('name')}' of process {process}: "
        found += [where + crossing for crossing in crossing_slices(slices)]
    found += [f"arrow {key} has the ends {ends}" for key, ends in arrows.items() if sorted(ends) != ["f", "s"]]
    return found + misplaced(tracks)


def misplaced(tracks):
    """Which predicted actions and steps are not where they were measured."""

    def count(process, track, chosen):
        return collections.Counter(event["name"] for event in tracks[process, track] if chosen(event))

    def is_step(event):
        return event["cat"] == "step"

    def is_action(event):
        return event["cat"] == "action" and ACTION.fullmatch(event["name"])

    ranks = {track for process, track in tracks if track <= 1000}
    predicts = any(process == PREDICTED for process, _ in tracks)
    found = []
    for rank in sorted(ranks):
        steps = count(MEASURED, rank, is_step)
        found += [f"track {rank}: '{name}' was measured {times} times" for name, times in steps.items() if times != 1]
        if predicts and count(PREDICTED, rank, is_step) != steps:
            found.append(f"track {rank}: measured and predicted steps differ")
        measured, predicted = (count(process, rank, is_action) for process in (MEASURED, PREDICTED))
        if predicted or any(count(PREDICTED, other, is_action) for other in ranks):
            found += [f"track {rank}: '{name}' was measured {measured[name]} times and predicted {predicted[name]} times"
                      for name in sorted(measured | predicted) if measured[name] != predicted[name]]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    failed = False
    for path in parser.parse_args().traces:
        for complaint in complaints_of(json.loads(path.read_text())):
            failed = True
            print(f"{path}: {complaint}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
