// What a rank holds at once, counted by its allocator, against an itemised formula
// (docs/reference/sharded_data_parallel.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/allocator.h"
#include "parallel/data_parallel/sharded/before_backward.h"
#include "parallel/wrappers/sharded_choices.h"
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

double held(Device device) { return static_cast<double>(allocator(device).stats().current_bytes); }
double peak(Device device) { return static_cast<double>(allocator(device).stats().peak_bytes); }

/// Bytes of the memory of so many numbers of four bytes.
double memory_of(std::int64_t numbers) {
  constexpr auto kStep = static_cast<std::int64_t>(Allocator::kAlignment);
  return static_cast<double>((numbers * 4 + kStep - 1) / kStep * kStep);
}

/// Bytes of one device beside weights and gradients, at most, while it computes the layers of a unit: activations, a
/// gradient on its way, and the workspace of kernels.
struct Activations {
  double forward = 0;
  double at_mark = 0;       // where its backward begins
  double before_grads = 0;  // in its backward, until the first gradient of a parameter
  double after = 0;         // and from then on
};

std::vector<Activations> activations_of(const Sized& sized) {
  std::vector<Activations> found;
  launch(world_of(1), [&](Rank& rank) {
    const auto model = sized.make();
    model->materialize(1, rank.device);
    const std::vector<int> counts = with_units(*model, {}).unit_layers;
    found.resize(counts.size());
    const Tensor images = sized.images_on(rank.device);
    const Tensor labels = sized.labels_on(rank.device);
    const double before = held(rank.device);
    const auto take_peak = [&] {
      const double most = peak(rank.device) - before;
      allocator(rank.device).reset_peak();
      return most;
    };
    allocator(rank.device).reset_peak();
    Tensor y = images;
    int begin = 0;
    for (std::size_t u = 0; u < counts.size(); ++u) {
      const auto layers = model->slice(begin, begin + counts[u]);
      begin += counts[u];
      for (auto [name, parameter] : layers->named_parameters()) {
        parameter.set_gradient_hook([&, u](Tensor& leaf) {
          if (found[u].before_grads == 0) {
            found[u].before_grads = take_peak();
          }
          leaf.zero_grad();
        });
      }
      y = layers->forward(y);
      found[u].forward = take_peak();
      y = before_backward(y, [&, u] {
        (u + 1 == found.size() ? found[u].forward : found[u + 1].after) = take_peak();
        found[u].at_mark = held(rank.device) - before;
      });
    }
    backward(cross_entropy(y, labels, Reduction::sum));
    found[0].after = take_peak();
  });
  return found;
}

/// The flat tensors of a model, and what a rank always has.
struct Held {
  std::vector<double> whole;  // a flat tensor of each unit
  std::vector<double> shard;  // a rank's part of it
  std::vector<double> made;   // its parameters, before they are flat
  double states = 0;          // Adam's, and counts of updates
  double inputs = 0;

  std::size_t count() const { return whole.size(); }
  double always(Sharded sharded) const {
    return sum(sharded == Sharded::parameters ? shard : whole, 0, count()) + states + inputs;
  }
  /// Returns the sum of units `begin` to `end`.
  static double sum(const std::vector<double>& of, std::size_t begin, std::size_t end) {
    double all = 0;
    for (std::size_t u = begin; u < std::min(end, of.size()); ++u) {
      all += of[u];
    }
    return all;
  }
};

Held held_by(ShardedDataParallel& sharded, const Optimizer& optimizer, const Sized& sized, int ranks) {
  Held held;
  sharded.for_each_unit([&](const NamedTensors& parameters) {
    std::int64_t count = 0;
    held.made.push_back(0);
    for (const auto& [name, parameter] : parameters) {
      count += parameter.numel();
      held.made.back() += memory_of(parameter.numel());
    }
    const std::int64_t part = (count + ranks - 1) / ranks;
    held.whole.push_back(memory_of(part * ranks));
    held.shard.push_back(memory_of(part));
  });
  for (const auto& [name, state] : optimizer.state()) {
    held.states += memory_of(state.numel());
  }
  held.inputs = memory_of(sized.images * 3 * sized.image_size * sized.image_size) + memory_of(sized.images);
  return held;
}

/// Bytes of a rank in a step with one micro-batch: the most at any of its moments, item by item.
double formula(const ShardedSettings& settings, const Held& held, const std::vector<Activations>& activations) {
  const std::vector<double>& whole = held.whole;
  const std::size_t end = held.count();
  const std::size_t ahead = static_cast<std::size_t>(settings.prefetch) + 1;
  const bool cuts_weights = settings.shard == Sharded::parameters;
  const bool keeps_gradients = settings.shard == Sharded::optimizer;
  // Weights that were gathered, and are not freed, in the forward and in the backward of a unit.
  const auto forward_weights = [&](std::size_t u) {
    return cuts_weights ? Held::sum(whole, settings.reshard_after_forward ? u : 0, u + ahead) : 0;
  };
  const auto backward_weights = [&](std::size_t u) {
    return cuts_weights ? Held::sum(whole, settings.reshard_after_forward ? u + 1 - std::min(ahead, u + 1) : 0, u + 1)
                        : 0;
  };
  // Whole gradients of units `begin` to `end`, and sums of shards from `begin` on.
  const auto gradients = [&](std::size_t begin, std::size_t end_reduced) {
    return Held::sum(whole, begin, keeps_gradients ? end : end_reduced);
  };
  const auto sums = [&](std::size_t begin) { return keeps_gradients ? 0 : Held::sum(held.shard, begin, end); };
  double most = gradients(0, 0) + sums(0);  // the update
  for (std::size_t u = 0; u < end; ++u) {
    const Activations& of = activations[u];
    const double reduced_now = keeps_gradients ? Held::sum(held.shard, u + 1, u + 2) : 0;  // before it is in place
    most = std::max({most, forward_weights(u) + of.forward,
                     backward_weights(u) + gradients(u + 1, u + 3) + sums(u + 1) + reduced_now + of.at_mark,
                     backward_weights(u) + gradients(u + 1, u + 2) + sums(u + 1) + of.before_grads,
                     backward_weights(u) + gradients(u, u + 2) + sums(u + 1) + of.after});
  }
  return held.always(settings.shard) + most;
}

