#!/usr/bin/env python3
"""Draws the timelines and schedule figures of the chapters' texts anew, by the commands that stand there.

    scripts/draw_docs.py [--programs build/release/bin] [--check]

A text block after a command with --explain shows part of what that prints: each of its parts, with "…" between them, is
replaced by the lines of the output from its first line to its last one. A figure of a schedule is what the last such
command before it writes with --out. --check changes nothing, and fails if something would change. Measured figures come
from the scripts/measure_*.sh.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The figures that depend on no measurement, and what their commands take besides.
FIGURES = {"ch03_gpipe": "", "ch04_stash": "", "ch04_2bw": "--versions 2bw", "ch05_1f1b": "", "ch05_interleaved": "",
           "ch06_modes": ""}  # fmt: skip


def run(command, programs, more=""):
    """What the command prints, 80 columns wide, and the figure that it writes with --out."""
    words = shlex.split(command.replace("\\\n", " ") + " " + more)
    words = [str(programs / pathlib.Path(words[0]).name), *words[1:]]
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"COLUMNS": "80"}
        done = subprocess.run([*words, "--out", folder], check=True, capture_output=True, text=True, env=environment)
        figure = "".join(path.read_text() for path in pathlib.Path(folder).glob("*.svg"))  # one, or none
    return done.stdout.splitlines(), figure


def places_of(line, output, begin):
    """Where in `output` the line is, from `begin` on: as it is, else with other numbers."""
    keys = [lambda text: text.split(), lambda text: re.match(r"[^0-9]*", text).group().split(),
            lambda text: text.split()[:1] + re.sub("[0-9.]+", "0", text).split()]  # fmt: skip
    for key in keys:
        places = [i for i in range(begin, len(output)) if key(output[i]) == key(line) != []]
        if places:
            return places
    return []


def drawn_part(part, output):
    """The lines of `output` that begin and end as `part` does; None if there are none."""
    for begin in places_of(part[0], output, 0):
        ends = places_of(part[-1], output, begin)
        if ends:
            return output[begin : ends[0] + 1]
    return None


def drawn_block(block, output):
    """The block of text with its parts as they are in `output`; None if one is not there."""
    lines = []
    for is_gap, part in split_at_gaps(block):
        drawn = part if is_gap else drawn_part(part, output)
        if drawn is None:
            return None
        lines += drawn
    return lines


def split_at_gaps(block):
    parts = []
    for line in block:
        is_gap = line == "…"
        if is_gap or not parts or parts[-1][0]:
            parts.append((is_gap, []))
        parts[-1][1].append(line)
    return parts


def draw_page(page, programs, figures):
    """The page's text as it should be; puts its figures into `figures`."""
    text = page.read_text()
    pieces = re.split(r"(```[a-z]*\n.*?^```$)", text, flags=re.S | re.M)
    command, output = None, []
    for i, piece in enumerate(pieces):
        if piece.startswith("```sh\n"):
            body = piece[6:-4]
            if "--explain" in body:
                measures = "--profile" in body or "|" in body
                command, (output, _) = (None, ([], "")) if measures else (body, run(body, programs))
        elif piece.startswith("```text\n") and command:
            drawn = drawn_block(piece[8:-4].split("\n"), output)
            if drawn is not None:
                pieces[i] = "```text\n" + "\n".join(drawn) + "\n```"
            elif pieces[i - 2].startswith("```sh") and command in pieces[i - 2]:
                sys.exit(f"{page}: '{command.strip()}' does not print the text block that follows it; correct the block")
        else:
            for name in re.findall(r"docs/figures/(\w+)\.svg", piece):
                if name in FIGURES:
                    figures[name] = run(command, programs, FIGURES[name])[1]
    return "".join(pieces)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--check", action="store_true")
    flags = parser.parse_args()
    figures = {}
    drawn = {page: draw_page(page, flags.programs, figures) for page in sorted(ROOT.glob("chapters/*/README.md"))}
    drawn |= {ROOT / f"docs/figures/{name}.svg": figure for name, figure in figures.items()}
    missing = FIGURES.keys() - figures.keys()
    old = [path for path, text in drawn.items() if not path.exists() or path.read_text() != text]
    for path in old:
        done = "differs from the output of the programs; run scripts/draw_docs.py" if flags.check else "redrawn"
        print(f"{path.relative_to(ROOT)}: {done}")
        if not flags.check:
            path.write_text(drawn[path])
    if missing:
        sys.exit(f"no chapter's text shows these figures: {', '.join(sorted(missing))}")
    sys.exit(1 if flags.check and old else 0)


main()
