"""Reads docs/notebooks/colab.ipynb. As a program, it runs the notebook's commands without a GPU: it clones, builds and
trains in a temporary folder, for minutes."""

import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs/notebooks/colab.ipynb"

# Instead of the GPU, its compilers and a network. Each pattern must be found.
WITHOUT_A_GPU = (
    (r"!nvidia-smi .*", ""),
    (r"(STAGECOACH_REPOSITORY)=.*", rf"\1={ROOT}"),
    (r"%env (CXX|CUDAHOSTCXX)=.*", ""),
    (r"!pip install .*", ""),
    (r"build\.sh cuda ", "build.sh release "),
    (r"build/cuda/", "build/release/"),
    (r" --device cuda", ""),
    (r"!scripts/download_cifar10.sh", ""),
    (r"--data data ", "--data generated "),
    (r"--epochs 10", "--epochs 2"),
)


def read_cells():
    """Returns the cells, each a dictionary with cell_type, source and, of code, outputs."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def code_lines():
    """Returns the lines of all code cells: commands begin with !, or with % where IPython runs them itself."""
    sources = ["".join(cell["source"]) for cell in read_cells() if cell["cell_type"] == "code"]
    return "\n".join(sources).splitlines()


def without_a_gpu(lines):
    """Returns the commands as lines of a shell, with all of WITHOUT_A_GPU replaced; lines in Python are left out."""
    text = "\n".join(lines)
    for pattern, replacement in WITHOUT_A_GPU:
        text, count = re.subn(pattern, replacement, text)
        assert count > 0, f"nothing in the notebook matches {pattern}"
    script = []
    for line in text.splitlines():
        if found := re.fullmatch(r"(?:!|%env (?=\w+=)|%(?=cd ))(.*)", line):
            script.append(("export " if line.startswith("%env") else "") + found[1])
    return script


def train(folder):
    subprocess.run(["bash", "-euxc", "\n".join(without_a_gpu(code_lines()))], cwd=folder, check=True)
    project = folder / "stagecoach"
    for run in ("cpu", "gpu"):
        metrics = (project / "runs" / run / "metrics.jsonl").read_text()
        losses = [json.loads(line)["loss"] for line in metrics.splitlines()]
        assert len(losses) == 2 and losses[1] < losses[0], f"{run}: {losses}"
    assert "<svg" in (project / "comparison.svg").read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(pathlib.Path(folder))
