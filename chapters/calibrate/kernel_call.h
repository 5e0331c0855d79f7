#pragma once
/// @file
/// Kernel calls by the names that they have in docs/measurements/gpu_check.md, such as
/// "conv 64x3x32x32 to 6, k5 s1 p0, weight gradient" or "relu [64, 6, 28, 28]".

#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/kernels/costs.h"

namespace stagecoach {

struct KernelCall {
  KernelCost cost;
  std::function<void()> run;
};

/// Returns the call of that name with tensors on `device`; on the device meta it cannot run, but has a cost. Throws
/// DataError for a name that is none of these calls.
KernelCall kernel_call(const std::string& name, Device device);

/// Returns the names of some calls of a training step in micro-batches of `images` images: "convnet", "resnet18" or
/// "vit".
std::vector<std::string> kernel_call_names(const std::string& model, std::int64_t images);

}  // namespace stagecoach
