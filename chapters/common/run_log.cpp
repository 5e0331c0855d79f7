#include "chapters/common/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "chapters/common/interrupt.h"
#include "chapters/common/profile.h"
#include "chapters/common/program.h"
#include "core/allocator.h"
#include "core/cuda_backend.h"
#include "core/error.h"

namespace stagecoach {
namespace {

constexpr std::int64_t kTracedSteps = 100;

}  // namespace

RunLog::RunLog(const Settings& settings, Device device)
    : settings_(settings),
      device_(device),
      folder_(settings),
      sums_(device),
      trace_(std::make_unique<Trace>()),
      held_before_(static_cast<std::int64_t>(allocator(device).stats().current_bytes)) {
  fmt::print("{}", settings_table(settings));
  if (device.type == DeviceType::cuda) {
    fmt::print("  {:<13} {}\n", "gpu", cuda::description(device));
  }
  std::fflush(stdout);
  if (settings.profile) {
    trace_->wait_for(device);
  }
  trace_->attach(0);
  catch_interrupts();
}

RunLog::~RunLog() { Trace::detach(); }

void RunLog::restore(Module& model, Optimizer& optimizer) {
  if (!settings_.resume.empty()) {
    progress_ = folder_.resume(model, optimizer);
    if (!epochs_left()) {
      throw UsageError(fmt::format("--resume {}: its {} epochs are done; ask for more in all, such as --epochs {}",
                                   settings_.resume, progress_.epoch - 1, progress_.epoch + 4));
    }
    fmt::print("Goes on in epoch {} after {} steps of it\n", progress_.epoch, progress_.step);
  }
  folder_.begin(progress_);
}

void RunLog::start_epoch(std::int64_t steps) {
  allocator(device_).reset_peak();
  bar_ = std::make_unique<ProgressBar>(progress_.epoch, steps);
  sums_.loss.fill(progress_.loss_sum);
  sums_.correct.fill(static_cast<double>(progress_.correct));
  mark_ = Clock::now();
}

std::optional<Batch> RunLog::next(DeviceLoader& loader) {
  const Span span("load", "data");
  const double before = loader.waited();
  std::optional<Batch> batch = loader.next();
  progress_.waited += loader.waited() - before;
  return batch;
}

void RunLog::enter_time() {
  const Clock::time_point now = Clock::now();
  progress_.seconds += std::chrono::duration<double>(now - mark_).count();
  mark_ = now;
}

/// The sums so far. Throws when the loss is not finite.
void RunLog::read_sums() {
  progress_.loss_sum = sums_.loss.item();
  progress_.correct = static_cast<std::int64_t>(sums_.correct.item());
  if (!std::isfinite(progress_.loss_sum)) {
    throw diverged("loss");
  }
}

void RunLog::add_step(std::int64_t pictures, const Module& model, const Optimizer& optimizer) {
  progress_.seen += pictures;
  ++progress_.step;
  const bool is_free = device_.type == DeviceType::cpu;  // to read the sums
  if (is_free) {
    read_sums();
  }
  enter_time();
  if (trace_ != nullptr && ++traced_steps_ == kTracedSteps) {
    finish_trace();
    mark_ = Clock::now();
  }
  bar_->show(progress_.step,
             is_free ? std::optional(progress_.loss_sum / static_cast<double>(progress_.seen)) : std::nullopt);
  stop_if_asked(model, optimizer);
}

void RunLog::stop_if_asked(const Module& model, const Optimizer& optimizer) {
  if (!interrupted()) {
    return;
  }
  close_display();
  read_sums();
  require_finite(model);
  note_peak();
  folder_.save_interrupted(progress_, model, optimizer);
  fmt::print("Interrupted in epoch {}, step {}. {}\n", progress_.epoch, progress_.step,
             folder_.writes() ? "Saved; go on with --resume " + folder_.path().string()
                              : "Nothing was saved, as there is no --out");
  throw Interrupted{};
}

UsageError RunLog::diverged(const char* what) const {
  return UsageError(
      fmt::format("a {} is not a finite number in epoch {}, step {}: training has diverged; try a smaller "
                  "--lr than {}. {}",
                  what, progress_.epoch, progress_.step, settings_.lr,
                  folder_.writes() ? "What was saved before stays in " + folder_.path().string()
                                   : "Nothing was saved, as there is no --out"));
}

/// The loss tells of the weights before the last step only.
void RunLog::require_finite(const Module& model) const {
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!std::isfinite(sum_of_squares(parameter))) {
      throw diverged("weight");
    }
  }
}

void RunLog::note_peak() {
  const auto peak = static_cast<std::int64_t>(allocator(device_).stats().peak_bytes) - held_before_;
  progress_.peak_bytes = std::max(progress_.peak_bytes, peak);
}

void RunLog::stop_clock() {
  read_sums();
  enter_time();
  close_display();
}

void RunLog::close_display() {
  bar_.reset();
  if (trace_ != nullptr) {
    finish_trace();
  }
}

void RunLog::finish_epoch(double test_accuracy, const Module& model, const Optimizer& optimizer) {
  const auto pictures = static_cast<double>(progress_.seen);
  require_finite(model);
  note_peak();
  const EpochResult result{.epoch = progress_.epoch,
                           .loss = progress_.loss_sum / pictures,
                           .accuracy = static_cast<double>(progress_.correct) / pictures,
                           .test_accuracy = test_accuracy,
                           .seconds = progress_.seconds,
                           .images_per_second = pictures / progress_.seconds,
                           .idle = progress_.waited / progress_.seconds,
                           .peak_bytes = {progress_.peak_bytes}};
  progress_ = Progress{.epoch = progress_.epoch + 1};
  folder_.save_epoch(result, progress_, model, optimizer);
  fmt::print("{}\n", epoch_line(result));
  std::fflush(stdout);
}

void RunLog::finish() const {
  if (folder_.writes()) {
    fmt::print("Results: {}\n", folder_.path().string());
  }
}

void RunLog::finish_trace() {
  Trace::detach();
  folder_.save_trace(*trace_);
  if (settings_.profile && traced_steps_ > 0) {
    fmt::print("{}", profile_table(*trace_, traced_steps_));
  }
  trace_.reset();
}

}  // namespace stagecoach
