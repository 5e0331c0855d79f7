"""The notebook is one that Jupyter opens, without stored outputs; its commands, files and links exist: run by ctest."""

import os
import re
import unittest

from notebook import NOTEBOOK, ROOT, code_lines, read_cells, without_a_gpu


class Notebook(unittest.TestCase):
    def test_is_valid(self):
        cells = read_cells()
        self.assertEqual(len({cell["id"] for cell in cells}), len(cells))
        for cell in cells:
            self.assertIn(cell["cell_type"], ("markdown", "code"))
            self.assertTrue(all(line.endswith("\n") for line in cell["source"][:-1]))

    def test_stores_no_outputs(self):
        for cell in read_cells():
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None))

    def test_runs_scripts_and_programs_that_exist(self):
        built = set()
        for line in code_lines():
            if script := re.match(r"!(scripts/\S+)", line):
                self.assertTrue(os.access(ROOT / script[1], os.X_OK), line)
            if targets := re.search(r"build\.sh cuda --target (.*)", line):
                built.update(targets[1].split())
            if program := re.match(r"!build/cuda/bin/(\S+)", line):
                self.assertIn(program[1], built)

    def test_every_line_is_a_command_or_python(self):
        self.assertGreater(len(without_a_gpu(code_lines())), 5)
        for line in code_lines():
            if not re.match(r"!\S|%env \w+=\S|%cd \S", line):
                compile(line, line, "exec")

    def test_links_lead_somewhere(self):
        text = "".join("".join(cell["source"]) for cell in read_cells() if cell["cell_type"] == "markdown")
        links = re.findall(r"\]\(([^)#]+)\)", text)
        self.assertGreater(len(links), 0)
        for link in links:
            self.assertTrue((NOTEBOOK.parent / link).exists(), link)


if __name__ == "__main__":
    unittest.main()
