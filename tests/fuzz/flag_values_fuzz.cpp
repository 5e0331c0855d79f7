// Values with a grammar of their own: --mesh, --split, --replicas and --link.

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/device.h"
#include "nn/models.h"
#include "parallel/comm/network.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/split.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto model = make_model("convnet");
  const std::string text(fuzz::text_of(data, size));
  fuzz::accepts<UsageError>([&] {
    const MeshSizes mesh = mesh_from_text(text);
    fuzz::require(mesh.data >= 1 && mesh.pipeline >= 1 && mesh.ranks() >= 1 && mesh.ranks() <= kMaxPlannedRanks,
                  "a mesh beyond its bounds");
  });
  fuzz::accepts<UsageError>([&] {
    const Split split = split_from_text(text);
    stages_of(*model, split);
  });
  fuzz::accepts<UsageError>([&] {
    for (const int ranks : replicas_from_text(text)) {
      fuzz::require(ranks >= 1 && ranks <= kMaxPlannedRanks, "replicas beyond their bounds");
    }
  });
  fuzz::accepts<UsageError>([&] {
    const Network network = network_from_text(text);
    const RankGroups far{{0, kMaxPlannedRanks}};
    const double inner = network.within_node().seconds(1 << 20);
    const double outer = network.between(far[0], 0, 1, far).seconds(1 << 20);
    fuzz::require(inner >= 0 && inner <= outer && std::isfinite(outer),
                  "a message over this network takes no finite time");
  });
  return 0;
}
