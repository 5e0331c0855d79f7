// What is spread over ranks, brought to rank 0 as if one device held it.

#include "parallel/pipeline/gather.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/weights.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::same_bytes;

std::shared_ptr<Sequential> model_on(Device device) {
  auto model = make_model("convnet");
  model->materialize(3, device);
  return model;
}

TEST(Gather, PutsLayersInTheModelsOrder) {
  const NamedTensors wanted = model_on({})->named_parameters();
  LayerRanks layers;
  const auto whole = make_model("convnet");
  for (int i = 0; i < whole->size(); ++i) {
    layers.emplace_back(whole->name(i), i % 3);  // neighbours on different ranks
  }
  launch({.ranks = 3}, [&](Rank& rank) {
    const auto mine = tensors_of_rank(layers, rank.index, model_on(rank.device)->named_parameters());
    const NamedTensors all = gather_tensors(rank.comm, layers, mine);
    if (rank.index != 0) {
      EXPECT_TRUE(all.empty());
      return;
    }
    ASSERT_EQ(all.size(), wanted.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].first, wanted[i].first);
      EXPECT_TRUE(same_bytes(all[i].second.to(Device{}), wanted[i].second)) << all[i].first;
    }
  });
}

TEST(Gather, TellsLayersApartWhoseNamesBeginAlike) {
  const auto make = [] {
    auto model = std::make_shared<Sequential>();
    for (const char* name : {"transformer", "transformer.h.0", "transformer.h", "head"}) {
      model->add(name, std::make_shared<Linear>(2, 2));
    }
    return model;
  };
  const LayerRanks layers{{"transformer", 0}, {"transformer.h.0", 1}, {"transformer.h", 2}, {"head", 1}};
  EXPECT_EQ(layer_of(layers, "transformer.h.0.weight.updates")->first, "transformer.h.0");
  EXPECT_EQ(layer_of(layers, "transformer.h.00.weight")->first, "transformer.h");
  EXPECT_EQ(layer_of(layers, "steps_done"), nullptr);
  const auto whole = make();
  whole->materialize(3);
  const NamedTensors wanted = whole->named_parameters();
  launch({.ranks = 3}, [&](Rank& rank) {
    const auto model = make();
    model->materialize(3, rank.device);
    const NamedTensors mine = tensors_of_rank(layers, rank.index, model->named_parameters());
    EXPECT_EQ(mine.size(), rank.index == 1 ? 4U : 2U);
    const NamedTensors all = gather_tensors(rank.comm, layers, mine);
    ASSERT_EQ(all.size(), rank.index == 0 ? wanted.size() : 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].first, wanted[i].first);
      EXPECT_TRUE(same_bytes(all[i].second, wanted[i].second)) << all[i].first;
    }
  });
}

/// Stages of different layers, whose weights rank 0 has no room for.
TEST(Gather, SavesWhatOneDeviceWouldWithOneForeignTensorAtATime) {
  const test::TemporaryFolder folder;
  const auto make = [] {
    auto model = std::make_shared<Sequential>();
    model->add("conv", std::make_shared<Conv2d>(3, 4, 3)).add("bn", std::make_shared<BatchNorm2d>(4));
    for (int i = 0; i < 8; ++i) {
      model->add(fmt::format("fc{}", i), std::make_shared<Linear>(256, 256));
    }
    return model;
  };
  const auto whole = make();
  whole->materialize(3);
  save_weights(folder.file("one"), *whole);
  LayerRanks layers;
  for (int i = 0; i < whole->size(); ++i) {
    layers.emplace_back(whole->name(i), i < 2 ? 0 : 1 + i % 2);
  }
  launch({.ranks = 3}, [&](Rank& rank) {
    Sequential mine;
    const auto model = make();
    for (int i = 0; i < model->size(); ++i) {
      if (layers[static_cast<std::size_t>(i)].second == rank.index) {
        mine.add(model->name(i), model->layer(i));
      }
    }
    mine.materialize(3, rank.device);
    Allocator& memory = allocator(rank.device);
    memory.reset_peak();
    const std::size_t before = memory.stats().peak_bytes;
    save_gathered_weights(rank.comm, layers, mine.named_parameters(), mine.named_buffers(), folder.file("three"));
    EXPECT_LT(memory.stats().peak_bytes - before, std::size_t{3 * 256 * 256 * 4}) << "rank " << rank.index;
  });
  EXPECT_EQ(test::read_bytes(folder.file("three")), test::read_bytes(folder.file("one")));
}

TEST(Gather, BringsTextsOfAnyLength) {
  launch({.ranks = 3}, [](Rank& rank) {
    const std::string mine(static_cast<std::size_t>(rank.index) * 1000, 'x');
    const auto all = gather_texts(rank.comm, mine);
    if (rank.index == 0) {
      ASSERT_EQ(all.size(), 3U);
      EXPECT_EQ(all[0], "");
      EXPECT_EQ(all[2], std::string(2000, 'x'));
    }
  });
}

/// What is in use after each layer of one graph through the whole model, in pairs: before and after the layer's input
/// is dropped.
std::vector<std::pair<std::int64_t, std::int64_t>> bytes_in_one_graph(Sequential& model, const Shape& input) {
  const auto in_use = [] { return static_cast<std::int64_t>(allocator(Device{}).stats().current_bytes); };
  model.materialize(0);
  const Tensor images = Tensor::zeros(input);
  const std::int64_t before = in_use();
  std::vector<std::pair<std::int64_t, std::int64_t>> bytes;
  Tensor x = images.detach();
  for (int i = 0; i < model.size(); ++i) {
    Tensor y = model.layer(i)->forward(x);
    const std::int64_t with_input = in_use() - before;
    x = std::move(y);
    bytes.emplace_back(with_input, in_use() - before);
  }
  return bytes;
}

