#pragma once
/// @file
/// Settings that are one of a few words, and these words.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "parallel/comm/clock.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/step_timeline.h"
#include "parallel/launch/launch.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// What a model ends with.
enum class Head { logits, softmax };

/// What the stages of a model should have equal amounts of. The last two belong to chapter 4: stages and replicas that
/// are chosen for the link, and those of a file.
enum class Balance { layers, params, time, pipedream, plan };

/// The words of each, in the order of the values.
inline std::vector<std::string> names_of(Head) { return {"logits", "softmax"}; }
inline std::vector<std::string> names_of(Balance) { return {"layers", "params", "time", "pipedream", "plan"}; }
inline std::vector<std::string> names_of(OptimizerKind) { return {"sgd", "adam"}; }
inline std::vector<std::string> names_of(Versions) { return version_names(); }
inline std::vector<std::string> names_of(DataParallelMode) { return mode_names(); }
inline std::vector<std::string> names_of(CompressionKind) { return compression_names(); }
inline std::vector<std::string> names_of(ClockKind) { return {"wall", "virtual"}; }
inline std::vector<std::string> names_of(Transport) { return {"thread", "mpi", "nccl"}; }
inline std::vector<std::string> names_of(ReduceKind) { return {"ordered", "native"}; }

template <class Choice>
std::string name_of(Choice choice) {
  return names_of(choice)[static_cast<std::size_t>(choice)];
}

/// Empty if there is none.
template <class Choice>
std::string name_of(const std::optional<Choice>& choice) {
  return choice ? name_of(*choice) : "";
}

}  // namespace stagecoach
