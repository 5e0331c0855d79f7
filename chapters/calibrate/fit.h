#pragma once
/// @file
/// The numbers of a device model that explain measured times best.

#include <string>
#include <vector>

#include "core/device_model.h"

namespace stagecoach {

/// The time of a kernel call.
struct Timing {
  std::string name;   ///< of the call
  std::string model;  ///< whose training step it is a part of, with its batch: "vit 512"
  KernelCost cost;
  bool tf32 = false;  ///< products round their factors
  double seconds = 0;
};

struct Timings {
  std::vector<Timing> calls = {};
  // The best rates of large products. Rates that no call determines are pulled towards the same share of these.
  double best_float32 = 0;
  double best_float64 = 0;
  double best_tf32 = 0;  ///< 0 if no call uses it
};

/// Returns `device` with the launch time, the bandwidth and the rates that minimise the errors of `timings`, on a
/// logarithmic scale: a factor of 2 is as bad for a short call as for a long one. Rates of float64 are those of float32
/// in the proportion of the best products. With `tf32`, the products of float32 use it.
DeviceModel fitted(const Timings& timings, DeviceModel device, bool tf32);

/// Returns `device` with three digits of each number: there is no use in more.
DeviceModel rounded(DeviceModel device);

/// Returns the modelled time of a call over the measured one.
double ratio(const DeviceModel& device, const Timing& timing);

}  // namespace stagecoach