std::shared_ptr<Sequential> views_and_relus() {
  auto model = std::make_shared<Sequential>();
  model->add("conv", std::make_shared<Conv2d>(3, 4, 3)).add("pool", std::make_shared<MaxPool2d>(2));
  model->add("flatten1", std::make_shared<Flatten>()).add("flatten2", std::make_shared<Flatten>());
  model->add("relu1", std::make_shared<ReLU>()).add("relu2", std::make_shared<ReLU>());
  model->add("flatten3", std::make_shared<Flatten>()).add("relu3", std::make_shared<ReLU>());
  return model;
}

TEST(LayerProfile, OfSingleLayersAddsUpToOneGraphThroughAll) {
  const std::vector<std::pair<std::function<std::shared_ptr<Sequential>()>, Shape>> models{
      {[] { return make_model("convnet"); }, {4, 3, 32, 32}},
      {[] { return make_model("resnet18", {.softmax_head = true, .image_size = 16}); }, {3, 3, 16, 16}},
      {views_and_relus, {5, 3, 10, 10}}};
  for (const auto& [make, input] : models) {
    const auto profile = profile_layers(*make(), input, {}, 1);
    const auto model = make();
    const auto bytes = bytes_in_one_graph(*model, input);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < profile.size(); ++i) {
      const std::string& name = model->name(static_cast<int>(i));
      sum += profile[i].kept_bytes;
      EXPECT_EQ(sum, bytes[i].first) << name;
      sum -= profile[i].freed_bytes;
      EXPECT_EQ(sum, bytes[i].second) << name;
    }
  }
}

TEST(LayerProfile, GivesMemoryToOneLayerAtATime) {
  constexpr std::int64_t kWidth = 512;
  constexpr std::size_t kLayer = (kWidth * kWidth + kWidth) * sizeof(float);
  Sequential model;
  for (int i = 0; i < 16; ++i) {
    model.add(fmt::format("fc{}", i), std::make_shared<Linear>(kWidth, kWidth));
  }
  Allocator& memory = allocator(Device{});
  memory.empty_cache();
  memory.reset_peak();
  const MemoryStats before = memory.stats();
  const auto profile = profile_layers(model, {2, kWidth}, {}, 1);
  EXPECT_EQ(profile[15].parameter_bytes, static_cast<std::int64_t>(kLayer));
  EXPECT_GT(memory.stats().peak_bytes - before.peak_bytes, 2 * kLayer) << "its weights and their gradients";
  EXPECT_LT(memory.stats().peak_bytes - before.peak_bytes, 4 * kLayer) << "and those of the next micro-batch";
  EXPECT_EQ(memory.stats().current_bytes, before.current_bytes);
  EXPECT_LE(memory.stats().reserved_bytes, before.reserved_bytes);
  EXPECT_TRUE(test::fails_with({"no memory"}, [&] { model.named_parameters(); }));
}

TEST(LayerProfile, MeasuresEveryLayer) {
  const auto model = make_model("convnet");
  const auto profile = profile_layers(*model, {4, 3, 32, 32}, {}, 3);
  ASSERT_EQ(profile.size(), static_cast<std::size_t>(model->size()));
  EXPECT_EQ(profile[0].backward_input, 0) << "nobody asks for the gradient of the images";
  EXPECT_GT(profile[0].backward_weight, 0);
  EXPECT_GT(profile[3].backward_input, 0);
  EXPECT_EQ(profile[0].output_bytes, 4 * 6 * 28 * 28 * 4);
  EXPECT_EQ(profile[0].parameter_bytes, (6 * 75 + 6) * 4);
  EXPECT_GE(profile[0].kept_bytes, profile[0].output_bytes);
  EXPECT_EQ(profile[1].parameter_bytes, 0);
  const std::int64_t gradients = profile[3].output_bytes + profile[2].output_bytes;
  EXPECT_GE(profile[3].workspace_bytes, gradients + profile[3].parameter_bytes) << "of output, input and weights";
  const auto copies = layers_from(to_bytes(profile));
  EXPECT_EQ(copies[3].workspace_bytes, profile[3].workspace_bytes);
  EXPECT_EQ(copies[3].parameter_bytes, profile[3].parameter_bytes);
  const Costs costs = costs_of_stages(profile, {3, 9}, Stage::Recompute::no);
  EXPECT_DOUBLE_EQ(costs.forward[0], profile[0].forward + profile[1].forward + profile[2].forward);
  EXPECT_EQ(costs.message.size(), 1U);
  const Costs twice = costs_of_stages(profile, {3, 9}, Stage::Recompute::yes);
  EXPECT_EQ(twice.forward, costs.forward);
  EXPECT_EQ(twice.backward_weight, costs.backward_weight);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    EXPECT_DOUBLE_EQ(twice.backward[stage], costs.backward[stage] + costs.forward[stage]);
    EXPECT_DOUBLE_EQ(twice.backward_input[stage], costs.backward_input[stage] + costs.forward[stage]);
  }
  EXPECT_DOUBLE_EQ(profile[3].seconds(Stage::Recompute::yes),
                   profile[3].seconds(Stage::Recompute::no) + profile[3].forward);
}

TEST(Split, SaysWhatEntersEachStage) {
  const auto shapes = shapes_entering(*make_model("convnet"), {3, 4, 5}, {1, 3, 32, 32});
  EXPECT_EQ(shapes, (std::vector<Shape>{{1, 3, 32, 32}, {1, 6, 14, 14}, {1, 400}}));
}

}  // namespace
}  // namespace stagecoach
