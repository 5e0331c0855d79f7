// The implementation of Epoch (run.h).

#include <fmt/format.h>

#include <cmath>

#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/printable.h"

namespace stagecoach {

void Epoch::start_clock(std::int64_t steps) {
  run_.meter_.start_epoch();
  run_.stop_.restart(steps_done());
  bar_.emplace(number(), steps, run_.prints());
  run_.comm_.barrier();
  run_.meter_.start_clock();
}

void Epoch::add_step(std::int64_t images) {
  run_.meter_.add_step(images);
  const bool is_cpu = run_.comm_.device().type == DeviceType::cpu;  // on a GPU, read_sums() waits for the device
  if (is_cpu) {
    read_sums();
  }
  run_.meter_.add_time();
  run_.trace_.add_step();
  const bool has_losses = is_cpu && run_.comm_.rank() == run_.role_.loss_rank && !run_.role_.splits_losses;
  bar_->show(steps_done(), has_losses ? std::optional(run_.meter_.mean_loss()) : std::nullopt);
}

void Epoch::stop_if_refused() {
  if (run_.stop_.refused()) {
    save_and_stop();
  }
}

void Epoch::stop_if_asked() {
  if (run_.stop_.asked()) {
    save_and_stop();
  }
}

void Epoch::finish_training() {
  read_sums();
  run_.comm_.barrier();
  run_.meter_.add_time();
  run_.stop_.restart();
  bar_.reset();
  run_.trace_.finish(run_.state_.folder());
}

void Epoch::read_sums() {
  run_.meter_.read_sums();
  if (!run_.meter_.loss_is_finite()) {
    throw diverged("loss");
  }
}

/// Checks the weights themselves, since the last loss was computed before the last update.
void Epoch::require_finite_weights() const {
  for (const auto& [name, parameter] : run_.state_.model().named_parameters()) {
    if (!std::isfinite(sum_of_squares(parameter))) {
      throw diverged("weight");
    }
  }
}

UsageError Epoch::diverged(const char* what) const {
  const Settings& settings = run_.settings_;
  return UsageError(
      fmt::format("training has diverged: expected finite numbers, got a {} that is NaN or infinite in epoch {}, step "
                  "{}; use a smaller --lr than {}. {}",
                  what, number(), steps_done(), settings.training.lr,
                  settings.run.out.empty() ? "Nothing was saved, because --out was not given"
                                           : "Earlier checkpoints remain in " + settings.run.out));
}

void Epoch::save_and_stop() {
  bar_.reset();
  run_.trace_.finish(run_.state_.folder());
  read_sums();
  require_finite_weights();
  run_.meter_.combine_ranks();
  run_.state_.save(run_.meter_.progress());
  run_.state_.require_resumable(run_.meter_.progress());
  if (run_.prints()) {
    const RunFolder& folder = run_.state_.folder();
    print_line(fmt::format("Interrupted in epoch {}, step {}. {}", number(), steps_done(),
                           folder.writes() ? "Saved; continue with --resume " + printable(folder.path().string())
                                           : "Nothing was saved, because --out was not given"));
  }
  run_.comm_.barrier();  // an exception on one rank ends all ranks, so everything must be written first
  throw Interrupted{};
}

void Epoch::finish() {
  require_finite_weights();
  run_.meter_.combine_ranks();
  const EpochResult result = run_.meter_.finish_epoch(prediction_);
  run_.state_.save(run_.meter_.progress(), &result);
  if (run_.prints()) {
    print_line(epoch_line(result));
  }
}

}  // namespace stagecoach
