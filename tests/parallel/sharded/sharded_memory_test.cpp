// What a rank holds at once, counted by its allocator, against an itemised formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/allocator.h"
#include "tests/parallel/sharded/sharded_task.h"

namespace stagecoach {
namespace {

using test::random_labels;
using test::random_tensor;

/// A model, and images that make its activations small or large beside its weights.
struct Sized {
  const char* name;
  std::shared_ptr<Sequential> (*make)();
  std::int64_t image_size;
  std::int64_t images;  // per rank

  Tensor images_on(Device device) const {
    return random_tensor({images, 3, image_size, image_size}, "images", DType::float32, device);
  }
  Tensor labels_on(Device device) const { return random_labels(images, 10, device); }
};
void PrintTo(const Sized& sized, std::ostream* out) { *out << sized.name; }

std::shared_ptr<Sequential> equal_layers() { return make_model("mlp", {.sizes = {.depth = 6, .width = 192}}); }

constexpr Sized kSized[] = {
    {"EqualLayers", equal_layers, 32, 2}, {"Convnet", test::convnet, 32, 4}, {"Vit", test::small_vit, 16, 4}};

/// On the modelled clock, the workspace of kernels is that of the device, and memory is the same in every run.
World world_of(int ranks) {
  return {.ranks = ranks, .clock = ClockKind::modelled, .device_model = device_model("h200")};
}

constexpr double kRounding = 16 * 64;  // each tensor's memory is a multiple of 64 bytes

double held(Device device) { return static_cast<double>(allocator(device).stats().current_bytes); }
double peak(Device device) { return static_cast<double>(allocator(device).stats().peak_bytes); }

/// Bytes of a forward and backward on one device, beside weights and gradients: activations, the largest gradient on
/// its way, and the workspace of kernels.
double activation_bytes(const Sized& sized) {
  double bytes = 0;
  launch(world_of(1), [&](Rank& rank) {
    const auto model = sized.make();
    model->materialize(1, rank.device);
    for (auto [name, parameter] : model->named_parameters()) {
      parameter.set_gradient_hook([](Tensor& leaf) { leaf.zero_grad(); });
    }
    const double before = held(rank.device);
    allocator(rank.device).reset_peak();
    backward(cross_entropy(model->forward(sized.images_on(rank.device)), sized.labels_on(rank.device), Reduction::sum));
    bytes = peak(rank.device) - before;
  });
  return bytes;
}

struct Units {
  std::vector<double> bytes;  // of the weights of each, padded
  double all() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }
  /// Returns the bytes of the `count` consecutive units that have the most.
  double largest(std::size_t count) const {
    double most = 0;
    for (std::size_t first = 0; first < bytes.size(); ++first) {
      const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(first + count, bytes.size()));
      most = std::max(most, std::accumulate(bytes.begin() + static_cast<std::ptrdiff_t>(first), end, 0.0));
    }
    return most;
  }
};

Units units_of(ShardedDataParallel& sharded, int ranks) {
  Units units;
  sharded.for_each_unit([&](const NamedTensors& parameters) {
    std::int64_t count = 0;
    for (const auto& [name, parameter] : parameters) {
      count += parameter.numel();
    }
    units.bytes.push_back(static_cast<double>((count + ranks - 1) / ranks * ranks) * sizeof(float));
  });
  return units;
}

/// Bytes of a rank with Adam, item by item.
double formula(const ShardedSettings& settings, const Units& units, int ranks, double activations) {
  const double all = units.all();
  const double shard = all / ranks;
  const double states = 2 * shard;
  const double reduced = units.largest(2);  // whole gradients: computed, and being reduced
  switch (settings.shard) {
    case Sharded::optimizer:
      return all + all + units.largest(1) / ranks + states + activations;  // the sums, before they are in place
    case Sharded::gradients:
      return all + shard + reduced + states + activations;
    case Sharded::parameters: {
      const double gathered =
          settings.reshard_after_forward ? units.largest(static_cast<std::size_t>(1 + settings.prefetch)) : all;
      return shard + gathered + shard + reduced + states + activations;
    }
  }
  return 0;
}

class ShardedMemory : public ::testing::TestWithParam<Sized> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedMemory, ::testing::ValuesIn(kSized),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ShardedMemory, IsBelowTheFormula) {
  const Sized& sized = GetParam();
  const double activations = activation_bytes(sized);
  for (const int ranks : {2, 4}) {
    for (const ShardedSettings& settings : std::vector<ShardedSettings>{{.shard = Sharded::optimizer},
                                                                        {.shard = Sharded::gradients},
                                                                        {.shard = Sharded::parameters},
                                                                        {.prefetch = 0},
                                                                        {.reshard_after_forward = false}}) {
      launch(world_of(ranks), [&](Rank& rank) {
        const double before = held(rank.device);
        const auto model = sized.make();
        ShardedDataParallel sharded(*model, rank.comm, settings);
        const Units units = units_of(sharded, ranks);
        Adam optimizer(sharded.shards());
        const Tensor images = sized.images_on(rank.device);
        const Tensor labels = sized.labels_on(rank.device);
        allocator(rank.device).reset_peak();
        for (int step = 0; step < 2; ++step) {
          sharded.backward(cross_entropy(sharded.forward(images), labels, Reduction::sum), sized.images * ranks);
          optimizer.step();
          optimizer.zero_grad();
        }
        if (rank.index == 1) {
          const double wanted = formula(settings, units, ranks, activations);
          const double got = peak(rank.device) - before;
          SCOPED_TRACE(fmt::format("{}, {} ranks, prefetch {}, reshard {}", test::text_of(settings.shard), ranks,
                                   settings.prefetch, settings.reshard_after_forward));
          EXPECT_LE(got, wanted);
          EXPECT_GE(got, 0.75 * wanted) << "not all items are there at the same time, but most are";
        }
      });
    }
  }
}

// No rank ever holds the model: at the start, one unit at a time is whole.
TEST_P(ShardedMemory, IsOneUnitBesideTheShardsAtTheStart) {
  const Sized& sized = GetParam();
  launch(world_of(4), [&](Rank& rank) {
    const auto model = sized.make();
    const double before = held(rank.device);
    allocator(rank.device).reset_peak();
    ShardedDataParallel sharded(*model, rank.comm);
    const double most = peak(rank.device) - before;
    const Units units = units_of(sharded, rank.world);
    if (rank.index == 1) {
      EXPECT_LE(most, units.all() / rank.world + units.largest(1) + kRounding);
    }
  });
}

}  // namespace
}  // namespace stagecoach
