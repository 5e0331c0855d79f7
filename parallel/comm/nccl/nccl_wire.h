#pragma once
/// @file
/// The wire that NCCL is. Only sources that are built with NCCL include this.

#include <memory>
#include <string>

#include "core/device.h"
#include "parallel/comm/wire.h"

namespace stagecoach {

/// By this the ranks of a new wire know each other. One of them makes it, and tells the others.
std::string new_nccl_id();

/// The end of rank `rank` of `size`, on `device`. All ranks call it with the same `id`; `look` is called again and
/// again until all are there. Throws WireError.
std::unique_ptr<Wire> make_nccl_wire(Device device, const std::string& id, int rank, int size, const Wire::Look& look);

/// The same for two devices only when they are one GPU: "node7 0000:3B:00.0".
std::string gpu_name(Device device);

}  // namespace stagecoach
