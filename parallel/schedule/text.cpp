#include "parallel/schedule/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

constexpr std::int64_t kMaxPairs = 1 << 22;  // (stage, micro-batch), such as 64 stages and 65536 micro-batches

/// The position in a table that is being read, for errors.
struct Position {
  const std::string& where;
  std::size_t line;    // from 1
  std::size_t column;  // from 1
  std::size_t cells;   // of the whole table, which has at most as many actions

  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError(fmt::format("{}: line {}, column {}: {}", where, line, column, what));
  }
};

/// Reads a number at the front of `text` and removes it.
int take_number(std::string_view& text, std::string_view cell, const Position& position) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || text.front() == '-') {
    position.refuse(
        fmt::format("'{}' is not an action: expected one such as 0F3 (stage, one of F B I W, micro-batch)", cell));
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// Rejects a number that is too large for a table with so few cells, before any memory is allocated for it.
void require_number(int number, const char* what, std::string_view cell, const Position& position) {
  if (static_cast<std::size_t>(number) >= position.cells) {
    position.refuse(fmt::format(
        "'{0}': expected a {1} below {3}, the number of cells in the table, got {2}; use numbers from 0 without gaps",
        cell, what, number, position.cells));
  }
}

/// Reads the symbol of an operation at the front of `text` and removes it. Updates are not allowed in a table of one
/// step.
Operation take_operation(std::string_view& text, std::string_view cell, const Position& position) {
  const std::string_view symbol = text.substr(0, std::min(text.find_first_of("0123456789"), text.size()));
  for (int i = 0; i < kOperations; ++i) {
    const auto operation = static_cast<Operation>(i);
    if (operation != Operation::update && symbol == symbol_of(operation)) {
      text.remove_prefix(symbol.size());
      return operation;
    }
  }
  position.refuse(
      fmt::format("'{}': expected F (forward), B (backward), I (input gradient), W (weight gradient) or a "
                  "communication such as SEND_F after the stage",
                  cell));
}

Action action_from(std::string_view cell, const Position& position) {
  std::string_view rest = cell;
  Action action;
  action.stage = take_number(rest, cell, position);
  action.operation = take_operation(rest, cell, position);
  const bool is_reduction = action.operation == Operation::reduce_grad;
  action.microbatch = is_reduction ? Action::kAllMicrobatches : take_number(rest, cell, position);
  if (!rest.empty()) {
    position.refuse(
        fmt::format("'{}': expected nothing after the {}", cell, is_reduction ? "operation" : "micro-batch"));
  }
  require_number(action.stage, "stage", cell, position);
  require_number(std::max(action.microbatch, 0), "micro-batch", cell, position);
  return action;
}

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlank = " \t\r\"";  // Python's csv module may put cells in quotes
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// Returns whether `cell` has no effect here. 0UNSHARD and 0RESHARD gather and free the parameters of a stage; here its
/// rank always holds all of them. 0WAIT_SEND_F3 and 0WAIT_REDUCE_GRAD wait for communication that has begun; here the
/// end of the step waits for it.
bool does_nothing(std::string_view cell) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kNames[] = {"UNSHARD", "RESHARD", "WAIT_SEND_F", "WAIT_SEND_B", "WAIT_REDUCE_GRAD"};
  const std::size_t begin = cell.find_first_not_of(kDigits);
  if (begin == 0 || begin == std::string_view::npos) {
    return false;
  }
  const std::string_view name = cell.substr(begin, cell.find_last_not_of(kDigits) + 1 - begin);
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// Reads an overlapped pair such as "(0F7;7B3)OVERLAP_F_B": a forward and a backward that PyTorch runs as one action.
void read_overlapped(std::string_view cell, const Position& position, std::vector<Action>& actions) {
  constexpr std::string_view kEnd = ")OVERLAP_F_B";
  if (!cell.ends_with(kEnd)) {
    position.refuse(fmt::format("'{}': expected an overlapped pair such as (0F7;7B3)OVERLAP_F_B", cell));
  }
  const std::string_view inner = cell.substr(1, cell.size() - 1 - kEnd.size());
  for (const std::string_view action : split_text(inner, ';')) {
    actions.push_back(action_from(trimmed(action), position));
  }
}

/// Returns the actions of one line. Adds to `left_out` the number of actions that have no effect here.
std::vector<Action> rank_from(std::string_view line, Position position, int& left_out) {
  std::vector<Action> actions;
  for (const std::string_view part : split_text(line, ',')) {
    const std::string_view cell = trimmed(part);
    if (cell.empty()) {
      continue;
    }
    position.column = static_cast<std::size_t>(cell.data() - line.data()) + 1;
    if (does_nothing(cell)) {
      ++left_out;
    } else if (cell.front() == '(') {
      read_overlapped(cell, position, actions);
    } else {
      actions.push_back(action_from(cell, position));
    }
  }
  return actions;
}

/// Records that the rank of this line holds `stage`.
void hold(Schedule& schedule, int stage, const Position& position) {
  const auto index = static_cast<std::size_t>(stage);
  if (stage >= schedule.stage_count()) {
    schedule.stage_to_rank.resize(index + 1, -1);
  }
  const int rank = schedule.rank_count() - 1;
  int& owner = schedule.stage_to_rank[index];
  if (owner != -1 && owner != rank) {
    position.refuse(fmt::format("stage {} is already on rank {}: expected each stage on one rank only", stage, owner));
  }
  owner = rank;
}

bool has_computations(const Schedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const std::vector<Action>& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [](const Action& action) { return is_computation(action.operation); });
  });
}

