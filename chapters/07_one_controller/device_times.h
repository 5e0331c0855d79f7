#pragma once
/// @file
/// What modelled devices do in an epoch, and why they wait for each other.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "chapters/common/settings.h"
#include "core/device.h"
#include "parallel/comm/link.h"
#include "parallel/schedule/schedule.h"
#include "parallel/training/step_causes.h"

namespace stagecoach {

class DeviceTimes {
 public:
  DeviceTimes(const Settings& settings, const std::vector<Device>& devices);

  /// Begins an epoch.
  void start();
  /// Returns why devices wait in a step: as those of a pipeline whose stages work as long as the devices have worked.
  /// What the controller adds, which loads data and makes every call, is no part of it.
  StepCauses causes(std::int64_t steps) const;

 private:
  std::vector<double> busy() const;
  double bytes_between(Device from, Device to) const;

  std::vector<Device> devices_;
  Link link_;
  Schedule schedule_;
  std::vector<double> busy_before_;
  std::map<std::pair<Device, Device>, double> moved_before_;
};

}  // namespace stagecoach
