#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tests/labs/grading.h"

namespace stagecoach::labs {
namespace {

constexpr const char* kMargin = "          ";

/// Returns `text` with `margin` before each of its lines.
std::string indented(const std::string& text, const std::string& margin) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    result += (line.empty() ? "" : margin + line) + "\n";
  }
  return result;
}

/// A number by itself says too little to be called the same as another one.
bool is_sentence(const std::string& text) { return text.find(' ') != std::string::npos; }

/// Returns the explanation of `result`, and where one of the results before it says the same, its name instead.
std::string explanation_of(const Result& result, const std::vector<Result>& before) {
  const Explanation& why = result.why;
  if (!why.remark.empty()) {
    return why.remark + "\n";
  }
  /// Returns "as above, in "NAME"" if an explanation before is the same in this respect, otherwise `text`.
  const auto once = [&](const std::string& text, const auto& is_same) {
    const auto found =
        std::find_if(before.begin(), before.end(), [&](const Result& other) { return is_same(other.why); });
    return found == before.end() ? text : fmt::format("as above, in \"{}\"", found->criterion);
  };
  const auto line = [](const char* name, const std::string& text) {
    return text.empty() ? "" : fmt::format("{:<10}{}\n", name, text);
  };
  const std::string got = once(why.got, [&](const Explanation& other) {
    return is_sentence(why.got) && other.got == why.got && other.look_at == why.look_at;
  });
  const std::string look_at = got == why.got ? line("look at:", why.look_at) : "";
  const std::string drawing =
      why.drawing.empty() ? ""
                          : once(why.drawing, [&](const Explanation& other) { return other.drawing == why.drawing; });
  return line("expected:", why.expected) + line("got:", got) + look_at +
         (drawing == why.drawing ? drawing : line("drawing:", drawing));
}

}  // namespace

std::string report_of(const std::vector<Result>& results) {
  std::string text;
  std::vector<Result> before;
  for (const Result& result : results) {
    text += fmt::format("[ {:>2}/{:<2} ] {}\n", result.points, result.of, result.criterion);
    text += indented(result.note, kMargin);
    text += indented(explanation_of(result, before), kMargin);
    if (!result.printed.empty() && result.points < result.of) {
      text +=
          fmt::format("{}your program printed:\n{}", kMargin, indented(result.printed, std::string(kMargin) + "| "));
    }
    before.push_back(result);
  }
  return text;
}

}  // namespace stagecoach::labs