/// Marks the table as lowered if it lists messages. If it lists only reductions, removes them, as lower() adds them.
/// Returns how many it removed.
int note_communication(Schedule& schedule) {
  int reductions = 0;
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) {
      schedule.is_lowered = schedule.is_lowered || is_message(action.operation);
      reductions += action.operation == Operation::reduce_grad ? 1 : 0;
    }
  }
  if (schedule.is_lowered) {
    return 0;
  }
  schedule = computations_of(schedule);
  return reductions;
}

/// Returns the wait for a send or a reduction: "0WAIT_SEND_F3" for 0SEND_F3.
std::string wait_for(const Action& action) {
  std::string text = to_string(action);
  return text.insert(text.find_first_not_of("0123456789"), "WAIT_");
}

/// Returns the actions of a rank, with the waits that PyTorch lists.
std::vector<std::string> with_waits(const std::vector<Action>& actions) {
  std::vector<std::string> cells;
  std::vector<std::string> waits;  // for all sends so far
  std::set<std::string> missing;   // those that are not listed yet
  for (const Action& action : actions) {
    cells.push_back(to_string(action));
    if (is_send(action.operation)) {
      waits.push_back(wait_for(action));
      missing.insert(waits.back());
    } else if (action.operation == Operation::reduce_grad) {
      cells.push_back(wait_for(action));
    } else if (gives_input_gradient(action.operation)) {
      const std::string wait = wait_for({Operation::send_forward, action.stage, action.microbatch});
      if (missing.erase(wait) > 0) {
        cells.push_back(wait);
      }
    }
  }
  std::copy_if(waits.begin(), waits.end(), std::back_inserter(cells),
               [&](const std::string& wait) { return missing.contains(wait); });
  return cells;
}

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const auto& actions : schedule.ranks) {
    const char* separator = "";
    for (const Action& action : actions) {
      text += separator + to_string(action);
      separator = ",";
    }
    text += "\n";
  }
  return text;
}

std::string to_pytorch_text(const Schedule& schedule) {
  std::string text;
  for (const auto& actions : with_reductions(schedule).ranks) {
    text += fmt::format("{}\n", fmt::join(with_waits(actions), ","));
  }
  return text;
}

Schedule schedule_from_text(std::string_view text, const std::string& where, int* left_out) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // in UTF-8; some editors write it at the beginning
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  Schedule schedule;
  const auto separators = std::count_if(text.begin(), text.end(), [](char c) { return c == ',' || c == '\n'; });
  int ignored = 0;
  Position position{where, 0, 1, static_cast<std::size_t>(separators) + 1};
  for (const std::string_view line : split_text(text, '\n')) {
    ++position.line;
    if (trimmed(line).empty()) {
      continue;
    }
    schedule.ranks.push_back(rank_from(line, position, ignored));
    for (const Action& action : schedule.ranks.back()) {
      hold(schedule, action.stage, position);
      schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
    }
  }
  throw_if<UsageError>(!has_computations(schedule),
                       "{}: the table has no computations: expected actions such as 0F0 and 0B0", where);
  throw_if<UsageError>(
      std::int64_t{schedule.stage_count()} * schedule.microbatches > kMaxPairs,
      "{0}: the table is too large: expected at most {3} pairs of stage and micro-batch, got {1} x {2}", where,
      schedule.stage_count(), schedule.microbatches, kMaxPairs);
  ignored += note_communication(schedule);
  if (left_out != nullptr) {
    *left_out = ignored;
  }
  return schedule;
}

}  // namespace stagecoach
