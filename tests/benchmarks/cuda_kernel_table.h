#pragma once
/// @file
/// The tables of cuda_kernels_benchmark: a row gives the time of an operation beside the least time that this GPU would
/// need for it, the floor, and beside a peer's time.
///
/// The floor is the largest of three: the operations at the best rate of a matrix product, the bytes at the best rate
/// of a copy, and what any kernel takes that does nothing. All three rates are measured first.

#include <functional>
#include <optional>
#include <string>

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

struct Row {
  std::string name;
  Work body;
  double operations = 0;  // additions and multiplications of the textbook's formula, where a product is taken
  double bytes = 0;       // each input read once and each output written once
  std::function<std::optional<double>()> peer = [] { return std::nullopt; };
};

/// Measures and prints a row. An operation that fails gets a row that says so.
void print_row(const Row& row);

/// Returns whether any operation has failed.
bool any_failed();
void note_failure();

}  // namespace stagecoach
