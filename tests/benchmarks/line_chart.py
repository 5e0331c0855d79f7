"""Figures of the scripts that measure, drawn by the program line_chart."""

import json
import subprocess


def draw(programs, path, title, x, curves, logarithmic=False):
    """Writes an SVG figure. `curves` is {name: [(x, y), …]}; a logarithmic axis has a tick at each x."""
    figure = {"title": title, "x": x, "logarithmic": logarithmic, "curves": curves}
    done = subprocess.run([programs / "line_chart"], input=json.dumps(figure), text=True, check=True, stdout=subprocess.PIPE)
    path.write_text(done.stdout)
