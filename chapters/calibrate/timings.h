#pragma once
/// @file
/// The times of kernel calls: measured, or read from a page with tables of them.

#include <string>

#include "chapters/calibrate/fit.h"

namespace stagecoach {

/// Measures calls on `device` with one thread; `tf32` lets products on a GPU round their factors.
Timings measured_timings(Device device, bool tf32);

/// Reads the tables of a page that cuda_kernels_benchmark printed, such as docs/measurements/gpu_check.md. Throws
/// DataError if it has no table, or a row that is not a kernel call.
Timings timings_of_page(const std::string& file);

/// Returns the seconds per kernel of a training step whose kernels compute next to nothing: on a CPU what an operation
/// takes besides its kernel, on a GPU for how long its host is busy per launch.
double seconds_per_operation(Device device);

/// Returns the bytes per second at which a host prepares samples.
double loaded_bytes_per_second();
/// Returns the bytes per second from the host's memory to the device's.
double host_bytes_per_second(Device device);

}  // namespace stagecoach
