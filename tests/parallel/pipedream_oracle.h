#pragma once
/// @file
/// A training by PipeDream, and the oracle of its tests: a sequential program in plain form that knows only the rule,
/// which stage uses the weights of which update.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/versions.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {

inline constexpr std::int64_t kWidth = 12;
inline constexpr std::int64_t kSamples = 3;  ///< of a micro-batch
inline const int kUpdates = kSanitized ? 12 : 40;

struct PipedreamTraining {
  Versions versions = Versions::stash;
  std::vector<int> replicas = {1};  ///< of each stage
  int batch = 1;                    ///< micro-batches
  int microbatches = kUpdates;
  OptimizerKind optimizer = OptimizerKind::sgd;
  Stage::Recompute recompute = Stage::Recompute::no;
  bool checks_versions = true;
  Split layers = {};  ///< of each stage; even if not given

  int stages() const { return static_cast<int>(replicas.size()); }
  Split split() const { return layers.empty() ? split_by_layers(16, stages()) : layers; }
};

/// The result of a training.
struct PipedreamResult {
  std::map<std::string, Tensor> weights;
  std::map<std::string, double> squares;  ///< of the gradients, by "update/parameter"
  std::map<int, double> losses;           ///< of each micro-batch

  void note_gradients(int update, const NamedTensors& parameters);
  void note_weights(const NamedTensors& parameters);
};

/// Returns 8 linear layers of equal width, each with a relu.
std::shared_ptr<Sequential> make_net();
Tensor images(int microbatch);
Tensor labels(int microbatch);
std::unique_ptr<Optimizer> make_optimizer_for(const PipedreamTraining& training, NamedTensors parameters);

/// Trains on one device. The weights of all versions are kept, and each micro-batch uses those that the rule names.
PipedreamResult train_sequentially(const PipedreamTraining& training);

}  // namespace stagecoach::test
