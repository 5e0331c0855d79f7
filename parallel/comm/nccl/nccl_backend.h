#pragma once
/// @file
/// The backend that NCCL is. Only sources that are built with NCCL include this.

#include <memory>
#include <string>

#include "core/device.h"
#include "parallel/comm/point_to_point_backend.h"

namespace stagecoach {

/// By this the ranks of a new backend know each other. One of them makes it, and tells the others.
std::string new_nccl_id();

/// The end of rank `rank` of `size`, on `device`. All ranks call it with the same `id`; `poll` is called again and
/// again until all are there. Throws BackendError.
std::unique_ptr<PointToPointBackend> make_nccl_backend(Device device, const std::string& id, int rank, int size,
                                                       const PointToPointBackend::Poll& poll);

/// The same for two devices only when they are one GPU: "node7 0000:3B:00.0".
std::string gpu_name(Device device);

}  // namespace stagecoach
