// What is spread over ranks, brought to rank 0 as if one device held it.

#include "parallel/pipeline/gather.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nn/models.h"
#include "nn/weights.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"
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

TEST(ActionLog, AveragesOverAllRanks) {
  const World world{.ranks = 2, .clock = ClockKind::virtual_time, .link = {.latency = 1, .bytes_per_second = 100}};
  launch(world, [](Rank& rank) {
    ActionLog log(rank.comm, 2);
    Clock& clock = rank.comm.clock();
    for (int i = 0; i < 2; ++i) {
      const ActionLog::Scope scope(log, {Operation::forward, rank.index, i});
      const double end = clock.now() + 0.01 * (1 + rank.index) * (1 + 2 * i);
      while (clock.now() < end) {
      }
      if (rank.index == 0) {
        rank.comm.send_number(0, 1, 7);
        log.note_message(0, 300);
      } else {
        rank.comm.receive_number(0, 7);  // a wait of a second, which is no work
      }
    }
    const Costs costs = log.mean_costs();
    EXPECT_NEAR(costs.forward[0], 0.02, 0.004);
    EXPECT_NEAR(costs.forward[1], 0.04, 0.004);
    EXPECT_EQ(costs.backward[0], 0);
    EXPECT_DOUBLE_EQ(costs.message[0], 4);
    log.clear();
    EXPECT_EQ(log.mean_costs().forward[0], 0);
  });
}

TEST(LayerProfile, MeasuresEveryLayer) {
  const auto model = model_on({});
  const auto profile = profile_layers(*model, test::random_tensor({4, 3, 32, 32}, "x", DType::float32), 3);
  ASSERT_EQ(profile.size(), static_cast<std::size_t>(model->size()));
  EXPECT_EQ(profile[0].backward_input, 0) << "nobody asks for the gradient of the pictures";
  EXPECT_GT(profile[0].backward_weight, 0);
  EXPECT_GT(profile[3].backward_input, 0);
  EXPECT_EQ(profile[0].output_bytes, 4 * 6 * 28 * 28 * 4);
  EXPECT_EQ(profile[0].parameter_bytes, (6 * 75 + 6) * 4);
  EXPECT_GE(profile[0].kept_bytes, profile[0].output_bytes);
  EXPECT_EQ(profile[1].parameter_bytes, 0);
  for (const auto& [name, parameter] : model->named_parameters()) {
    EXPECT_FALSE(parameter.grad().defined()) << name;
  }
  const Costs costs = costs_of_stages(profile, {3, 9});
  EXPECT_DOUBLE_EQ(costs.forward[0], profile[0].forward + profile[1].forward + profile[2].forward);
  EXPECT_EQ(costs.message.size(), 1U);
}

TEST(Split, SaysWhatEntersEachStage) {
  const auto model = model_on({});
  const auto shapes = shapes_entering(*model, {3, 4, 5}, {1, 3, 32, 32});
  EXPECT_EQ(shapes, (std::vector<Shape>{{1, 3, 32, 32}, {1, 6, 14, 14}, {1, 400}}));
  EXPECT_TRUE(model->is_training());
}

}  // namespace
}  // namespace stagecoach
