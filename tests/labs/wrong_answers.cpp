// Grades the wrong answers of one lab: each must lose points on the criterion that names its mistake, and keep some on
// others. Exit code 1 if one does not.
//
//   wrong_answers 3              a line for each answer
//   wrong_answers 3 --seed 7     as another class
//   wrong_answers 3 --show sum   the report on this answer, as a student sees it
//   wrong_answers 3 --table      the rows of the table in docs/wrong_answers.md, without grading
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/labs/class_settings.h"
#include "tests/labs/grading.h"
#include "tests/labs/wrong/lab1.h"
#include "tests/labs/wrong/lab2.h"
#include "tests/labs/wrong/lab3.h"
#include "tests/labs/wrong/lab4.h"
#include "tests/labs/wrong/lab5.h"
#include "tests/labs/wrong/lab6.h"
#include "tests/labs/wrong/lab7.h"
#include "tests/labs/wrong/lab8.h"
#include "tests/labs/wrong/lab9.h"

namespace stagecoach::labs {
namespace {

/// A wrong answer to any lab.
struct Row {
  std::string name;
  std::string mistake;
  std::string criterion;
  std::vector<Criterion> criteria;
};

template <class Answer>
std::vector<Row> rows_of(const std::vector<WrongAnswer<Answer>>& answers,
                         std::vector<Criterion> (*criteria)(const Answer& answer)) {
  std::vector<Row> rows;
  for (const WrongAnswer<Answer>& wrong : answers) {
    rows.push_back({wrong.name, wrong.mistake, wrong.criterion, criteria(wrong.answer)});
  }
  return rows;
}

const std::map<int, std::function<std::vector<Row>()>> kLabs{
    {1, [] { return rows_of(lab1::wrong_answers(), lab1::criteria); }},
    {2, [] { return rows_of(lab2::wrong_answers(), lab2::criteria); }},
    {3, [] { return rows_of(lab3::wrong_answers(), lab3::criteria); }},
    {4, [] { return rows_of(lab4::wrong_answers(), lab4::criteria); }},
    {5, [] { return rows_of(lab5::wrong_answers(), lab5::criteria); }},
    {6, [] { return rows_of(lab6::wrong_answers(), lab6::criteria); }},
    {7, [] { return rows_of(lab7::wrong_answers(), lab7::criteria); }},
    {8, [] { return rows_of(lab8::wrong_answers(), lab8::criteria); }},
    {9, [] { return rows_of(lab9::wrong_answers(), lab9::criteria); }},
};

/// Returns the points of the criterion that names the mistake; nothing if the lab has no such criterion.
std::optional<int> points_at_stake(const Row& row) {
  const auto found = std::find_if(row.criteria.begin(), row.criteria.end(),
                                  [&](const Criterion& criterion) { return criterion.name == row.criterion; });
  return found == row.criteria.end() ? std::nullopt : std::optional(found->points);
}

/// Returns whether the answer loses the points that it should lose, and prints a line that says so.
bool is_caught(const Row& row) {
  const std::vector<Result> results = grade(row.criteria);
  const bool caught = std::any_of(results.begin(), results.end(), [&](const Result& result) {
    return result.criterion == row.criterion && result.was_graded && result.points < result.of;
  });
  const bool right = caught && points_of(results) > 0;
  fmt::print("{:<8} {:>3} points  {} ({})\n", right ? "caught" : "NOT SO", points_of(results), row.name, row.criterion);
  if (!right) {
    fmt::print("{}", report_of(results));
  }
  return right;
}

int usage() {
  fmt::print(stderr, "usage: wrong_answers LAB [--seed NUMBER] [--show NAME] [--table]\n");
  return 2;
}

int run(const std::vector<std::string>& arguments) {
  const auto number = [](const std::string& text) {
    std::uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() ? std::optional(value) : std::nullopt;
  };
  if (arguments.empty() || !number(arguments[0]) || !kLabs.contains(static_cast<int>(*number(arguments[0])))) {
    return usage();
  }
  bool table = false;
  std::string shown;  // only this answer, with its report
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--table") {
      table = true;
    } else if (arguments[i] == "--show" && i + 1 < arguments.size()) {
      shown = arguments[++i];
    } else if (arguments[i] == "--seed" && i + 1 < arguments.size() && number(arguments[i + 1])) {
      set_class_seed(*number(arguments[++i]));
    } else {
      return usage();
    }
  }
  bool all_right = true;
  for (const Row& row : kLabs.at(static_cast<int>(*number(arguments[0])))()) {
    if (!shown.empty()) {
      fmt::print("{}", row.name == shown ? report_of(grade(row.criteria)) : "");
      continue;
    }
    const std::optional<int> points = points_at_stake(row);
    if (!points) {
      fmt::print("NOT SO   {}: there is no criterion \"{}\"\n", row.name, row.criterion);
    } else if (table) {
      fmt::print("| {} | {} | {} | {} |\n", arguments[0], row.mistake, row.criterion, *points);
    }
    all_right = points && (table || is_caught(row)) && all_right;
  }
  return all_right ? 0 : 1;
}

}  // namespace
}  // namespace stagecoach::labs

int main(int argc, char** argv) { return stagecoach::labs::run({argv + 1, argv + argc}); }
