#pragma once
/// @file
/// The tables of cuda_kernels_benchmark: a row gives the time of an operation beside the least time that this GPU would
/// need for it, the floor, and beside a peer's time.
///
/// The floor is the largest of three: the operations of a product at the best rate of one, the bytes at the best rate
/// of a copy, and what any kernel takes that does nothing. All three rates are measured first.

#include <functional>
#include <optional>
#include <string>

#include "core/kernels/costs.h"
#include "core/kernels/kernels.h"
#include "tests/benchmarks/cuda_peers.h"
#include "tests/benchmarks/cuda_work.h"

namespace stagecoach {

inline const Kernels& gpu() { return kernels(kGpu); }

/// Measures the rates of all floors, and prints them.
void print_machine();

/// Begins a table whose products are of that precision.
void begin_table(const std::string& title, Precision wanted);
Precision precision_of_table();

/// Seconds of the same operation by a peer, or none where there is no peer.
using Peer = std::function<std::optional<double>()>;
inline const Peer kNoPeer = [] { return std::nullopt; };

/// Measures and prints a row. An operation that fails gets a row that says so.
void print_row(const std::string& name, const Work& body, const KernelCost& cost, const Peer& peer);

/// Prints the row of a kernel called with these arguments.
template <auto kernel, auto cost, class... Arguments>
void print_kernel(const std::string& name, const Peer& peer, Arguments... arguments) {
  print_row(
      name, [&] { (gpu().*kernel)(arguments...); }, (kernel_costs().*cost)(arguments...), peer);
}

/// Returns whether any operation has failed.
bool any_failed();
void note_failure();

}  // namespace stagecoach
