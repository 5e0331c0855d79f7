#pragma once
/// @file
/// What both parts of the grader of lab 8 use: ranks whose calls are recorded, and whole numbers.

#include <functional>
#include <string>
#include <vector>

#include "tests/labs/compared_values.h"
#include "tests/labs/lab8.h"
#include "tests/labs/watched_collectives.h"

namespace stagecoach::labs::lab8 {

inline constexpr const char* kCalls =
    "chapter 8, \"One block, four all-reduces\": where must the ranks wait for a sum?";

/// Returns the numbers of ranks that are tried.
std::vector<int> rank_counts();

/// Returns what failures say of sums.
Collectives::Texts texts();
/// Runs body(comm) on `ranks` ranks whose calls are recorded.
void on_ranks(int ranks, Collectives& collectives, const std::function<void(Communicator& comm)>& body);

/// Returns whole numbers from -2 to 2: sums and products of them are not rounded.
Tensor whole_numbers(const Shape& shape, const std::string& name, Device device = {});

/// What the calls of a rank are stamped with.
enum class Pass { forward, backward };

/// Throws Failed unless rank 0 has made `expected` calls in a pass of `of`, such as "the pair".
void require_calls(const Collectives& collectives, Pass pass, std::size_t expected, const std::string& of);

}  // namespace stagecoach::labs::lab8
