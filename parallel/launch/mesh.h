#pragma once
/// @file
/// The ranks of a world as a grid: which of them share data, which form a pipeline, which share tensors.

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// How many ranks go in each direction; their product is the world.
struct MeshSizes {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int ranks() const { return data * pipeline * tensor; }
};

/// Reads "dp=2,pp=4", the text of --mesh: ranks that share data, and ranks of a pipeline; what is not named is 1.
/// Throws UsageError.
MeshSizes mesh_from_text(const std::string& text);

/// Rank r is at tensor coordinate r mod tensor, then pipeline, then data: neighbours in a tensor group are neighbours
/// in the world, which are close on most machines.
class Mesh {
 public:
  /// All ranks of `world` call it. Throws UsageError unless the sizes are positive and multiply to the world's.
  Mesh(Communicator& world, const MeshSizes& sizes);

  /// The ranks that differ from this one in that direction only, in the order of their coordinates.
  Communicator& data() { return *data_; }
  Communicator& pipeline() { return *pipeline_; }
  Communicator& tensor() { return *tensor_; }

 private:
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> pipeline_;
  std::unique_ptr<Communicator> tensor_;
};

}  // namespace stagecoach
