#include "chapters/common/run_state.h"

#include <fmt/format.h>

#include <cstdint>

#include "chapters/common/console.h"
#include "chapters/common/training_state.h"
#include "core/error.h"
#include "core/printable.h"

namespace stagecoach {

RunState::RunState(const Settings& settings, Communicator& comm, const RankRole& role)
    : settings_(settings),
      comm_(comm),
      role_(role),
      layers_of_(role.replica_of.value_or(comm.rank())),
      folder_(settings, comm.rank()) {}

std::optional<Progress> RunState::restore(Module& model, Optimizer& optimizer, CompressionMemory* memory) {
  model_ = &model;
  optimizer_ = &optimizer;
  memory_ = memory;
  folder_.lock();
  outline_ = gather_outline(comm_, state_of_rank(role_.layers, comm_.rank(), model, optimizer),
                            memory == nullptr ? "" : std::to_string(role_.shard));
  std::optional<Progress> progress;
  if (!settings_.run.resume.empty()) {
    progress = load_checkpoint();
  }
  comm_.barrier();  // all ranks have read before anything is moved
  folder_.begin(progress.value_or(Progress{}));
  comm_.barrier();  // from here on the folder is this run's
  if (folder_.writes()) {
    comm_.leave_record_in(folder_.path());
  }
  return progress;
}

Progress RunState::load_checkpoint() {
  const Checkpoints::Found saved = newest_checkpoint();
  take_state(role_.layers, layers_of_, saved.state, *model_, *optimizer_, settings_.run.resume);
  if (memory_ != nullptr) {
    take_memory(role_.layers, layers_of_, role_.shard, saved.state, comm_.device(), *memory_);
  }
  const Progress& progress = saved.progress;
  if (progress.epoch > settings_.training.epochs) {
    throw UsageError(
        fmt::format("--resume {}: all {} epoch(s) of the run are done; give a larger total, such as --epochs {}",
                    settings_.run.resume, progress.epoch - 1, progress.epoch + 4));
  }
  if (comm_.rank() == 0) {
    print_line(fmt::format("Continues in epoch {} after {} steps", progress.epoch, progress.step));
  }
  return progress;
}

/// Returns the checkpoint that rank 0 finds, on all ranks.
Checkpoints::Found RunState::newest_checkpoint() {
  const Checkpoints checkpoints = folder_.resumed();
  const StatePart mine = part_of_rank(role_.layers, layers_of_, role_.shard, comm_.device());
  Tensor epoch_and_step = Tensor::zeros({2}, DType::float64, comm_.device());
  if (comm_.rank() != 0) {
    comm_.broadcast(epoch_and_step, 0);
    const auto numbers = epoch_and_step.to_vector<double>();
    return checkpoints.at(static_cast<std::int64_t>(numbers[0]), static_cast<std::int64_t>(numbers[1]), mine);
  }
  Checkpoints::Found found = checkpoints.newest(misfit_with_run(), mine);
  for (const std::string& reason : found.skipped) {
    print_line("Skipped: " + printable(reason));
  }
  epoch_and_step.narrow(0, 1).fill(static_cast<double>(found.progress.epoch));
  epoch_and_step.narrow(1, 1).fill(static_cast<double>(found.progress.step));
  comm_.broadcast(epoch_and_step, 0);
  return found;
}

Checkpoints::Misfit RunState::misfit_with_run() const {
  return [this](const StateContents& state) { return misfit(outline_, state); };
}

void RunState::save(const Progress& next, const EpochResult* result) {
  std::optional<NamedTensors> memory;
  if (memory_ != nullptr) {
    memory = memory_of_shard(role_.shard, *memory_);
  }
  folder_.save(comm_, role_.layers, next, *model_, *optimizer_, memory, result);
}

void RunState::require_resumable(const Progress& progress) const {
  folder_.require_resumable(progress, misfit_with_run());
}

}  // namespace stagecoach
