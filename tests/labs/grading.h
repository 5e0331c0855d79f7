#pragma once
/// @file
/// Grades an answer to a lab by criteria, each worth points and each checked in a process of its own: a crash, an
/// endless loop or a call of exit costs the points of one criterion, never the run.

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace stagecoach::labs {

/// Why points are missing. A member that is empty is not shown.
struct Explanation {
  std::string expected = {};
  std::string got = {};
  std::string look_at = {};  ///< where to read on: a section of the chapter, a header, or a hint
  std::string drawing = {};  ///< shown below them; it may have several lines
  std::string remark = {};   ///< in place of all others: "not written yet: …"
  bool operator==(const Explanation&) const = default;
};

/// Thrown by a check that does not hold.
class Failed : public std::runtime_error {
 public:
  Failed(const std::string& expected, const std::string& got, const std::string& look_at,
         const std::string& drawing = {});
  const Explanation& explanation() const { return explanation_; }

 private:
  Explanation explanation_;
};

/// Adds a line that is printed below the criterion whose check calls it, whether the check holds or not.
void note(const std::string& text);

/// Says what the check tries from now on, such as "4 ranks and distance 2". An answer that then throws, crashes or does
/// not return is explained with it.
void set_case(const std::string& text);

/// Returns ", for 4 ranks and distance 2", or nothing before the first set_case().
std::string for_case();

/// One thing that an answer must do. `check` calls the answer and throws Failed if it does something else.
struct Criterion {
  std::string name;
  int points = 0;
  std::function<void()> check;
  std::string look_at = {};             ///< where to read on if the answer throws, crashes or does not return
  std::vector<std::string> needs = {};  ///< earlier criteria: if one of them fails, this one is not graded
};

/// What one check may use.
struct Limits {
  int processor_seconds = 5;
  int idle_seconds = 10;                       ///< without computing, after which a check counts as waiting
  int wall_seconds = 30;                       ///< in all
  std::size_t memory = std::size_t{4} << 30U;  ///< bytes of address space
};

struct Result {
  std::string criterion;
  int points = 0;
  int of = 0;
  bool was_graded = true;    ///< false if a criterion that it needs has failed
  Explanation why = {};      ///< why points are missing; empty if none are
  std::string note = {};     ///< the lines of note()
  std::string printed = {};  ///< what the answer printed, cut off where it becomes too long
};

/// Returns the results of all criteria, in their order. The calling process must have one thread, and never calls the
/// answer. A check holds only if its process says so after the check has returned, with a random word that was chosen
/// for it: an answer that prints points or ends the process gets none.
/// Calls `on_begin`, if given, with each criterion before it is graded.
std::vector<Result> grade(const std::vector<Criterion>& criteria, const Limits& limits = {},
                          const std::function<void(const Criterion&)>& on_begin = {});

/// Returns the sum of the points.
int points_of(const std::vector<Result>& results);
/// Returns the sum of the points that can be had.
int max_points_of(const std::vector<Result>& results);

/// Returns the report: one line per criterion, "[ 10/15 ] name", with explanations indented below. What an earlier
/// explanation says already is not printed again.
std::string report_of(const std::vector<Result>& results);

}  // namespace stagecoach::labs
