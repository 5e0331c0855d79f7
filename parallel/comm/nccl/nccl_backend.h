#pragma once
/// @file
/// The NCCL backend. Only sources that are built with NCCL include this header.

#include <memory>
#include <string>

#include "core/device.h"
#include "parallel/comm/point_to_point_backend.h"

namespace stagecoach {

/// Returns the id that connects the ranks of a new backend. One rank makes it and sends it to the others.
std::string new_nccl_id();

/// Returns the backend of rank `rank` of `size`, on `device`. All ranks call it with the same `id`; `poll` is called
/// repeatedly until all ranks have connected. Throws BackendError.
std::unique_ptr<PointToPointBackend> make_nccl_backend(Device device, const std::string& id, int rank, int size,
                                                       const PointToPointBackend::Poll& poll);

/// Returns a name such as "node7 0000:3B:00.0", which two devices share only if they are one GPU.
std::string gpu_name(Device device);

}  // namespace stagecoach
