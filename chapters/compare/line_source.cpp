#include "chapters/compare/line_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "core/base/parse.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// Removes a number from the front of `text` and returns it.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = parse_number(text, number);
  if (text.empty() || !is_digit(text.front()) || error != std::errc()) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// Returns the number after `word`, in "[rank0]:", "Rank 1 |" and "rank=2".
std::optional<std::int64_t> number_after(std::string_view prefix, std::string_view word) {
  std::string lower(prefix);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::size_t at = lower.find(word); at != lower.npos; at = lower.find(word, at + 1)) {
    std::string_view rest = prefix.substr(at + word.size());
    rest.remove_prefix(rest.empty() || std::string_view(" =:").find(rest.front()) == rest.npos ? 0 : 1);
    if (const auto number = take_number(rest); number && (at == 0 || !is_letter(lower[at - 1]))) {
      return number;
    }
  }
  return std::nullopt;
}

/// Returns the 2 of "[1,2]<stdout>:".
std::optional<std::int64_t> number_before_stream(std::string_view prefix) {
  const std::size_t end = prefix.find("]<std");
  std::string_view rest = prefix.substr(0, end == prefix.npos ? 0 : end);
  const std::size_t comma = rest.rfind(',');
  rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
  const auto number = take_number(rest);
  return rest.empty() ? number : std::nullopt;
}

/// Returns the 2 of " 2: " and "[2] ", at the beginning of the line. A large number there is a time.
std::optional<std::int64_t> leading_number(std::string_view prefix) {
  prefix.remove_prefix(std::min(prefix.find_first_not_of(' '), prefix.size()));
  const bool in_brackets = prefix.starts_with('[');
  prefix.remove_prefix(in_brackets ? 1 : 0);
  const auto number = take_number(prefix);
  constexpr std::int64_t kMaxRank = 999'999;
  return number <= kMaxRank && prefix.starts_with(in_brackets ? "]" : ": ") ? number : std::nullopt;
}

/// Returns the 2 of "12:00:01 2: ", where a time stands before what srun -l writes.
std::optional<std::int64_t> last_number(std::string_view prefix) {
  const std::size_t space = prefix.ends_with(": ") ? prefix.rfind(' ', prefix.size() - 3) : prefix.npos;
  return space == prefix.npos ? std::nullopt : leading_number(prefix.substr(space));
}

constexpr std::string_view kDaysAndMonths[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar",
                                               "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

std::string form_of(std::string_view prefix) {
  std::string form;
  while (!prefix.empty()) {
    const auto is_kind = [&](auto kind) { return kind(prefix.front()); };
    const auto length_of = [&](auto kind) {
      return static_cast<std::size_t>(std::find_if_not(prefix.begin(), prefix.end(), kind) - prefix.begin());
    };
    const auto is_space = [](char c) { return c == ' '; };
    std::size_t length = 1;
    if (is_kind(is_digit)) {
      length = length_of(is_digit);
      form += '#';
    } else if (is_kind(is_letter)) {
      length = length_of(is_letter);
      const std::string_view word = prefix.substr(0, length);
      const bool is_date = std::find(std::begin(kDaysAndMonths), std::end(kDaysAndMonths), word.substr(0, 3)) !=
                           std::end(kDaysAndMonths);
      form += is_date ? "#" : word;
    } else if (is_kind(is_space)) {  // dates are padded with spaces
      length = length_of(is_space);
      form += ' ';
    } else {
      form += prefix.front();
    }
    prefix.remove_prefix(length);
  }
  return form;
}

}  // namespace

LineSource source_of(std::string_view prefix) {
  LineSource source{std::nullopt, form_of(prefix)};
  for (const auto& rank : {number_after(prefix, "rank"), number_before_stream(prefix), number_after(prefix, "default"),
                           leading_number(prefix), last_number(prefix)}) {
    source.rank = source.rank ? source.rank : rank;
  }
  return source;
}

std::string_view launcher_tag(std::string_view line) {
  if (!line.starts_with('[')) {
    return leading_number(line) ? line.substr(0, line.find(": ") + 2) : "";
  }
  std::string_view tag = line.substr(0, line.find(']') + 1);  // empty if there is none
  for (const std::string_view more : {"<stdout>", "<stderr>", ":"}) {
    tag = line.substr(0, tag.size() + (line.substr(tag.size()).starts_with(more) ? more.size() : 0));
  }
  const bool has_rank = number_before_stream(tag) || number_after(tag, "rank") || number_after(tag, "default");
  return has_rank ? tag : "";
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
