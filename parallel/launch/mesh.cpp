#include "parallel/launch/mesh.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "core/device.h"
#include "core/error.h"

namespace stagecoach {

MeshSizes mesh_from_text(const std::string& text) {
  MeshSizes sizes;
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("'{}' is not a mesh: expected the numbers of data-parallel ranks and of pipeline ranks, each from "
                    "1 to {}, such as dp=2,pp=2",
                    text, kMaxDevices));
  };
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::string name = part.substr(0, part.find('='));
    int* size = name == "dp" ? &sizes.data : name == "pp" ? &sizes.pipeline : nullptr;
    if (size == nullptr || name.size() == part.size() || *size != 1) {
      refuse();
    }
    const char* end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data() + name.size() + 1, end, *size);
    if (error != std::errc() || stop != end || *size < 1 || *size > kMaxDevices) {
      refuse();
    }
  }
  if (text.empty() || text.back() == ',') {
    refuse();
  }
  if (1LL * sizes.data * sizes.pipeline > kMaxDevices) {
    throw UsageError(fmt::format("mesh '{0}': expected at most {2} ranks, got {1}", text,
                                 1LL * sizes.data * sizes.pipeline, kMaxDevices));
  }
  return sizes;
}

Mesh::Mesh(Communicator& world, const MeshSizes& sizes) {
  const auto [d, p, t] = sizes;
  if (d < 1 || p < 1 || t < 1 || 1LL * d * p * t != world.size()) {
    throw UsageError(fmt::format(
        "a mesh of {} data x {} pipeline x {} tensor ranks does not match the world: expected {} ranks, got {}", d, p,
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
