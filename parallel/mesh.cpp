#include "parallel/mesh.h"

#include <fmt/format.h>

namespace stagecoach {

Mesh::Mesh(Communicator& world, const MeshSizes& sizes) {
  const auto [d, p, t] = sizes;
  if (d < 1 || p < 1 || t < 1 || 1LL * d * p * t != world.size()) {
    throw UsageError(fmt::format("a mesh of data {} x pipeline {} x tensor {} ranks needs {}, the world has {}", d, p,
                                 t, 1LL * d * p * t, world.size()));
  }
  const int at_tensor = world.rank() % t;
  const int at_pipeline = world.rank() / t % p;
  const int at_data = world.rank() / t / p;
  data_ = world.split(at_pipeline * t + at_tensor, at_data);
  pipeline_ = world.split(at_data * t + at_tensor, at_pipeline);
  tensor_ = world.split(at_data * p + at_pipeline, at_tensor);
}

}  // namespace stagecoach
