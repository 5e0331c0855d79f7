#pragma once
/// @file
/// One way to train a model on several ranks, and the question of which one is the best.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/advise/model_costs.h"
#include "parallel/comm/network.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/split.h"

namespace stagecoach {

/// What is equal for all stages of a pipeline: the number of their layers, or their time.
enum class Balanced { layers, time };

struct Candidate {
  /// Of each pipeline, perhaps one of late_schedules(). With one rank per pipeline it does not matter.
  std::string schedule = "1f1b";
  MeshSizes mesh = {};
  int microbatches = 1;  ///< per pipeline and step
  int chunks = 1;        ///< stages per rank
  bool recompute = false;
  Balanced balanced = Balanced::time;
  std::size_t bucket_size = BucketCaps{}.rest;  ///< bytes of gradients that data-parallel ranks reduce together

  /// Returns whether each rank holds the entire model and reduces gradients during the last backward, in buckets.
  bool is_data_parallel() const { return mesh.pipeline == 1 && mesh.tensor == 1 && !recompute; }
};

/// Returns "200MiB", as the flag --bucket-size takes it.
std::string bucket_text(std::size_t bytes);

/// Returns "zbv dp=2 pp=4, 16 micro-batches, recompute": what distinguishes the candidate from others.
std::string to_string(const Candidate& candidate);

/// What the advisor is asked.
struct AdviceRequest {
  int ranks = 1;
  std::int64_t batch_size = 1;  ///< samples per step, of all ranks
  Network network = {};
  double link_speed = 1;                       ///< by which all rates of the network are multiplied
  double memory_limit = 0;                     ///< bytes per rank; 0: no limit
  double optimizer_bytes_per_weight_byte = 0;  ///< of the optimizer's state
  /// Returns the costs for micro-batches of `samples` on one of `tensor` tensor-parallel ranks. Throws UsageError,
  /// which says why, where there are none: the advisor rejects such candidates with that reason.
  std::function<ModelCosts(std::int64_t samples, int tensor)> costs;
  // What is not fixed is searched.
  std::optional<int> data = {};
  std::optional<int> pipeline = {};
  std::optional<int> tensor = {};
  std::optional<int> microbatches = {};
  std::optional<bool> recompute = {};
  std::optional<std::size_t> bucket_size = {};  ///< bytes; see Evaluator::add_times
  std::vector<std::string> schedules = {};      ///< empty: all
  bool late = false;                            ///< also late_schedules(), where all ranks are one pipeline
};

/// Returns all candidates: every mesh of all ranks, and one rank alone; every number of micro-batches of equal size, up
/// to 16 per pipeline rank; the schedules, with 2, 3 and 4 chunks per rank where they take several; recomputation of no
/// stage or of all; and stages of equally many layers, or of equal time. Throws UsageError, which says what is
/// possible, if no candidate has the fixed sizes.
std::vector<Candidate> candidates_of(const AdviceRequest& request);

}  // namespace stagecoach
