#pragma once
/// @file
/// The groups of hybrid sharding: within a group of consecutive ranks, such as those of one node, weights are cut;
/// every group has a copy of them. So gathers stay within a group, and only the sums of shards travel between groups.

#include <memory>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// One rank's groups, for one of its threads: for the calling one.
class ShardGroups {
 public:
  /// All ranks of `comm`, whose number is a multiple of `copies`, construct it together. `comm` must outlive it.
  ShardGroups(Communicator& comm, int copies) : shards_(&comm) {
    if (copies > 1) {
      const int ranks = comm.size() / copies;  // of a group
      group_ = comm.split(comm.rank() / ranks, comm.rank());
      copies_ = comm.split(comm.rank() % ranks, comm.rank());
      shards_ = group_.get();
    }
  }

  /// Returns the ranks that have the parts of one copy of the weights.
  Communicator& shards() const { return *shards_; }
  /// Returns the ranks that have the same part, one of each copy; null if there is one copy.
  Communicator* copies() const { return copies_.get(); }

 private:
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Communicator> copies_;
  Communicator* shards_;
};

}  // namespace stagecoach
