"""Figures of the scripts that measure: a table of numbers, drawn by the program line_chart."""

import subprocess


def draw(programs, path, title, names, rows, *flags):
    """Writes an SVG picture. The first of `names` is the axis, and each other one a curve; a row has a number for each."""
    table = "\n".join(",".join(map(str, row)) for row in (names, *rows)) + "\n"
    done = subprocess.run(
        [programs / "line_chart", "--title", title, *flags], input=table, text=True, check=True, stdout=subprocess.PIPE
    )
    path.write_text(done.stdout)
