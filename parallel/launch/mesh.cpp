#include "parallel/launch/mesh.h"

#include <fmt/format.h>

#include <string_view>

#include "core/device.h"
#include "core/error.h"
#include "core/parse.h"

namespace stagecoach {

MeshSizes mesh_from_text(const std::string& text) {
  MeshSizes sizes;
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("'{}' is not a mesh: expected the numbers of data-parallel ranks and of pipeline ranks, each from "
                    "1 to {}, such as dp=2,pp=2",
                    text, kMaxDevices));
  };
  for (const std::string_view part : split_text(text, ',')) {
    const std::string_view name = part.substr(0, part.find('='));
    int* size = name == "dp" ? &sizes.data : name == "pp" ? &sizes.pipeline : nullptr;
    if (size == nullptr || name.size() == part.size() || *size != 1) {
      refuse();
    }
    *size = number_from<int>(part.substr(name.size() + 1)).value_or(0);
    if (*size < 1 || *size > kMaxDevices) {
      refuse();
    }
  }
  if (1LL * sizes.data * sizes.pipeline > kMaxDevices) {
    throw UsageError(fmt::format("mesh '{0}': expected at most {2} ranks, got {1}", text,
                                 1LL * sizes.data * sizes.pipeline, kMaxDevices));
  }
  return sizes;
}

Mesh::Mesh(Communicator& world, const MeshSizes& sizes) {
  const auto [d, p] = sizes;
  if (d < 1 || p < 1 || 1LL * d * p != world.size()) {
    throw UsageError(
        fmt::format("a mesh of {} data x {} pipeline ranks does not match the world: expected {} ranks, got {}", d, p,
                    1LL * d * p, world.size()));
  }
  const int at_pipeline = world.rank() % p;
  const int at_data = world.rank() / p;
  data_ = world.split(at_pipeline, at_data);
  pipeline_ = world.split(at_data, at_pipeline);
}

}  // namespace stagecoach
