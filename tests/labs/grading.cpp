#include "tests/labs/grading.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>
#include <sstream>

#include "chapters/common/not_written.h"
#include "core/base/error.h"
#include "tests/labs/child_process.h"

namespace stagecoach::labs {
namespace {

// What a child reports: its word, whether the check held, and the parts of a text, each with an end: its notes, then
// the members of the explanation.
constexpr char kHeld = '+';
constexpr char kFailed = '-';
constexpr char kEnd = '\0';

std::string& notes() {
  static std::string text;
  return text;
}

/// The text of set_case(), in memory that a child shares with the grader: so the grader has it after a crash too.
class SharedCase {
 public:
  SharedCase()
      : text_(static_cast<char*>(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    STAGECOACH_CHECK(text_ != MAP_FAILED, "the grader gets no memory: {}", std::strerror(errno));
  }
  void set(const std::string& text) {
    const std::size_t size = std::min(text.size(), kSize - 1);
    std::memcpy(text_, text.data(), size);
    text_[size] = '\0';
  }
  std::string get() const { return {text_, ::strnlen(text_, kSize)}; }

 private:
  static constexpr std::size_t kSize = 4096;
  char* text_;
};

SharedCase& shared_case() {
  static SharedCase text;
  return text;
}

/// Returns why an answer that threw, crashed or did not return has no points.
Explanation did_not_return(const Criterion& criterion, const std::string& got) {
  return {.expected = "the call returns" + for_case(), .got = got, .look_at = criterion.look_at};
}

/// Returns the text of an exception without the place in the grader that noticed the mistake.
std::string without_place_in_grader(std::string text) {
  const std::size_t place = text.rfind(" [tests/labs/");
  if (place != std::string::npos && text.ends_with(']')) {
    text.erase(place);
  }
  return text;
}

/// Runs the check; returns why it does not hold.
std::optional<Explanation> failure_of(const Criterion& criterion) {
  try {
    criterion.check();
    return std::nullopt;
  } catch (const Failed& failed) {
    return failed.explanation();
  } catch (const lab::NotWritten& blank) {
    return Explanation{.remark = blank.what()};
  } catch (const std::bad_alloc&) {
    return did_not_return(criterion,
                          "more memory was asked for than a check may use: a loop that appends and never "
                          "ends, or a wrong size");
  } catch (const std::exception& error) {
    return did_not_return(criterion, "an exception: " + without_place_in_grader(error.what()));
  } catch (...) {
    return did_not_return(criterion, "an exception that is not derived from std::exception");
  }
}

std::string to_report(const Explanation& why) {
  return why.expected + kEnd + why.got + kEnd + why.look_at + kEnd + why.drawing + kEnd + why.remark + kEnd;
}

/// Returns the parts of `text`, each up to its end.
std::vector<std::string> parts_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, kEnd);) {
    parts.push_back(part);
  }
  return parts;
}

Result result_of(const Criterion& criterion, const Limits& limits) {
  const std::string word = random_word();
  shared_case().set("");
  const Ended ended = run_in_child(limits, [&] {
    const std::optional<Explanation> failure = failure_of(criterion);
    return word + (failure ? kFailed : kHeld) + notes() + kEnd + to_report(failure.value_or(Explanation{}));
  });
  Result result{.criterion = criterion.name, .of = criterion.points, .printed = ended.printed};
  constexpr std::ptrdiff_t kParts = 6;
  if (!ended.reported.starts_with(word) || std::count(ended.reported.begin(), ended.reported.end(), kEnd) < kParts) {
    result.why = did_not_return(criterion, ended.how);
    return result;
  }
  result.points = ended.reported[word.size()] == kHeld ? criterion.points : 0;
  const std::vector<std::string> parts = parts_of(ended.reported.substr(word.size() + 1));
  result.note = parts[0];
  result.why = {parts[1], parts[2], parts[3], parts[4], parts[5]};
  return result;
}

/// Returns the first of the results that `criterion` needs and that has not all points.
const Result* unmet_need(const Criterion& criterion, const std::vector<Result>& results) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const Result& result) {
    return result.points < result.of &&
           std::find(criterion.needs.begin(), criterion.needs.end(), result.criterion) != criterion.needs.end();
  });
  return found == results.end() ? nullptr : &*found;
}

}  // namespace

Failed::Failed(const std::string& expected, const std::string& got, const std::string& look_at,
               const std::string& drawing)
    : std::runtime_error(fmt::format("expected {}, got {}", expected, got)),
      explanation_{.expected = expected, .got = got, .look_at = look_at, .drawing = drawing} {}

void note(const std::string& text) { notes() += text + "\n"; }

void set_case(const std::string& text) { shared_case().set(text); }

std::string for_case() {
  const std::string text = shared_case().get();
  return text.empty() ? "" : ", for " + text;
}

std::vector<Result> grade(const std::vector<Criterion>& criteria, const Limits& limits,
                          const std::function<void(const Criterion&)>& on_begin) {
  std::vector<Result> results;
  for (const Criterion& criterion : criteria) {
    if (on_begin != nullptr) {
      on_begin(criterion);
    }
    const Result* unmet = unmet_need(criterion, results);
    if (unmet == nullptr) {
      results.push_back(result_of(criterion, limits));
    } else {
      results.push_back({.criterion = criterion.name,
                         .of = criterion.points,
                         .was_graded = false,
                         .why = {.remark = fmt::format("not graded yet: repair \"{}\" first", unmet->criterion)}});
    }
  }
  return results;
}

int points_of(const std::vector<Result>& results) {
  return std::accumulate(results.begin(), results.end(), 0, [](int sum, const Result& r) { return sum + r.points; });
}

int max_points_of(const std::vector<Result>& results) {
  return std::accumulate(results.begin(), results.end(), 0, [](int sum, const Result& r) { return sum + r.of; });
}

}  // namespace stagecoach::labs
