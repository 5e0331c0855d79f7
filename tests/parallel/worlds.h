#pragma once
/// @file
/// The same tests for ranks that are threads and, when mpirun or torchrun starts the tests, for ranks that are
/// processes.

#include <gtest/gtest.h>

#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach::test {

inline bool ranks_are_processes() { return launch_environment().has_value(); }

inline bool ranks_use_gloo() { return ranks_are_processes() && launch_environment()->by == "torchrun"; }

/// Of `ranks` threads, or processes.
inline World world_of(int ranks) {
  const Transport processes = ranks_use_gloo() ? Transport::gloo : Transport::mpi;
  return {.ranks = ranks, .transport = ranks_are_processes() ? processes : Transport::thread};
}

/// Processes are as many as were started.
inline bool has_ranks(int ranks) { return !ranks_are_processes() || launch_environment()->size == ranks; }

}  // namespace stagecoach::test

/// Leaves the test out where mpirun has not started `ranks` processes.
#define STAGECOACH_NEEDS_RANKS(ranks)                                               \
  if (!::stagecoach::test::has_ranks(ranks)) {                                      \
    GTEST_SKIP() << (ranks) << " ranks; mpirun has started another number of them"; \
  }

/// Leaves the test out where ranks share no memory: it looks from one at what another has.
#define STAGECOACH_NEEDS_THREADS()                  \
  if (::stagecoach::test::ranks_are_processes()) {  \
    GTEST_SKIP() << "looks into the ranks' memory"; \
  }
