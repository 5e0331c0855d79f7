#include "tests/chapters/compare.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace stagecoach::test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

/// At least two spaces stand between two cells.
Texts split(const std::string& line) {
  const std::regex gap("  +");
  return {std::sregex_token_iterator(line.begin(), line.end(), gap, -1), {}};
}

Json updated(Json object, const Json& more) {
  if (more.is_object()) {
    object.update(more);
  }
  return object;
}

}  // namespace

Outcome CompareTest::compare(Texts arguments) {
  arguments.emplace_back("--wide");
  return run(kCompare, arguments);
}

void CompareTest::write(const std::string& name, const std::string& text) {
  fs::create_directories((folder() / name).parent_path());
  write_bytes(folder() / name, text);
}

void CompareTest::write_run(const std::string& name, const std::vector<double>& seconds, const Json& settings,
                            const Json& figures) {
  const Json config{{"program", "ch03_gpipe"}, {"data", "images"}, {"batch-size", 64}};
  write(name + "/config.json", updated(config, settings).dump(2));
  std::string lines;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const auto number = static_cast<double>(i + 1);
    const Json epoch{{"event", "epoch"},
                     {"epoch", i + 1},
                     {"loss", 2.5 / number},
                     {"acc", 0.25},
                     {"test_acc", 0.125},
                     {"seconds", seconds[i]},
                     {"clock", "wall"},
                     {"images_per_second", 1000 / seconds[i]},
                     {"idle", 0.1 * (number - 1)},
                     {"ideal_idle", 0.0},
                     {"peak_bytes", Json::array({1 << 20})}};
    lines += updated(epoch, figures).dump() + "\n";
  }
  write(name + "/metrics.jsonl", lines);
}

void CompareTest::expect_refusal(const std::string& a, const std::string& b, const Texts& texts) {
  const auto name = [](const std::string& run) { return fs::path(run).filename().string(); };
  const Outcome outcome = compare({a, b});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.out << outcome.err;
  EXPECT_EQ(cell(outcome, name(b), "speed-up"), "-");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  expect_texts(outcome.err, {"compare: " + name(b) + " is not comparable with " + name(a) + ": "});
  expect_texts(outcome.err, texts);
}

void CompareTest::expect_error(const Texts& arguments, int exit_code, const Texts& texts) {
  const Outcome outcome = compare(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  expect_texts(outcome.err, texts);
}

void CompareTest::expect_texts(const std::string& where, const Texts& texts) {
  for (const std::string& text : texts) {
    EXPECT_NE(where.find(text), std::string::npos) << "'" << text << "' is not in: " << where;
  }
}

std::string CompareTest::cell(const Outcome& outcome, const std::string& run, const std::string& column) {
  std::istringstream lines(outcome.out);
  Texts heading;
  for (std::string line; std::getline(lines, line);) {
    const Texts cells = split(line);
    if (heading.empty()) {
      heading = cells;
    } else if (cells.size() == heading.size() && cells[0] == run) {
      const auto found = std::find(heading.begin(), heading.end(), column);
      return found == heading.end() ? "no such column" : cells[static_cast<std::size_t>(found - heading.begin())];
    }
  }
  return "no such row in:\n" + outcome.out;
}

}  // namespace stagecoach::test
