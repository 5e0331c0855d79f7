"""The page of published figures, and the functions that make it."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import published  # noqa: E402


class Page(unittest.TestCase):
    def rows(self):
        """The cells of each row of the table of figures."""
        lines = (ROOT / "docs/measurements/published.md").read_text().splitlines()
        begin = lines.index("| figure | source | published | `simulate` | measured | ratio |") + 2
        end = lines.index("", begin)
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin:end]]

    def test_every_row_has_a_source_and_a_ratio(self):
        anchors = re.findall('<a name="([^"]+)">', (ROOT / "docs/bibliography.md").read_text())
        rows = self.rows()
        self.assertGreater(len(rows), 20)
        for figure, source, first, simulated, measured, ratio in rows:
            link = re.fullmatch(r"\[[^]]+\]\(\.\./bibliography\.md#(\w+)\)", source)
            self.assertTrue(link, figure)
            self.assertIn(link[1], anchors)
            ours = simulated if measured == "–" else measured
            self.assertGreater(float(ratio), 0, figure)
            self.assertAlmostEqual(float(ratio), float(ours) / float(first), delta=0.05 * float(ratio) + 0.01, msg=figure)

    def test_sources_are_in_the_bibliography(self):
        text = (ROOT / "docs/bibliography.md").read_text()
        for anchor in published.SOURCES:
            self.assertIn(f'<a name="{anchor}">', text)


class Figures(unittest.TestCase):
    def test_the_logs_have_their_published_medians(self):
        self.assertAlmostEqual(published.published_seconds("single_gpu.log"), 14.23)
        self.assertAlmostEqual(published.published_seconds("naive_4_gpus.log"), 14.98)
        self.assertAlmostEqual(published.published_seconds("pipeline_4_gpus.log"), 26.39)

    def test_a_ratio_is_ours_over_the_published(self):
        measured = published.Row("a", "course", 2, 3, 4).markdown()
        self.assertEqual(measured, "| a | [the course](../bibliography.md#course) | 2.00 | 3.00 | 4.00 | 2.00 |")
        self.assertTrue(published.Row("a", "course", 2, 3, None).markdown().endswith("| 3.00 | – | 1.50 |"))

    def test_a_median_leaves_out_the_first_epoch(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [json.dumps({"seconds": seconds}) for seconds in (9, 1, 3, 2)]
            (pathlib.Path(folder) / "metrics.jsonl").write_text("\n".join(lines))
            self.assertEqual(published.median_of(pathlib.Path(folder), "seconds"), 2)
            self.assertIsNone(published.median_of(pathlib.Path(folder), "predicted_seconds"))

    def test_stages_have_equally_many_blocks(self):
        self.assertEqual(published.blocks_per_stage(4), ["--split", "5,4,4,7"])
        self.assertEqual(sum(map(int, published.blocks_per_stage(16)[1].split(","))), published.DEPTH + 4)

    def test_forwards_are_those_of_the_run_not_those_predicted_beside_it(self):
        span = lambda name, category, process: {"ph": "X", "name": name, "cat": category, "pid": process, "ts": 1e6, "dur": 2e6}
        events = [span("1F0", "action", 0), span("1F0", "action", 1), span("1B0", "action", 0), {"ph": "M", "name": "1F0"}]
        self.assertEqual(published.forwards_of({"traceEvents": events}), [(1, 2)])


if __name__ == "__main__":
    unittest.main()
