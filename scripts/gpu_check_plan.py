"""What gpu_check.py runs when there is not time for everything: the least important parts are left out first."""

import typing


class Part(typing.NamedTuple):
    """One part of the check."""

    name: str  # as in the page's summary
    priority: int  # 1 is left out last; of parts with the same priority, the later ones first
    seconds: float  # that it is expected to add to the parts before it
    run: typing.Callable  # of the Check
    start: typing.Callable | None = None  # of the Check; runs beside the others that have one, and `run` waits for it


def choose(parts, seconds):
    """Returns the parts to run in `seconds`, in their order. The more important come first; each is in that fits."""
    chosen = []
    for part in sorted(parts, key=lambda part: part.priority):
        if part.seconds <= seconds:
            seconds -= part.seconds
            chosen.append(part)
    return [part for part in parts if part in chosen]


def describe(parts, seconds):
    """Returns the plan for `seconds` as lines of text."""
    chosen = choose(parts, seconds)
    total = sum(part.seconds for part in chosen)
    lines = [f"plan: {total:.0f} of {seconds:.0f} s; parts with large priority numbers are left out first",
             "seconds  priority  part"]
    for part in parts:
        left_out = "" if part in chosen else " (left out)"
        lines.append(f"{part.seconds:7.0f}  {part.priority:8}  {part.name}{left_out}")
    return "\n".join(lines)


def run_plan(check, parts):
    """Runs the parts in turn. Whether there is time for one is decided anew before it, as others took more or less."""
    started = []
    for number, part in enumerate(parts):
        check.begin()
        running = started if part.start and started else choose(parts[number:], check.seconds_left())
        if part not in running:
            check.note(part.name, f"not run: left out, as it would not fit into {check.minutes:g} minutes")
            continue
        if part.start and not started:
            started = [other for other in running if other.start]
            for other in started:
                other.start(check)
        part.run(check)
