#include "parallel/training/epoch_meter.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/asynchronous.h"
#include "core/transfer.h"
#include "parallel/comm/modelled_streams.h"

namespace stagecoach {
namespace {

/// Returns the progress at the start of an epoch, with the memory of `places` devices.
Progress start_of(std::int64_t epoch, std::size_t places) {
  return {.epoch = epoch, .peak_bytes = std::vector<std::int64_t>(places)};
}

/// Returns how long an asynchronous device has worked so far; nothing for a synchronous one.
std::optional<double> busy_seconds(Device device) {
  if (const ModelledStreams* streams = ModelledStreams::of(device)) {
    return streams->busy_seconds(device);
  }
  return is_asynchronous(device) ? std::optional(call_queue({device, Stream::kCompute}).busy_seconds()) : std::nullopt;
}

}  // namespace

EpochMeter::EpochMeter(Communicator& comm, const std::vector<Device>& devices, std::int64_t labels_per_sample,
                       std::shared_ptr<RankPool> pool)
    : comm_(comm),
      labels_per_sample_(static_cast<double>(labels_per_sample)),
      pool_(std::move(pool)),
      progress_(start_of(1, static_cast<std::size_t>(comm.size()) * devices.size())),
      train_sums_(comm.device()),
      test_sums_(comm.device()) {
  for (const Device device : devices) {
    devices_.push_back({device, static_cast<std::int64_t>(allocator(device).stats().current_bytes)});
  }
}

void EpochMeter::time_updates_of(Optimizer& optimizer) {
  const Device device = devices_.front().device;
  // Where calls are queued, they return before their work is done; but modelled streams know at once how long it takes.
  const bool is_queued = has_others_work() ? ModelledStreams::of(device) == nullptr
                                           : device.type == DeviceType::cuda && comm_.clock().kind() == ClockKind::wall;
  if (!is_queued) {
    optimizer_ = &optimizer;
    optimizer.time_with([self = std::weak_ptr(self_)] {
      const auto meter = self.lock();
      return meter ? meter->worked() : 0;
    });
  }
}

bool EpochMeter::has_others_work() const {
  return pool_ != nullptr || busy_seconds(devices_.front().device).has_value();
}

double EpochMeter::idle_seconds() const {
  if (!has_others_work()) {
    return comm_.clock().waited();
  }
  if (pool_ != nullptr) {
    return comm_.clock().now() - pool_->busy_seconds();
  }
  double busy = 0;
  for (const Watched& watched : devices_) {
    busy += *busy_seconds(watched.device);
  }
  return comm_.clock().now() - busy / static_cast<double>(devices_.size());
}

void EpochMeter::resume(const Progress& saved, int loss_rank) {
  progress_ = saved;
  progress_.peak_bytes.resize(static_cast<std::size_t>(comm_.size()) * devices_.size());
  if (comm_.rank() != 0) {
    progress_.rank_seconds = 0;
    progress_.waited = 0;
  }
  if (comm_.rank() != loss_rank) {
    progress_.loss_sum = 0;
    progress_.correct = 0;
  }
}

void EpochMeter::start_epoch() {
  for (const Watched& watched : devices_) {
    allocator(watched.device).reset_peak();
  }
  train_sums_.loss.fill(progress_.loss_sum);
  train_sums_.correct.fill(static_cast<double>(progress_.correct));
  load_waited_ = 0;
  measured_ = {};
  updates_mark_ = optimizer_ == nullptr ? 0 : optimizer_->seconds_in_steps();
  first_step_ = progress_.step;
  sent_ = traffic();
  start_test();
}

void EpochMeter::start_clock() {
  time_mark_ = comm_.clock().now();
  idle_mark_ = idle_seconds();
}

void EpochMeter::add_time() {
  Clock& clock = comm_.clock();
  const double passed = clock.between(time_mark_, clock.now());
  progress_.seconds += passed;
  progress_.rank_seconds += passed;
  progress_.waited += clock.between(idle_mark_, idle_seconds());
  start_clock();
}

void EpochMeter::add_load(double worked, double seconds, double modelled_seconds) {
  load_waited_ += modelled_seconds;
  if (has_others_work()) {  // who are idle meanwhile anyway
    return;
  }
  const bool is_wall = comm_.clock().kind() == ClockKind::wall;  // which counts a wait as work
  progress_.waited += is_wall ? seconds : 0;
  measured_.loading += worked - (is_wall ? seconds : 0);
  measured_.waiting_for_data += is_wall ? seconds : modelled_seconds;
}

void EpochMeter::add_step(std::int64_t images) {
  progress_.seen += images;
  ++progress_.step;
}

EpochMeter::Traffic EpochMeter::traffic() const {
  if (pool_ != nullptr) {
    return pool_->bytes_sent();
  }
  Traffic sent;
  for (const auto& [receiver, bytes] : comm_.bytes_sent()) {
    sent[{comm_.rank(), receiver}] = bytes;
  }
  const auto is_watched = [&](Device device) {
    return std::any_of(devices_.begin(), devices_.end(), [&](const Watched& one) { return one.device == device; });
  };
  for (const auto& [link, bytes] : bytes_moved()) {  // in a rank with one device, none has both ends
    if (is_watched(link.first) && is_watched(link.second)) {
      sent[{link.first.index, link.second.index}] += bytes;
    }
  }
  return sent;
}

void EpochMeter::stop_counting_bytes() {
  const Traffic before = std::exchange(sent_, traffic());
  for (const auto& [link, bytes] : before) {
    sent_[link] -= bytes;
  }
}

void EpochMeter::read_sums() {
  progress_.loss_sum = train_sums_.loss.item();
  progress_.correct = static_cast<std::int64_t>(train_sums_.correct.item());
}

void EpochMeter::start_test() {
  test_sums_.loss.fill(0);
  test_sums_.correct.fill(0);
  test_sums_.has_losses = false;
  test_images_ = 0;
}

void EpochMeter::combine_ranks() {
  const double seconds = comm_.rank() == 0 ? progress_.seconds : 0;
  measured_.updating = optimizer_ == nullptr ? 0 : optimizer_->seconds_in_steps() - updates_mark_;
  const auto all = comm_.sum_numbers({progress_.loss_sum, static_cast<double>(progress_.correct), progress_.waited,
                                      test_sums_.correct.item(), seconds, progress_.rank_seconds, measured_.updating,
                                      measured_.loading, measured_.waiting_for_data, test_sums_.loss.item(),
                                      test_sums_.has_losses ? 1.0 : 0.0});
  progress_.loss_sum = all[0];
  progress_.correct = static_cast<std::int64_t>(all[1]);
  progress_.waited = all[2];
  test_accuracy_ = accuracy_of(all[3], test_images_);
  test_loss_ =
      all[10] > 0 && test_images_ > 0 ? std::optional(all[9] / static_cast<double>(test_images_)) : std::nullopt;
  progress_.seconds = all[4];
  progress_.rank_seconds = all[5];
  measured_ = {.updating = all[6], .loading = all[7], .waiting_for_data = all[8]};

  std::vector<double> bytes(progress_.peak_bytes.size());
  auto place = static_cast<std::size_t>(comm_.rank()) * devices_.size();
  for (const Watched& watched : devices_) {
    const auto peak = static_cast<std::int64_t>(allocator(watched.device).stats().peak_bytes) - watched.held_before;
    bytes[place] = static_cast<double>(std::max(peak, progress_.peak_bytes[place]));  // the latter before a resume
    ++place;
  }
  bytes = comm_.sum_numbers(bytes);
  progress_.peak_bytes.assign(bytes.begin(), bytes.end());
  find_links();
}

std::optional<double> EpochMeter::accuracy_of(double correct, std::int64_t images) const {
  const double labels = static_cast<double>(images) * labels_per_sample_;
  return labels > 0 ? std::optional(correct / labels) : std::nullopt;
}

void EpochMeter::find_links() {
  const auto steps = static_cast<double>(std::max<std::int64_t>(progress_.step - first_step_, 1));
  const int ranks = pool_ == nullptr ? comm_.size() : pool_->ranks();
  const int places = pool_ == nullptr && devices_.size() > 1 ? devices_.back().device.index + 1 : ranks;
  std::vector<double> sums(static_cast<std::size_t>(places) * static_cast<std::size_t>(places));
  for (const auto& [link, bytes] : sent_) {
    sums[static_cast<std::size_t>(link.first * places + link.second)] = bytes;
  }
  sums = comm_.sum_numbers(sums);
  links_.clear();
  for (int from = 0; from < places; ++from) {
    for (int to = 0; to < places; ++to) {
      const double bytes = sums[static_cast<std::size_t>(from * places + to)];
      if (bytes > 0) {
        links_.push_back({from, to, bytes / steps});
      }
    }
  }
}

NamedNumbers EpochMeter::parts_of_step(const Progress& done, const Prediction& prediction) const {
  const bool has_others = comm_.size() > 1 || devices_.size() > 1;
  const bool has_measured = optimizer_ != nullptr && first_step_ == 0 && done.step > 0 && done.rank_seconds > 0;
  if (!has_measured || (has_others && !prediction.causes)) {
    return {};
  }
  const double step = done.seconds / static_cast<double>(done.step);
  const double share = step / done.rank_seconds;  // of a sum over all ranks and steps
  return step_parts({.step = step,
                     .working = step - share * done.waited,
                     .updating = share * measured_.updating,
                     .loading = share * measured_.loading,
                     .waiting_for_data = share * measured_.waiting_for_data},
                    prediction.causes.value_or(StepCauses{}));
}

EpochResult EpochMeter::finish_epoch(Prediction prediction) {
  prediction.add_wait(load_waited_);
  const Progress done = std::exchange(progress_, start_of(progress_.epoch + 1, progress_.peak_bytes.size()));
  const auto images = static_cast<double>(done.seen);
  return {.epoch = done.epoch,
          .loss = done.loss_sum / images,
          .accuracy = accuracy_of(static_cast<double>(done.correct), done.seen),
          .test_accuracy = test_accuracy_,
          .test_loss = test_loss_,
          .seconds = done.seconds,
          .clock = to_string(comm_.clock().kind()),
          .images_per_second = images / done.seconds,
          .idle = done.waited / done.rank_seconds,
          .peak_bytes = done.peak_bytes,
          .prediction = prediction,
          .steps = done.step,
          .links = links_,
          .step_parts = parts_of_step(done, prediction)};
}

}  // namespace stagecoach
