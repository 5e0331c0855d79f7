#pragma once
/// @file
/// The memory that the ranks of a plan take while they train, predicted from the profile of its layers before anything
/// is allocated.

#include <cstdint>
#include <vector>

#include "chapters/common/plan.h"
#include "parallel/training/step_causes.h"

namespace stagecoach {

/// The most bytes that a rank holds on its device while it trains.
struct PlannedMemory {
  double weights = 0;
  double gradients = 0;    ///< of its weights: accumulated ones, and ones that wait to be accumulated
  double optimizer = 0;    ///< the optimizer's state: sgd's velocity, adam's two moments
  double activations = 0;  ///< of all micro-batches in flight, also between I and W, and the graph of a recomputed one
  double received = 0;     ///< copies of what other ranks sent to its stages, and the buffers of posted receives
  double workspace = 0;    ///< of the operations, and the gradients of activations during a backward

  double total() const { return weights + gradients + optimizer + activations + received + workspace; }
};

/// Returns the memory of each rank. The plan's layers must have been measured, with micro-batches of `microbatch`
/// images.
std::vector<PlannedMemory> planned_memory(const Plan& plan, std::int64_t microbatch);
/// Returns what takes the memory of each rank of the world; nothing if the layers were not measured.
std::vector<NamedNumbers> parts_of_memory(const Plan& plan);

/// Prints what each stage keeps for a micro-batch of `microbatch` images, and the most that each rank holds at once.
void print_memory(const Plan& plan, std::int64_t microbatch, const std::vector<PlannedMemory>& ranks);
/// Prints one line per rank: the total for a rank in its own process, and its parts.
void print_planned_memory(const std::vector<PlannedMemory>& ranks);

// The parts that do not depend on the kind of schedule.
/// Returns the bytes of state that the optimizer keeps per byte of weights.
double optimizer_bytes_per_weight_byte(const TrainingSettings& training);
/// Returns those of the bytes of a rank's weights that its optimizer updates: without a copy of tied ones.
double updated_bytes(const Plan& plan, int rank, double weights);
/// Returns the bytes that one micro-batch of `microbatch` images in flight takes in each stage (see bytes_of_stages).
std::vector<double> kept_bytes(const Plan& plan, std::int64_t microbatch);
/// Returns the bytes of the graph that --recompute builds again for a backward of each stage; without it zeros.
std::vector<double> rebuilt_bytes(const Plan& plan);
/// Returns the bytes that each stage receives from another rank for one micro-batch.
std::vector<double> received_bytes(const Plan& plan, std::int64_t microbatch);

}  // namespace stagecoach
