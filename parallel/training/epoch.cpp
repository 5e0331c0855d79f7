#include <fmt/format.h>

#include <cmath>

#include "core/asynchronous.h"
#include "core/base/printable.h"
#include "parallel/training/run.h"

namespace stagecoach {
namespace {

const std::string kNothingSaved = "Nothing was saved, because `out` was not given";

}  // namespace

void Epoch::start_clock(std::int64_t steps) {
  steps_ = steps;
  run_.meter_.start_epoch();
  run_.stop_.restart(steps_done());
  bar_.emplace(number(), steps, run_.prints());
  run_.comm_.barrier();
  if (run_.predictor_.start_epoch) {
    run_.predictor_.start_epoch();
  }
  run_.meter_.start_clock();
  run_.trace_.begin(number(), steps_done() + 1);
}

double Epoch::rate_factor(std::int64_t batch) const {
  RateSchedule rate = run_.options_.rate;
  rate.steps = run_.options_.epochs * steps_;
  return rate.factor((number() - 1) * steps_ + batch);
}

/// Sets the rate for the next step. A constant one is left to the program.
void Epoch::set_learning_rate() {
  if (!run_.options_.rate.is_constant()) {
    run_.optimizer_->set_learning_rate(run_.learning_rate_ * rate_factor(steps_done()));
  }
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
  if (run_.stop_.asked() && run_.optimizer_->samples_since_step() == 0) {  // gradients are not saved
    save_and_stop();
  }
}

void Epoch::finish_training() {
  finish_queued_calls();  // of asynchronous devices: the sums wait for one of them only
  read_sums();
  run_.comm_.barrier();
  run_.meter_.add_time();
  run_.meter_.stop_counting_bytes();
  run_.stop_.restart();
  bar_.reset();
  run_.trace_.finish(run_.folder_, run_.keep_alive_, run_.predictor_);
  prediction_.ideal_idle = run_.role_.ideal_idle;
  if (run_.predictor_.time) {
    prediction_ = run_.predictor_.time(steps_);
    const int ranks = run_.comm_.size();  // which met in the barrier above
    const double barrier = tree_broadcast_seconds(run_.comm_.clock().network().among_first(ranks), ranks, 0);
    prediction_.add_wait(barrier);
    if (prediction_.causes) {
      prediction_.causes->add_messages(barrier / static_cast<double>(steps_));
    }
  }
}

void Epoch::read_sums() {
  run_.meter_.read_sums();
  if (!std::isfinite(run_.meter_.progress().loss_sum)) {
    throw diverged("loss");
  }
}

/// Checks the weights themselves, since the last loss was computed before the last update.
void Epoch::require_finite_weights() const {
  for (const auto& [name, parameter] : run_.optimizer_->parameters()) {
    if (!std::isfinite(sum_of_squares(parameter))) {
      throw diverged("weight");
    }
  }
}

UsageError Epoch::diverged(const char* what) const {
  return UsageError(
      fmt::format("training has diverged: expected finite numbers, got a {} that is NaN or infinite in epoch {}, step "
                  "{}; use a smaller `learning_rate` than {}. {}",
                  what, number(), steps_done(), run_.learning_rate_,
                  run_.folder_.writes() ? "Earlier checkpoints remain in " + run_.options_.out : kNothingSaved));
}

void Epoch::save_and_stop() {
  bar_.reset();
  run_.trace_.finish(run_.folder_, run_.keep_alive_, run_.predictor_);
  read_sums();
  require_finite_weights();
  run_.meter_.combine_ranks();
  run_.save();
  run_.with_files([&] { run_.folder_.require_resumable(run_.meter_.progress(), &run_.outline_); });
  if (run_.prints()) {
    const std::string saved = "Saved; continue with `resume` " + printable(run_.options_.out);
    run_.options_.print_line(fmt::format("Interrupted in epoch {}, step {}. {}", number(), steps_done(),
                                         run_.folder_.writes() ? saved : kNothingSaved));
  }
  run_.comm_.barrier();  // an exception on one rank ends all ranks, so everything must be written first
  throw Interrupted{};
}

void Epoch::finish() {
  require_finite_weights();
  run_.meter_.combine_ranks();
  const EpochResult result = run_.meter_.finish_epoch(prediction_);
  run_.save(&result);
  if (run_.prints()) {
    run_.options_.print_line(epoch_line(result));
  }
  run_.results_.push_back(result);
}

}  // namespace stagecoach
