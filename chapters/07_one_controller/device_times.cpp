#include "chapters/07_one_controller/device_times.h"

#include <numeric>

#include "core/transfer.h"
#include "parallel/comm/modelled_streams.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

DeviceTimes::DeviceTimes(const Settings& settings, const std::vector<Device>& devices)
    : devices_(devices), link_(settings.world.link->within_node()) {
  const PipelineSettings& pipeline = settings.pipeline;
  const bool is_pipelined = pipeline.form == ControllerForm::pipelined && !pipeline.synchronous;
  const int microbatches = is_pipelined ? static_cast<int>(settings.training.microbatches) : 1;
  schedule_ = lower(make_schedule("gpipe", static_cast<int>(devices.size()), microbatches));
  start();
}

void DeviceTimes::start() {
  busy_before_ = busy();
  moved_before_ = bytes_moved();
}

StepCauses DeviceTimes::causes(std::int64_t steps) const {
  Costs costs = Costs::uniform(schedule_.stage_count(), 0, 0, 0);
  const double parts = static_cast<double>(steps) * schedule_.microbatches;  // micro-batches of an epoch
  const std::vector<double> after = busy();
  double working = 0;  // in a step, in the mean of the devices
  for (std::size_t s = 0; s < after.size(); ++s) {
    const double seconds = (after[s] - busy_before_[s]) / parts;
    costs.forward[s] = seconds / 3;  // a backward is two products for each of the forward's
    costs.backward[s] = seconds - costs.forward[s];
    working += seconds * schedule_.microbatches / schedule_.stage_count();
  }
  const double computing = simulate(schedule_, costs).seconds;
  for (std::size_t s = 0; s < costs.message.size(); ++s) {
    const double bytes = bytes_between(devices_[s], devices_[s + 1]) / parts;
    costs.message[s] = link_.seconds(bytes);
    costs.transfer.push_back(link_.transfer_seconds(bytes));
  }
  const double seconds = simulate(schedule_, costs).seconds;
  const double idle = simulate(schedule_, Costs::uniform(schedule_.stage_count(), 1, 1, 1)).idle;
  return {.bubble = idle / (1 - idle) * working, .messages = seconds - computing, .all = seconds - working};
}

std::vector<double> DeviceTimes::busy() const {
  std::vector<double> seconds;
  for (const Device device : devices_) {
    seconds.push_back(ModelledStreams::current()->busy_seconds(device));
  }
  return seconds;
}

double DeviceTimes::bytes_between(Device from, Device to) const {
  const auto bytes_in = [&](const auto& all) {
    const auto found = all.find({from, to});
    return found == all.end() ? 0 : found->second;
  };
  return bytes_in(bytes_moved()) - bytes_in(moved_before_);
}

}  // namespace stagecoach
