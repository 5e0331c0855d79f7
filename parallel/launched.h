#pragma once
/// @file
/// What a launcher such as mpirun says about this process.

#include <optional>
#include <string>

namespace stagecoach {

/// One process of several that were started together.
struct Launched {
  int rank = 0;  ///< of this one
  int size = 1;
  std::string by;  ///< "mpirun", "srun", or "torchrun"
};

/// Read from the environment, once. Nothing when this process was started by itself. Throws UsageError when what stands
/// there is no rank of a world.
const std::optional<Launched>& launched();

/// The same from an environment: `get` gives a variable, or null.
std::optional<Launched> launched_in(const char* (*get)(const char* name));

/// Whether this process speaks for all: rank 0 does, or the only one.
bool speaks();

}  // namespace stagecoach
