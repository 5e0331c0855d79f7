#include "tests/labs/run_lab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/labs/class_settings.h"

namespace stagecoach::labs {
namespace {

struct Flags {
  bool points = false;
  bool draw = false;
  bool is_signed = false;
};

/// Nothing for flags that there are not.
std::optional<Flags> read_flags(std::span<char*> arguments) {
  Flags flags;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--points") {
      flags.points = true;
    } else if (argument == "--draw") {
      flags.draw = true;
    } else if (argument == "--signed") {
      flags.is_signed = true;
    } else if (argument == "--seed" && i + 1 < arguments.size()) {
      const std::string_view text = arguments[++i];
      std::uint64_t seed = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), seed);
      if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
        return std::nullopt;
      }
      set_class_seed(seed);
    } else {
      return std::nullopt;
    }
  }
  return flags;
}

/// Grades the criteria, and shows on a terminal which one is being graded, as endless loops take their time.
std::vector<Result> grade_and_show(const std::vector<Criterion>& criteria) {
  if (::isatty(STDERR_FILENO) == 0) {
    return grade(criteria);
  }
  constexpr const char* kEmptyLine = "\r\033[K";
  std::vector<Result> results = grade(criteria, {}, [&](const Criterion& criterion) {
    fmt::print(stderr, "{}grading: {}\r", kEmptyLine, criterion.name);
    std::fflush(stderr);
  });
  fmt::print(stderr, "{}", kEmptyLine);
  return results;
}

/// Calls the answer as a criterion does, so that an endless loop or a crash ends only the child.
int draw(int lab, const std::function<std::string()>& drawing) {
  if (drawing == nullptr) {
    fmt::print(stderr,
               "lab_{}: this lab has nothing to draw: expected lab 5, whose schedule of your own can be drawn\n", lab);
    return 2;
  }
  const std::vector<Result> results = grade({{"the drawing", 0, [&] { note(drawing()); }}});
  const bool is_drawn = results.front().why == Explanation{};
  fmt::print("{}", is_drawn ? results.front().note : report_of(results));
  return is_drawn ? 0 : 1;
}

}  // namespace

int run_lab(int argc, char** argv, int lab, const std::function<std::vector<Criterion>()>& criteria,
            const std::function<std::string()>& drawing) {
  const auto flags = read_flags(std::span(argv, static_cast<std::size_t>(argc)));
  if (!flags) {
    fmt::print(stderr, "lab_{}: wrong flags: expected [--points] [--draw] [--seed NUMBER] [--signed]\n", lab);
    return 2;
  }
  if (flags->draw) {
    return draw(lab, drawing);
  }
  std::string word;
  if (flags->is_signed) {
    std::getline(std::cin, word);
  }
  const std::vector<Result> results = grade_and_show(criteria());
  if (!flags->points) {
    fmt::print("{}", report_of(results));
  }
  fmt::print("lab {}: {} of {} points\n", lab, points_of(results), max_points_of(results));
  if (flags->is_signed) {
    for (const Result& result : results) {
      fmt::print("{}\t{}\t{}\t{}\n", word, result.points, result.of, result.criterion);
      std::istringstream notes(result.note);
      for (std::string line; std::getline(notes, line);) {
        fmt::print("{}\tnote\t{}\n", word, line);
      }
    }
  }
  return points_of(results) == max_points_of(results) ? 0 : 1;
}

}  // namespace stagecoach::labs
