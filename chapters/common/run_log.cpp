#include "chapters/common/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "chapters/common/interrupt.h"
#include "chapters/common/open.h"
#include "chapters/common/profile.h"
#include "chapters/common/program.h"
#include "chapters/common/training_state.h"
#include "core/allocator.h"
#include "core/cores.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/printable.h"
#include "parallel/comm/activity.h"

namespace stagecoach {
namespace {

constexpr int kStopTag = kMaxTag;  // no other message has it

bool ranks_share_cores(const Settings& settings, Communicator& comm) {
  return settings.world.transport == Transport::thread && comm.device().type == DeviceType::cpu &&
         comm.clock().kind() == ClockKind::wall && static_cast<std::size_t>(comm.size()) > usable_cores().size();
}

/// "3,9 layers on ranks 0,1": what lies side by side. Of replicas only the first rank is among the holders.
std::string stages_line(const LayerRanks& layers, int size) {
  std::vector<int> counts;
  std::vector<int> ranks;
  for (const auto& [layer, rank] : layers) {
    if (ranks.empty() || ranks.back() != rank) {
      ranks.push_back(rank);
      counts.push_back(0);
    }
    ++counts.back();
  }
  return fmt::format("{} layers on ranks {}{}", fmt::join(counts, ","), fmt::join(ranks, ","),
                     static_cast<int>(ranks.size()) < size ? " and their replicas" : "");
}

}  // namespace

RunLog::RunLog(const Settings& settings, Device device) : RunLog(settings, alone(device, settings.world.clock)) {}

RunLog::RunLog(const Settings& settings, std::unique_ptr<Communicator> alone) : RunLog(settings, *alone, {}, 0) {
  alone_ = std::move(alone);
}

RunLog::RunLog(const Settings& settings, Communicator& comm, LayerRanks layers, int loss_rank, std::optional<int> part)
    : settings_(settings),
      comm_(comm),
      layers_(std::move(layers)),
      loss_rank_(loss_rank),
      part_(part.value_or(comm.rank())),
      folder_(settings, comm.rank()),
      sums_(comm.device()),
      trace_(std::make_unique<Trace>()),
      held_before_(static_cast<std::int64_t>(allocator(comm.device()).stats().current_bytes)) {
  if (writes_and_prints() || settings.world.transport != Transport::thread) {
    catch_interrupts();  // a launcher sends its signals to all processes, and rank 0 answers for all
  }
  if (writes_and_prints()) {
    fmt::print("{}", settings_table(settings));
    if (!layers_.empty()) {
      fmt::print("  {:<13} {}\n", "stages", stages_line(layers_, comm.size()));
    }
    if (comm.device().type == DeviceType::cuda) {
      fmt::print("  {:<13} {}\n", "gpu", cuda::description(comm.device()));
    }
    if (ranks_share_cores(settings, comm)) {
      fmt::print("Its {} ranks share {} cores and wait for them by the wall clock; --clock virtual leaves that out\n",
                 comm.size(), usable_cores().size());
    }
    std::fflush(stdout);
  }
  if (settings.run.profile) {
    trace_->wait_for(comm.device());
  }
  if (comm.size() > 1) {
    trace_->attach(comm.rank(), [&clock = comm.clock()] { return clock.now(); });
  } else {
    trace_->attach(0);
  }
}

RunLog::~RunLog() { Trace::detach(); }

void RunLog::print_notes(const std::vector<std::string>& notes) const {
  if (!writes_and_prints()) {
    return;
  }
  for (const std::string& note : notes) {
    fmt::print("note: {}\n", printable(note));
  }
}

void RunLog::keep(CompressionMemory* memory, int shard) {
  memory_ = memory;
  shard_ = shard;
}

void RunLog::restore(Module& model, Optimizer& optimizer) {
  folder_.lock();
  outline_ = gather_outline(comm_, state_of_rank(layers_, comm_.rank(), model, optimizer),
                            memory_ == nullptr ? "" : std::to_string(shard_));
  if (!settings_.run.resume.empty()) {
    const Checkpoints::Found saved = newest_checkpoint();
    progress_ = saved.progress;
    take_state(layers_, part_, saved.state, model, optimizer, settings_.run.resume);
    if (memory_ != nullptr) {
      take_memory(layers_, part_, shard_, saved.state, comm_.device(), *memory_);
    }
    if (!epochs_left()) {
      throw UsageError(fmt::format("--resume {}: its {} epochs are done; ask for more in all, such as --epochs {}",
                                   settings_.run.resume, progress_.epoch - 1, progress_.epoch + 4));
    }
    if (writes_and_prints()) {
      fmt::print("Goes on in epoch {} after {} steps of it\n", progress_.epoch, progress_.step);
    } else {
      progress_.rank_seconds = 0;  // rank 0 goes on with the sums over all
      progress_.waited = 0;
    }
    if (comm_.rank() != loss_rank_) {
      progress_.loss_sum = 0;
      progress_.correct = 0;
    }
  }
  progress_.peak_bytes.resize(static_cast<std::size_t>(comm_.size()));
  comm_.barrier();  // all have read before anything is moved
  folder_.begin(progress_);
  comm_.barrier();  // from here on the folder is this run's
  if (folder_.writes()) {
    comm_.leave_record_in(folder_.path());
  }
}

void RunLog::save(const Module& model, const Optimizer& optimizer, const EpochResult* result) {
  std::optional<NamedTensors> memory;
  if (memory_ != nullptr) {
    memory = memory_of_shard(shard_, *memory_);
  }
  folder_.save(comm_, layers_, progress_, model, optimizer, memory, result);
}

Checkpoints::Misfit RunLog::misfit_with_run() const {
  return [this](const StateContents& state) { return misfit(outline_, state); };
}

/// All ranks take the one that rank 0 finds.
Checkpoints::Found RunLog::newest_checkpoint() {
  const Checkpoints checkpoints = folder_.resumed();
  const StatePart mine = part_of_rank(layers_, part_, shard_, comm_.device());
  Tensor place = Tensor::zeros({2}, DType::float64, comm_.device());  // epoch, step
  if (comm_.rank() != 0) {
    comm_.broadcast(place, 0);
    const auto numbers = place.to_vector<double>();
    return checkpoints.at(static_cast<std::int64_t>(numbers[0]), static_cast<std::int64_t>(numbers[1]), mine);
  }
  Checkpoints::Found found = checkpoints.newest(misfit_with_run(), mine);
  for (const std::string& reason : found.skipped) {
    fmt::print("Left out: {}\n", printable(reason));
  }
  place.narrow(0, 1).fill(static_cast<double>(found.progress.epoch));
  place.narrow(1, 1).fill(static_cast<double>(found.progress.step));
  comm_.broadcast(place, 0);
  return found;
}

void RunLog::start_epoch(std::int64_t steps) {
  allocator(comm_.device()).reset_peak();
  bar_ = std::make_unique<ProgressBar>(progress_.epoch, steps, writes_and_prints());
  sums_.loss.fill(progress_.loss_sum);
  sums_.correct.fill(static_cast<double>(progress_.correct));
  admitted_ = progress_.step;
  unasked_ = 0;  // these steps may be longer than those of the test before
  comm_.barrier();
  start_watch();
}

void RunLog::start_watch() {
  mark_ = comm_.clock().now();
  waited_mark_ = comm_.clock().waited();
}

void RunLog::enter_time() {
  const double passed = comm_.clock().now() - mark_;
  progress_.seconds += passed;
  progress_.rank_seconds += passed;
  progress_.waited += comm_.clock().waited() - waited_mark_;
  start_watch();
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
  note_step(pictures);
  stop_if_asked(model, optimizer);
}

void RunLog::note_step(std::int64_t pictures) {
  progress_.seen += pictures;
  ++progress_.step;
  const bool is_free = comm_.device().type == DeviceType::cpu;  // to read the sums
  if (is_free) {
    read_sums();
  }
  enter_time();
  if (trace_ != nullptr && traced_steps_ < kTracedSteps && ++traced_steps_ == kTracedSteps) {
    Trace::detach();  // what it has is written at the end of the epoch
  }
  bar_->show(progress_.step, is_free && shows_loss_ && comm_.rank() == loss_rank_
                                 ? std::optional(progress_.loss_sum / static_cast<double>(progress_.seen))
                                 : std::nullopt);
}

bool RunLog::admits(std::int64_t batch, std::int64_t last) {
  constexpr double kNoMore = -1;
  while (!refused_ && admitted_ <= (comm_.rank() == 0 ? last : batch)) {
    double up_to = kNoMore;
    if (comm_.rank() != 0) {
      up_to = comm_.receive_number(0, kStopTag);
    } else {
      up_to = interrupted() ? kNoMore : static_cast<double>(std::max(last + 1, batch + batches_at_once()));
      for (int r = 1; r < comm_.size(); ++r) {
        comm_.send_number(up_to, r, kStopTag);
      }
    }
    refused_ = up_to == kNoMore;
    admitted_ = refused_ ? admitted_ : static_cast<std::int64_t>(up_to);
  }
  return batch < admitted_;
}

/// Messages cost as much as a short action, so that several short batches share one. A stop shall not wait for many
/// long ones.
std::int64_t RunLog::batches_at_once() {
  constexpr double kSeconds = 0.1;
  constexpr std::int64_t kMost = 8;
  const auto now = std::chrono::steady_clock::now();
  const double passed = std::chrono::duration<double>(now - std::exchange(admitted_at_, now)).count();
  return passed < kSeconds ? kMost : 1;
}

void RunLog::stop_if_refused(const Module& model, const Optimizer& optimizer) {
  if (refused_) {
    save_and_stop(model, optimizer);
  }
}

/// All ranks stop at the same step, which rank 0 chooses: it tells for several short steps at once that they may go on.
bool RunLog::asked_to_stop() {
  if (comm_.size() == 1) {
    return interrupted();
  }
  if (unasked_ == 0) {
    const Activity activity("end of a step");
    if (comm_.rank() != 0) {
      unasked_ = static_cast<std::int64_t>(comm_.receive_number(0, kStopTag));
    } else {
      unasked_ = interrupted() ? 0 : batches_at_once();
      for (int r = 1; r < comm_.size(); ++r) {
        comm_.send_number(static_cast<double>(unasked_), r, kStopTag);
      }
    }
  }
  return unasked_-- == 0;
}

void RunLog::stop_if_asked(const Module& model, const Optimizer& optimizer) {
  if (asked_to_stop()) {
    save_and_stop(model, optimizer);
  }
}

void RunLog::save_and_stop(const Module& model, const Optimizer& optimizer) {
  close_display();
  read_sums();
  require_finite(model);
  note_peak();
  collect(0);
  save(model, optimizer);
  folder_.require_resumable(progress_, misfit_with_run());
  if (writes_and_prints()) {
    fmt::print("Interrupted in epoch {}, step {}. {}\n", progress_.epoch, progress_.step,
               folder_.writes() ? "Saved; go on with --resume " + printable(folder_.path().string())
                                : "Nothing was saved, as there is no --out");
  }
  comm_.barrier();  // what one rank throws ends all: first everything is written
  throw Interrupted{};
}

/// Brings the sums of all ranks together, and to all the seconds of rank 0. Gives the sum over what they call the
/// test's accuracy.
double RunLog::collect(double test_accuracy) {
  const double seconds = comm_.rank() == 0 ? progress_.seconds : 0;  // rank 0's count for all
  Tensor sums = Tensor::from(std::vector<double>{progress_.loss_sum, static_cast<double>(progress_.correct),
                                                 progress_.waited, test_accuracy, seconds, progress_.rank_seconds},
                             {6}, comm_.device());
  comm_.all_reduce(sums);
  const auto all = sums.to_vector<double>();
  progress_.loss_sum = all[0];
  progress_.correct = static_cast<std::int64_t>(all[1]);
  progress_.waited = all[2];
  progress_.seconds = all[4];
  progress_.rank_seconds = all[5];
  Tensor peaks = Tensor::zeros({comm_.size()}, DType::float64, comm_.device());
  const auto mine = static_cast<std::size_t>(comm_.rank());
  peaks.narrow(comm_.rank(), 1).fill(static_cast<double>(progress_.peak_bytes[mine]));
  comm_.all_reduce(peaks);
  const auto bytes = peaks.to_vector<double>();
  progress_.peak_bytes.assign(bytes.begin(), bytes.end());
  return all[3];
}

UsageError RunLog::diverged(const char* what) const {
  return UsageError(
      fmt::format("a {} is not a finite number in epoch {}, step {}: training has diverged; try a smaller "
                  "--lr than {}. {}",
                  what, progress_.epoch, progress_.step, settings_.training.lr,
                  settings_.run.out.empty() ? "Nothing was saved, as there is no --out"
                                            : "What was saved before stays in " + settings_.run.out));
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
  const auto peak = static_cast<std::int64_t>(allocator(comm_.device()).stats().peak_bytes) - held_before_;
  std::int64_t& most = progress_.peak_bytes[static_cast<std::size_t>(comm_.rank())];
  most = std::max(most, peak);
}

void RunLog::stop_clock() {
  read_sums();
  comm_.barrier();
  enter_time();
  unasked_ = 0;
  close_display();
}

void RunLog::close_display() {
  bar_.reset();
  if (trace_ != nullptr) {
    finish_trace();
  }
}

void RunLog::finish_epoch(double test_accuracy, const Module& model, const Optimizer& optimizer,
                          const Expected& expected) {
  const auto pictures = static_cast<double>(progress_.seen);
  require_finite(model);
  note_peak();
  test_accuracy = collect(test_accuracy);
  const EpochResult result{.epoch = progress_.epoch,
                           .loss = progress_.loss_sum / pictures,
                           .accuracy = static_cast<double>(progress_.correct) / pictures,
                           .test_accuracy = test_accuracy,
                           .seconds = progress_.seconds,
                           .clock = to_string(comm_.clock().kind()),
                           .images_per_second = pictures / progress_.seconds,
                           .idle = progress_.waited / progress_.rank_seconds,
                           .peak_bytes = progress_.peak_bytes,
                           .expected = expected};
  progress_ = Progress{.epoch = progress_.epoch + 1};
  progress_.peak_bytes.resize(static_cast<std::size_t>(comm_.size()));
  save(model, optimizer, &result);
  if (writes_and_prints()) {
    fmt::print("{}\n", epoch_line(result));
    std::fflush(stdout);
  }
}

void RunLog::finish() const {
  if (folder_.writes() && writes_and_prints()) {
    fmt::print("Results: {}\n", printable(folder_.path().string()));
  }
}

void RunLog::finish_trace() {
  Trace::detach();
  const std::string json = gather_trace(comm_, *trace_, predict_ ? predict_() : std::nullopt);
  if (writes_and_prints()) {
    folder_.save_trace(json);
  }
  if (settings_.run.profile && traced_steps_ > 0) {
    const std::vector<std::string> tables = gather_texts(comm_, profile_table(*trace_, traced_steps_));
    for (std::size_t rank = 0; rank < tables.size(); ++rank) {
      fmt::print("{}{}", comm_.size() > 1 ? fmt::format("Rank {}. ", rank) : "", tables[rank]);
    }
  }
  trace_.reset();
}

}  // namespace stagecoach
