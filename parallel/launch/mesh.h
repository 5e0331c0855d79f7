#pragma once
/// @file
/// The ranks of a world as a grid with two dimensions: data parallelism and pipeline parallelism.

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The number of ranks in each direction; the product is the size of the world.
struct MeshSizes {
  int data = 1;
  int pipeline = 1;
  int ranks() const { return data * pipeline; }
};

/// Parses the value of --mesh, such as "dp=2,pp=4": the numbers of data-parallel and of pipeline ranks. A direction
/// that is not named has size 1. Throws UsageError.
MeshSizes mesh_from_text(const std::string& text);

/// A grid in which the pipeline coordinate varies fastest with the rank. Neighbours in a pipeline are therefore
/// neighbours in the world, which are close on most machines.
class Mesh {
 public:
  /// Collective over `world`. Throws UsageError unless the sizes are positive and their product is the size of `world`.
  Mesh(Communicator& world, const MeshSizes& sizes);

  /// These return the group of the ranks that differ from this one only in that direction, ordered by coordinate.
  Communicator& data() { return *data_; }
  Communicator& pipeline() { return *pipeline_; }

 private:
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> pipeline_;
};

}  // namespace stagecoach