const std::vector<ShardedSettings> kSettings{{.shard = Sharded::optimizer},
                                             {.shard = Sharded::gradients},
                                             {.shard = Sharded::parameters},
                                             {.prefetch = 0},
                                             {.prefetch = 3},
                                             {.reshard_after_forward = false}};

/// Expects at most 5% between the two, and less than nothing in the other direction.
void expect_explained(double got, double wanted, const std::string& what) {
  EXPECT_LE(got, wanted * 1.001) << what << ": " << got / wanted;
  EXPECT_GE(got, wanted * 0.95) << what << ": " << got / wanted;
}

class ShardedMemory : public ::testing::TestWithParam<Sized> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedMemory, ::testing::ValuesIn(kSized),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ShardedMemory, OfAStepIsThatOfTheFormula) {
  const Sized& sized = GetParam();
  const std::vector<Activations> activations = activations_of(sized);
  for (const int ranks : {2, 4}) {
    for (const ShardedSettings& settings : kSettings) {
      launch(world_of(ranks), [&](Rank& rank) {
        const double before = held(rank.device);
        const auto model = sized.make();
        ShardedDataParallel sharded(*model, rank.comm, settings);
        Adam optimizer(sharded.shards());
        const Tensor images = sized.images_on(rank.device);
        const Tensor labels = sized.labels_on(rank.device);
        const double wanted = formula(settings, held_by(sharded, optimizer, sized, ranks), activations);
        allocator(rank.device).reset_peak();
        for (int step = 0; step < 2; ++step) {
          sharded.backward(cross_entropy(sharded.forward(images), labels, Reduction::sum), sized.images * ranks);
          optimizer.step();
          optimizer.zero_grad();
        }
        if (rank.index == 1) {
          expect_explained(peak(rank.device) - before, wanted,
                           fmt::format("{}, {} ranks, prefetch {}, reshard {}", test::text_of(settings.shard), ranks,
                                       settings.prefetch, settings.reshard_after_forward));
        }
      });
    }
  }
}

// No rank ever holds the model, if weights are cut: at the start, one unit at a time is whole. Otherwise its weights
// are there twice for a moment, beside those of the units before it.
TEST_P(ShardedMemory, AtTheStartIsThatOfTheFormula) {
  const Sized& sized = GetParam();
  for (const Sharded shard : {Sharded::optimizer, Sharded::parameters}) {
    launch(world_of(4), [&](Rank& rank) {
      const auto model = sized.make();
      const double before = held(rank.device);
      allocator(rank.device).reset_peak();
      ShardedDataParallel sharded(*model, rank.comm, {.shard = shard});
      const double most = peak(rank.device) - before;
      const Adam optimizer(sharded.shards());
      const Held held = held_by(sharded, optimizer, sized, rank.world);
      const bool stays = shard == Sharded::optimizer;
      double wanted = 0;
      for (std::size_t u = 0; u < held.count(); ++u) {
        const double kept = Held::sum(stays ? held.whole : held.shard, 0, u + 1);
        wanted = std::max(wanted, kept + std::max(held.made[u], held.whole[u]));
      }
      if (rank.index == 1) {
        expect_explained(most, wanted, test::text_of(shard));
      }
    });
  }
}

// A save gathers one tensor of a unit after the other: its weights and two moments. A rank keeps those of the layers
// that it writes. To resume, it has what it has read, and one flat tensor.
TEST_P(ShardedMemory, OfSaveAndResumeIsThatOfTheFormula) {
  const Sized& sized = GetParam();
  constexpr int kRanks = 2;
  for (const Sharded shard : {Sharded::optimizer, Sharded::gradients, Sharded::parameters}) {
    launch(world_of(kRanks), [&](Rank& rank) {
      const double before = held(rank.device);
      const auto model = sized.make();
      ShardedDataParallel sharded(*model, rank.comm, {.shard = shard});
      Adam optimizer(sharded.shards());
      Held always = held_by(sharded, optimizer, sized, kRanks);
      always.inputs = 0;
      double kept = 0;
      double most = 0;
      for (std::size_t u = 0; u < always.count(); ++u) {
        const bool saves = static_cast<int>(u) % kRanks == rank.index;
        const double of_unit = always.whole[u];
        most = std::max(most, kept + (saves ? 3 : 1) * of_unit + always.shard[u]);  // a moment, joined, and gathered
        kept += saves ? 3 * of_unit : 0;
      }
      allocator(rank.device).reset_peak();
      const WholeLayers saved = sharded.role().sharded->whole_layers(optimizer);
      const double save = peak(rank.device) - before;
      allocator(rank.device).reset_peak();
      sharded.role().sharded->take_layers(saved, optimizer, "the checkpoint");
      const double resume = peak(rank.device) - before;
      if (rank.index == 1) {
        expect_explained(save, always.always(shard) + std::max(most, kept), "save");
        const double largest = *std::max_element(always.whole.begin(), always.whole.end());
        expect_explained(resume, always.always(shard) + kept + largest, "resume");
      }
    });
  }
}

}  // namespace
}  // namespace stagecoach
