#include "chapters/common/state_outline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <vector>

#include "parallel/pipeline/gather.h"

namespace stagecoach {
namespace {

using Lines = std::multiset<std::string>;

constexpr const char* kMemory = "memory ";  // before the shard's number, in a rank's message

std::string line_of(const std::string& name, const TensorInfo& info) {
  return fmt::format("{} {}{}", name, name_of(info.dtype), to_string(info.shape));
}

Lines lines_of(const StateContents& state) {
  Lines lines;
  for (const TensorInfo& info : state.weights) {
    lines.insert(line_of("weights " + info.name, info));
  }
  for (const TensorInfo& info : state.optimizer) {
    lines.insert(line_of("optimizer " + info.name, info));
  }
  return lines;
}

/// Returns the lines that are in `a` but not in `b`, as "lacks X and 3 more"; empty if there is nothing.
std::string missing_from(const Lines& a, const Lines& b, const char* verb) {
  std::vector<std::string> missing;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(missing));
  if (missing.empty()) {
    return "";
  }
  const std::string more = missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : "";
  return fmt::format("{} {}{}", verb, missing.front(), more);
}

/// Returns the tensors of the compression state, by shard of the batches.
std::map<std::string, Lines> memory_by_shard(const std::vector<TensorInfo>& memory) {
  std::map<std::string, Lines> shards;
  for (const TensorInfo& info : memory) {
    const auto dot = info.name.find('.');
    shards[info.name.substr(0, dot)].insert(line_of(info.name.substr(dot + 1), info));
  }
  return shards;
}

std::string memory_misfit(const std::set<std::string>& expected, const std::vector<TensorInfo>& memory) {
  const std::map<std::string, Lines> shards = memory_by_shard(memory);
  for (const auto& [shard, lines] : shards) {
    if (!expected.contains(shard)) {
      return fmt::format("has compression state of shard {}, which does not exist in this run", shard);
    }
    if (lines != shards.begin()->second) {
      return fmt::format("has compression state of shard {} whose shapes differ from those of shard {}", shard,
                         shards.begin()->first);
    }
  }
  const auto is_missing = [&](const std::string& shard) { return !shards.contains(shard); };
  const auto missing = std::find_if(expected.begin(), expected.end(), is_missing);
  return shards.empty() || missing == expected.end() ? ""
                                                     : fmt::format("lacks the compression state of shard {}", *missing);
}

}  // namespace

StateOutline gather_outline(Communicator& comm, const TrainingState& mine, const std::string& memory_shard) {
  std::string text = memory_shard.empty() ? "" : kMemory + memory_shard + "\n";
  for (const std::string& line : lines_of(contents_of(mine))) {
    text += line + "\n";
  }
  StateOutline all;
  for (const std::string& of_rank : gather_texts(comm, text)) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(kMemory)) {
        all.memory_shards.insert(line.substr(std::string(kMemory).size()));
      } else {
        all.tensors.insert(line);
      }
    }
  }
  return all;
}

std::string misfit(const StateOutline& expected, const StateContents& state) {
  const Lines lines = lines_of(state);
  for (const std::string& reason :
       {missing_from(expected.tensors, lines, "lacks"), missing_from(lines, expected.tensors, "has an extra"),
        memory_misfit(expected.memory_shards, state.memory)}) {
    if (!reason.empty()) {
      return reason;
    }
  }
  return "";
}

}  // namespace stagecoach
