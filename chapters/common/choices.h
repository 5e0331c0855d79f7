#pragma once
/// @file
/// Settings with a fixed set of values, and the words for the values.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "nn/rate_schedule.h"
#include "parallel/comm/clock.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/sharded/sharded_settings.h"
#include "parallel/data_parallel/step_timeline.h"
#include "parallel/launch/launch.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// The last operation of a model.
enum class Head { logits, softmax };

/// The quantity that should be equal for all stages of a model. The last value is for chapter 4: stages and
/// replicas that the partitioner chooses for the link.
enum class Balance { layers, params, time, pipedream };

/// How the one controller of chapter 7 runs its devices; `remote`: by calls to workers.
enum class ControllerForm { naive, pipelined, remote };

/// Whether schedule_lowered.csv is as `--lowered` shows it, or as PyTorch loads it.
enum class TableFormat { stagecoach, pytorch };

/// The parameters that weight decay applies to; `weights`: not to biases and norms.
enum class Decay { all, weights };

/// The stream for copies between devices: the one that computes, or its own.
enum class CopyStream { compute, own };

/// Returns the words for a type, in the order of its values.
inline std::vector<std::string> names_of(Head) { return {"logits", "softmax"}; }
inline std::vector<std::string> names_of(Balance) { return {"layers", "params", "time", "pipedream"}; }
inline std::vector<std::string> names_of(ControllerForm) { return {"naive", "pipelined", "remote"}; }
inline std::vector<std::string> names_of(CopyStream) { return {"compute", "own"}; }
inline std::vector<std::string> names_of(TableFormat) { return {"stagecoach", "pytorch"}; }
inline std::vector<std::string> names_of(OptimizerKind) { return {"sgd", "adam", "adamw", "adagrad"}; }
inline std::vector<std::string> names_of(Decay) { return {"all", "weights"}; }
inline std::vector<std::string> names_of(RateShape) { return {"constant", "cosine", "step"}; }
inline std::vector<std::string> names_of(Versions) { return version_names(); }
inline std::vector<std::string> names_of(DataParallelMode) { return {"single", "parameter", "buckets", "central"}; }
inline std::vector<std::string> names_of(Sharded) { return {"optimizer", "gradients", "parameters"}; }
inline std::vector<std::string> names_of(Accumulation) { return {"whole", "sharded"}; }
inline std::vector<std::string> names_of(CompressionKind) { return {"none", "half"}; }
inline std::vector<std::string> names_of(ClockKind) { return {"wall", "virtual", "modelled"}; }
inline std::vector<std::string> names_of(Transport) { return {"thread", "mpi", "nccl", "gloo"}; }
inline std::vector<std::string> names_of(ReduceKind) { return {"ordered", "native"}; }

template <class Choice>
std::string name_of(Choice choice) {
  return names_of(choice)[static_cast<std::size_t>(choice)];
}

/// Returns the word for `choice`, or "" if there is none.
template <class Choice>
std::string name_of(const std::optional<Choice>& choice) {
  return choice ? name_of(*choice) : "";
}

}  // namespace stagecoach
