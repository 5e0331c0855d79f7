#include "tests/labs/grading.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <sstream>

#include "chapters/common/not_written.h"
#include "tests/labs/child_process.h"

namespace stagecoach::labs {
namespace {

// What a child reports: its word, whether the check held, its notes, an end of text, and the explanation.
constexpr char kHeld = '+';
constexpr char kFailed = '-';
constexpr char kEnd = '\0';

std::string& notes() {
  static std::string text;
  return text;
}

/// Returns `text` with `margin` before each of its lines.
std::string indented(const std::string& text, const std::string& margin) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    result += margin + line + "\n";
  }
  return result;
}

/// Runs the check; returns why it does not hold.
std::optional<std::string> failure_of(const Criterion& criterion) {
  try {
    criterion.check();
    return std::nullopt;
  } catch (const Failed& failed) {
    return failed.what();
  } catch (const lab::NotWritten& blank) {
    return blank.what();
  } catch (const std::exception& error) {
    return fmt::format("expected: no exception\ngot:      {}", error.what());
  } catch (...) {
    return "expected: no exception\ngot:      one that is not derived from std::exception";
  }
}

Result result_of(const Criterion& criterion, const Limits& limits) {
  const std::string word = random_word();
  const Ended ended = run_in_child(limits, [&] {
    const std::optional<std::string> failure = failure_of(criterion);
    return word + (failure ? kFailed : kHeld) + notes() + kEnd + failure.value_or("");
  });
  Result result{.criterion = criterion.name, .of = criterion.points, .printed = ended.printed};
  const std::size_t end = ended.reported.find(kEnd);
  if (!ended.reported.starts_with(word) || end == std::string::npos) {
    result.explanation = ended.how;
    return result;
  }
  result.points = ended.reported[word.size()] == kHeld ? criterion.points : 0;
  result.note = ended.reported.substr(word.size() + 1, end - word.size() - 1);
  result.explanation = ended.reported.substr(end + 1);
  return result;
}

}  // namespace

Failed::Failed(const std::string& expected, const std::string& got, const std::string& look_at,
               const std::string& drawing)
    : std::runtime_error(fmt::format("expected: {}\ngot:      {}\nlook at:  {}\n{}", expected, got, look_at, drawing)) {
}

void note(const std::string& text) { notes() += text + "\n"; }

std::vector<Result> grade(const std::vector<Criterion>& criteria, const Limits& limits) {
  std::vector<Result> results;
  for (const Criterion& criterion : criteria) {
    results.push_back(result_of(criterion, limits));
  }
  return results;
}

int points_of(const std::vector<Result>& results) {
  return std::accumulate(results.begin(), results.end(), 0, [](int sum, const Result& r) { return sum + r.points; });
}

int most_points_of(const std::vector<Result>& results) {
  return std::accumulate(results.begin(), results.end(), 0, [](int sum, const Result& r) { return sum + r.of; });
}

std::string report_of(const std::vector<Result>& results) {
  std::string text;
  for (const Result& result : results) {
    text += fmt::format("[ {:>2}/{:<2} ] {}\n", result.points, result.of, result.criterion);
    text += indented(result.note, "          ");
    text += indented(result.explanation, "          ");
    if (!result.printed.empty() && result.points < result.of) {
      text += "          your program printed:\n" + indented(result.printed, "          | ");
    }
  }
  return text;
}

}  // namespace stagecoach::labs
