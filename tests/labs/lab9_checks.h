#pragma once
/// @file
/// What all parts of the grader of lab 9 use: ranks whose calls are recorded, random numbers, units, and memory.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/labs/compared_values.h"
#include "tests/labs/lab9.h"
#include "tests/labs/watched_collectives.h"

namespace stagecoach::labs::lab9 {

inline constexpr const char* kUpdate =
    "chapters/09_sharded_data_parallel/lab/sharded_update.h; chapter 9, \"The idea\"";
inline constexpr const char* kMemory =
    "chapters/09_sharded_data_parallel/lab/unit.h: of which storage are the parameters views, and who else knows it?";
inline constexpr const char* kUnit = "chapters/09_sharded_data_parallel/lab/unit.h; chapter 9, \"The program\"";

/// Returns the number of ranks.
int ranks();

/// Returns what failures say of calls, with names of what is sent.
Collectives::Texts texts(const std::function<std::string(std::int64_t count)>& name);
/// Returns what failures say of calls whose tensors have no names.
Collectives::Texts texts();

/// Returns random numbers, others for each name, whose sums are rounded.
Values numbers(std::int64_t count, const std::string& name);
/// Returns the sum of values [ranks], added in rank order.
Values sum_of(const std::vector<Values>& values);
/// Returns this rank's part of `values`, after zeros are appended until it can be cut.
Values part_of(Values values, int rank, int count);

/// Fills free memory of a device with NaN, where a tensor of `numel` elements would be taken from.
void poison(std::int64_t numel, Device device);
/// Returns the bytes of a device that tensors use, when no other rank uses this one's.
std::size_t bytes_in_use(Communicator& comm);

/// Returns one rank's side of a unit whose layers have no memory yet, with the weights freed.
lab::Unit make_unit(const std::shared_ptr<Sequential>& layers, Communicator& comm);
/// Returns whether a tensor has elements, or its memory has been dropped.
bool has_memory(const Tensor& tensor);

}  // namespace stagecoach::labs::lab9
