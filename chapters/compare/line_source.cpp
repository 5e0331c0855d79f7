#include "chapters/compare/line_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <regex>
#include <set>

#include "core/base/printable.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

/// Returns the number that the first of the patterns with a match finds in `text`.
std::optional<std::int64_t> number_by(const std::vector<std::regex>& patterns, const std::string& text) {
  std::smatch found;
  const auto matches = [&](const std::regex& pattern) { return std::regex_search(text, found, pattern); };
  return std::any_of(patterns.begin(), patterns.end(), matches) ? std::optional<std::int64_t>(std::stoll(found[1]))
                                                                : std::nullopt;
}

/// Returns the rank that a launcher names in `text`; nothing if it names none.
std::optional<std::int64_t> named_rank(const std::string& text) {
  static const std::vector<std::regex> patterns{
      std::regex(R"((?:^|[^a-z])rank[ =:]?(\d{1,18}))", std::regex::icase),     // "[rank0]:", "Rank 1 |", "rank=2"
      std::regex(R"(,(\d{1,18})\]<std)"),                                       // "[1,2]<stdout>:"
      std::regex(R"((?:^|[^a-z])default[ =:]?(\d{1,18}))", std::regex::icase),  // "[default0]:"
  };
  return number_by(patterns, text);
}

/// Returns the rank at the beginning of a line, as in " 2: " and "[2] ". A large number there is a time.
std::optional<std::int64_t> leading_rank(const std::string& text) {
  static const std::vector<std::regex> patterns{std::regex(R"(^ {0,99}(\d{1,6}): )"),
                                                std::regex(R"(^ {0,99}\[(\d{1,6})\])")};
  return number_by(patterns, text);
}

/// Returns the rank of "12:00:01 2: ", where a time stands before what srun -l writes.
std::optional<std::int64_t> last_rank(const std::string& text) {
  static const std::vector<std::regex> patterns{std::regex(R"( \[?(\d{1,6})\]?: $)")};
  return number_by(patterns, text);
}

/// Returns the text with a mark in place of every number, weekday and month.
std::string form_of(const std::string& prefix) {
  static const std::regex number(R"(\d+)");
  static const std::regex date(
      R"(\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[A-Za-z]*)");
  static const std::regex spaces(" +");  // dates are padded with them
  const std::string undated = std::regex_replace(std::regex_replace(prefix, number, "#"), date, "#");
  return std::regex_replace(undated, spaces, " ");
}

}  // namespace

LineSource source_of(std::string_view prefix) {
  constexpr std::size_t kMaxRead = 1000;  // bytes: a regular expression takes stack for each
  const std::string text(prefix.substr(0, kMaxRead));
  std::optional<std::int64_t> rank = named_rank(text);
  rank = rank ? rank : leading_rank(text);
  return {rank ? rank : last_rank(text), form_of(text)};
}

std::string_view launcher_tag(std::string_view line) {
  constexpr std::size_t kMaxTag = 100;
  static const std::regex form(R"( {0,99}\d{1,6}: |\[[^\]]*\](?:<stdout>|<stderr>)?:?)");
  const std::string begin(line.substr(0, kMaxTag));
  std::smatch tag;
  const bool has_tag = std::regex_search(begin, tag, form, std::regex_constants::match_continuous);
  const bool has_rank = has_tag && (begin.front() != '[' || named_rank(tag.str()));
  return line.substr(0, has_rank ? static_cast<std::size_t>(tag.length()) : 0);
}

LineSource choose_source(const std::vector<LineSource>& sources, const std::string& where) {
  const std::set<LineSource> all(sources.begin(), sources.end());
  if (all.contains(LineSource{})) {
    return {};
  }
  std::set<std::int64_t> ranks;
  for (const LineSource& source : all) {
    if (source.rank) {
      ranks.insert(*source.rank);
    }
  }
  throw_if<DataError>(ranks.size() > 1 && !ranks.contains(0),
                      "{}: epoch lines of the ranks {}: expected those of rank 0 or of one rank; keep the lines of one",
                      where, fmt::join(ranks, ", "));
  std::vector<LineSource> choice;
  std::copy_if(all.begin(), all.end(), std::back_inserter(choice), [&](const LineSource& source) {
    return ranks.empty() || source.rank == *ranks.begin();  // 0 comes first
  });
  throw_if<DataError>(choice.size() > 1,
                      "{}: epoch lines with different prefixes: expected one, got '{}' and '{}'; keep the lines of one",
                      where, printable(choice.front().form), printable(choice.back().form));
  return choice.front();
}

}  // namespace stagecoach
