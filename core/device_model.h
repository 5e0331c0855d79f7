#pragma once
/// @file
/// What a named device takes for a kernel call. It is computed, so it is the same on every machine.
///
/// A call of `launches` kernels takes
///
///     launches * launch_seconds + max((flops + half) / flops_per_second, bytes / bytes_per_second)
///
/// with the rate of the call's kind and type: a roofline (Williams and others, 2009) whose utilisation
/// flops / (flops + half) makes a small call cost more per operation than a large one. The operations include those for
/// which tiles and vectors stay idle (BackendCost::idle_flops), and the bytes the backend's workspace, written once and
/// read once. A call without operations takes its launches and its bytes.
///
/// A row of the table is never edited once it is released, so that quoted numbers keep holding: new measurements get a
/// new name.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/kernels/costs.h"

namespace stagecoach {

struct DeviceModel {
  /// How fast one kind of kernels computes.
  struct Rate {
    double flops_per_second;
    double half;  ///< the operations with which a call reaches half of that
  };
  /// The rates of one type, in the order of CostKind; copies have none, as nothing is computed.
  using Rates = std::array<Rate, 6>;

  std::string name;
  DeviceType backend;  ///< whose launches and workspace count
  Rates float32;       ///< of all types but float64; in a row that ends with -tf32, products round their factors
  Rates float64;
  double bytes_per_second;       ///< of the device's memory
  double launch_seconds;         ///< from one kernel of a stream to the next
  double host_launch_seconds;    ///< for which the host is busy per kernel that it launches
  double host_bytes_per_second;  ///< between the host's memory and the device's
  double load_bytes_per_second;  ///< at which the host prepares samples, by their bytes
  std::int64_t memory_bytes;
  int copy_engines;  ///< copies between host and device that can run beside kernels

  /// Returns what a call takes, in picoseconds: an integer, so that sums do not depend on their order. At most 10^18,
  /// which is 11 days.
  std::int64_t picoseconds(const KernelCost& cost) const;
};

/// Returns the row of that name, or the model in that file, whose name ends with ".json". Throws UsageError that lists
/// the names if there is no such row, and DataError if the file cannot be read or is not right.
DeviceModel device_model(const std::string& name_or_file);

/// Returns the names of the rows.
const std::vector<std::string>& device_model_names();

/// Returns the file of a model, in JSON.
std::string to_json(const DeviceModel& model);
/// Reads a model from `text`. Throws DataError, which begins with `where`, for anything but what to_json writes: a key
/// that is missing, unknown or there twice, a value that is not a number above 0, and what follows the end. Files that
/// were written before wide convolutions had a rate take that of convolutions.
DeviceModel device_model_from_json(const std::string& text, const std::string& where);

}  // namespace stagecoach
