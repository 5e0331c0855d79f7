// Sharded data parallelism trains what one device trains, bit for bit, and sends what the formulas say.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "parallel/data_parallel/sync_batch_norm.h"
#include "parallel/wrappers/distributed_data_parallel.h"
#include "tests/parallel/sharded/sharded_task.h"
#include "tests/parallel/worlds.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::close;
using test::expect_parameters;
using test::expect_trained;
using test::Groups;
using test::one_group;
using test::same_bytes;
using test::ShardedTask;
using test::text_of;
using test::train_sharded;
using test::trained_on_one_device;
using test::unless_sanitized;

constexpr Sharded kAllSharded[] = {Sharded::optimizer, Sharded::gradients, Sharded::parameters};

std::vector<ShardedTask> tasks() {
  const ShardedTask convnet{"ConvnetSgd", test::convnet, 32, sgd({.learning_rate = 0.05, .momentum = 0.9})};
  const ShardedTask tied{"GptTied", test::tied_gpt, 0, adam({.learning_rate = 0.01}), tied_head()};
  // The first layers, as where only the end of a model is trained: no backward reaches them.
  const ShardedTask frozen{
      "VitFrozenBegin", test::small_vit, 16, adam({.learning_rate = 0.01}), {}, [](const std::string& name) {
        return !name.starts_with("patch_embed") && !name.starts_with("blocks.0");
      }};
  // Some within each layer, and all of one between others; of gpt, also the embedding that is tied.
  const auto within = [](const std::string& name) {
    return name.find("bias") == std::string::npos && name.find("wte") == std::string::npos &&
           name.find("lm_head") == std::string::npos && name.find(".h.1") == std::string::npos;
  };
  const AdamSettings decaying{.learning_rate = 0.01, .weight_decay = 0.1};
  const ShardedTask vit{"VitAdamw", test::small_vit, 16, [=](NamedTensors parameters) {
                          auto optimizer = adamw(decaying)(std::move(parameters));
                          optimizer->decay_weights_only();
                          return optimizer;
                        }};
  return unless_sanitized<std::vector<ShardedTask>>(
      {convnet,
       {"ConvnetAdam", test::convnet, 32, adam({.learning_rate = 0.01})},
       {"VitSgd", test::small_vit, 16, sgd({.learning_rate = 0.05, .momentum = 0.9})},
       vit,
       tied,
       {"GptTiedPartlyFrozen", test::tied_gpt, 0, adam({.learning_rate = 0.01}), tied_head(),
        [](const std::string& name) { return name.find(".h.0") == std::string::npos; }},
       {"GptFrozenWithin", test::tied_gpt, 0, adam({.learning_rate = 0.01}), tied_head(), within},
       frozen},
      {convnet, vit, tied, frozen});
}

class ShardedTraining : public ::testing::TestWithParam<ShardedTask> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedTraining, ::testing::ValuesIn(tasks()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ShardedTraining, EqualsOneDeviceForAllStages) {
  const ShardedTask& task = GetParam();
  for (const int ranks : unless_sanitized<std::vector<int>>({1, 2, 3, 4}, {3})) {
    if (!test::has_ranks(ranks)) {
      continue;
    }
    const NamedTensors wanted = trained_on_one_device(task, ranks, one_group(ranks));
    for (const Sharded shard : kAllSharded) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", text_of(shard), ranks));
      expect_trained(task, test::world_of(ranks), {.shard = shard}, wanted);
    }
  }
}

// The bytes do not depend on when weights are gathered and freed, nor on how the layers are grouped.
TEST_P(ShardedTraining, EqualsOneDeviceForAllSettings) {
  const ShardedTask& task = GetParam();
  constexpr int kRanks = 3;
  const NamedTensors wanted = trained_on_one_device(task, kRanks, one_group(kRanks));
  const int layers = task.make()->size();
  for (const ShardedSettings& settings : std::vector<ShardedSettings>{
           {.prefetch = 0},
           {.prefetch = 100},
           {.reshard_after_forward = false},
           {.reshard_after_forward = false, .prefetch = 0},
           {.unit_layers = {layers}},
           {.shard = Sharded::gradients, .unit_layers = {layers - 2, 2}},
       }) {
    SCOPED_TRACE(fmt::format("prefetch {}, reshard {}, {} given units", settings.prefetch,
                             settings.reshard_after_forward, settings.unit_layers.size()));
    expect_trained(task, {.ranks = kRanks}, settings, wanted);
  }
}

// Whole gradients: each rank adds those of its micro-batches, then the ranks' sums are added. Sharded: the ranks'
// gradients of a micro-batch are added first.
TEST_P(ShardedTraining, AccumulatesAsOneDeviceThatAddsInTheSameOrder) {
  const ShardedTask& task = GetParam();
  constexpr int kRanks = 2;
  constexpr int kMicrobatches = 3;
  const Groups of_ranks{{0, 1, 2}, {3, 4, 5}};
  const Groups of_microbatches{{0, 3}, {1, 4}, {2, 5}};
  for (const bool reshards : {true, false}) {
    for (const Sharded shard : kAllSharded) {
      for (const Accumulation accumulation : {Accumulation::whole, Accumulation::sharded}) {
        const bool is_whole = accumulation == Accumulation::whole;
        if (!is_whole && shard == Sharded::optimizer) {
          continue;
        }
        SCOPED_TRACE(fmt::format("{}, {} gradients", text_of(shard), is_whole ? "whole" : "sharded"));
        const NamedTensors wanted =
            trained_on_one_device(task, kRanks * kMicrobatches, is_whole ? of_ranks : of_microbatches);
        expect_trained(task, {.ranks = kRanks},
                       {.shard = shard, .reshard_after_forward = reshards, .accumulation = accumulation}, wanted,
                       kMicrobatches);
      }
    }
  }
}

TEST_P(ShardedTraining, EvaluatesWithTheTrainedWeights) {
  const ShardedTask& task = GetParam();
  constexpr int kRanks = 2;
  const auto model = task.make();
  model->materialize(ShardedTask::kSeed);
  const NamedTensors trained = trained_on_one_device(task, kRanks, one_group(kRanks));
  const NoGrad no_grad;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    Tensor parameter = model->named_parameters()[i].second;
    parameter.copy_from(trained[i].second);
  }
  const Tensor wanted = model->forward(task.images(0, 1, 0));
  for (const Sharded shard : kAllSharded) {
    launch({.ranks = kRanks}, [&](Rank& rank) {
      ShardedDataParallel sharded(*task.make(), rank.comm, task.with({.shard = shard}));
      const auto optimizer = task.optimizer(sharded.shards());
      train_sharded(task, sharded, *optimizer, rank);
      const NoGrad none_here;
      EXPECT_TRUE(same_bytes(sharded.forward(task.images(0, 1, 0).to(rank.device)), wanted)) << text_of(shard);
    });
  }
}

// The norm is that of one device, whose squares are added in blocks: shards end in the middle of some.
TEST_P(ShardedTraining, ClipsByTheNormOfAllShards) {
  ShardedTask task = GetParam();
  task.optimizer = [make = task.optimizer](NamedTensors parameters) {
    auto optimizer = make(std::move(parameters));
    optimizer->clip_norm(0.05);  // less than that of the first gradients
    return optimizer;
  };
  const NamedTensors unclipped = trained_on_one_device(GetParam(), 1, one_group(1));
  for (const int ranks : {1, 3, 4}) {
    const NamedTensors wanted = trained_on_one_device(task, ranks, one_group(ranks));
    EXPECT_FALSE(std::equal(wanted.begin(), wanted.end(), unclipped.begin(),
                            [](const auto& a, const auto& b) { return same_bytes(a.second, b.second); }));
    for (const Sharded shard : kAllSharded) {
      launch({.ranks = ranks}, [&](Rank& rank) {
        ShardedDataParallel sharded(*task.make(), rank.comm, task.with({.shard = shard}));
        const auto optimizer = task.optimizer(sharded.shards());
        sharded.sum_squares_for(*optimizer);
        train_sharded(task, sharded, *optimizer, rank);
        expect_parameters(wanted, sharded, task.tied.size());
      });
    }
  }
}

// Two copies of the weights, each cut over two ranks: the gradients are summed within the groups, and then over them.
TEST_P(ShardedTraining, EqualsOneDeviceWithTwoCopies) {
  STAGECOACH_NEEDS_RANKS(4);
  const ShardedTask& task = GetParam();
  const NamedTensors wanted = trained_on_one_device(task, 4, {{0, 1}, {2, 3}});
  for (const Sharded shard : kAllSharded) {
    SCOPED_TRACE(text_of(shard));
    expect_trained(task, test::world_of(4), {.shard = shard, .copies = 2}, wanted);
  }
}

// Between the groups, only the sums of shards are reduced.
TEST(ShardedTraffic, OfTwoCopiesStaysWithinTheGroupsExceptForShards) {
  const ShardedTask task{"Convnet", test::convnet, 32, sgd({})};
  launch({.ranks = 4}, [&](Rank& rank) {
    ShardedDataParallel sharded(*task.make(), rank.comm, {.reshard_after_forward = false, .copies = 2});
    double all = 0;
    sharded.for_each_unit([&](const NamedTensors& parameters) {
      std::int64_t count = 0;
      for (const auto& [name, parameter] : parameters) {
        count += parameter.numel();
      }
      all += static_cast<double>((count + 1) / 2 * 2) * sizeof(float);
    });
    const auto optimizer = task.optimizer(sharded.shards());
    auto before = rank.comm.bytes_sent();
    train_sharded(task, sharded, *optimizer, rank);
    auto after = rank.comm.bytes_sent();
    const int within = rank.index ^ 1;
    const int between = (rank.index + 2) % 4;
    EXPECT_DOUBLE_EQ((after[within] - before[within]) / ShardedTask::kSteps, 2 * all / 2);  // gather, reduce-scatter
    EXPECT_DOUBLE_EQ((after[between] - before[between]) / ShardedTask::kSteps, all / 2);    // 2 (1 / 2) of a shard
  });
}

/// A model that one device does not train in the same micro-batches, or that takes other inputs.
struct BesideDdp {
  const char* name;
  std::shared_ptr<Sequential> (*make)();
  Tensor (*inputs)(int rank, int step);
  std::int64_t labels;  // per rank
  std::int64_t classes;
};
void PrintTo(const BesideDdp& model, std::ostream* out) { *out << model.name; }

const BesideDdp kBesideDdp[] = {
    {"Resnet18", [] { return make_model("resnet18", {.image_size = 8}); },
     [](int rank, int step) {
       return test::random_tensor({2, 3, 8, 8}, fmt::format("images {} {}", rank, step), DType::float32);
     },
     2, 10},
    {"Gpt",
     [] { return make_model("gpt", {.classes = 256, .sizes = {.depth = 2, .width = 16, .heads = 2, .context = 6}}); },
     [](int rank, int step) {
       return test::random_labels(12, 200 + 10 * rank + step).reshape({2, 6});
     },
     12, 256}};

class ShardedBesideDdp : public ::testing::TestWithParam<BesideDdp> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedBesideDdp, ::testing::ValuesIn(kBesideDdp),
                         [](const auto& test) { return std::string(test.param.name); });

/// Trains as one rank for two steps, by a wrapper of either kind.
template <class Wrapper>
void train_beside(const BesideDdp& model, Wrapper& wrapper, NamedTensors parameters, Rank& rank) {
  Adam optimizer(std::move(parameters), {.learning_rate = 0.01});
  for (int step = 0; step < 2; ++step) {
    const Tensor logits = wrapper.forward(model.inputs(rank.index, step).to(rank.device));
    const Tensor labels = test::random_labels(model.labels, model.classes, rank.device);
    const Tensor rows = logits.reshape({model.labels, model.classes});  // of gpt: one per token
    wrapper.backward(cross_entropy(rows, labels, Reduction::sum), model.labels * rank.world);
    optimizer.step();
    optimizer.zero_grad();
  }
}

// With batch norm over the whole batch.
TEST_P(ShardedBesideDdp, TrainsTheSameBytes) {
  const BesideDdp& model = GetParam();
  for (const int ranks : unless_sanitized<std::vector<int>>({2, 8}, {2})) {
    NamedTensors wanted;
    launch({.ranks = ranks}, [&](Rank& rank) {
      const auto whole = model.make();
      whole->materialize(ShardedTask::kSeed, rank.device);
      synchronise_batch_norm(*whole, rank.comm);
      DistributedDataParallel ddp(*whole, rank.comm);
      train_beside(model, ddp, whole->named_parameters(), rank);
      for (const auto& [name, parameter] : rank.index == 0 ? whole->named_parameters() : NamedTensors{}) {
        wanted.emplace_back(name, parameter.to(Device{}).clone());
      }
    });
    for (const Sharded shard : kAllSharded) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", text_of(shard), ranks));
      launch({.ranks = ranks}, [&](Rank& rank) {
        const auto cut = model.make();
        synchronise_batch_norm(*cut, rank.comm);
        ShardedDataParallel sharded(*cut, rank.comm, {.shard = shard, .seed = ShardedTask::kSeed});
        train_beside(model, sharded, sharded.shards(), rank);
        expect_parameters(wanted, sharded);
      });
    }
  }
}

/// What a setting sends per step, in units of (n - 1) / n times the bytes of the padded weights: `steps` times those of
/// all units, without `last` times those of the last unit, whose weights stay for the backward.
struct Traffic {
  ShardedSettings settings;
  int microbatches;
  double all;
  double last;
};

TEST(ShardedTraffic, IsThatOfTheFormulas) {
  const ShardedTask task{"Convnet", test::convnet, 32, sgd({})};
  const Traffic traffics[] = {
      {{.shard = Sharded::optimizer}, 1, 2, 0},
      {{.shard = Sharded::gradients}, 1, 2, 0},
      {{.shard = Sharded::parameters}, 1, 3, 1},
      {{.shard = Sharded::parameters, .reshard_after_forward = false}, 1, 2, 0},
      // Three micro-batches: gathers for each where weights are freed, reductions for each where gradients are cut.
      {{.shard = Sharded::gradients}, 3, 2, 0},
      {{.shard = Sharded::gradients, .accumulation = Accumulation::sharded}, 3, 4, 0},
      {{.shard = Sharded::parameters}, 3, 7, 3},
      {{.shard = Sharded::parameters, .accumulation = Accumulation::sharded}, 3, 9, 3},
      {{.shard = Sharded::parameters, .reshard_after_forward = false}, 3, 2, 0},
  };
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Traffic& traffic : traffics) {
      SCOPED_TRACE(
          fmt::format("{}, {} ranks, {} micro-batches", text_of(traffic.settings.shard), ranks, traffic.microbatches));
      launch({.ranks = ranks}, [&](Rank& rank) {
        ShardedDataParallel sharded(*task.make(), rank.comm, traffic.settings);
        double all = 0;
        double last = 0;
        sharded.for_each_unit([&](const NamedTensors& parameters) {
          std::int64_t count = 0;
          for (const auto& [name, parameter] : parameters) {
            count += parameter.numel();
          }
          last = static_cast<double>((count + ranks - 1) / ranks * ranks) * sizeof(float);
          all += last;
        });
        const auto optimizer = task.optimizer(sharded.shards());
        train_sharded(task, sharded, *optimizer, rank, traffic.microbatches);  // from here on the weights are cut
        const int next = (rank.index + 1) % ranks;
        const double before = rank.comm.bytes_sent()[next];
        train_sharded(task, sharded, *optimizer, rank, traffic.microbatches);
        const double sent = rank.comm.bytes_sent()[next] - before;
        EXPECT_DOUBLE_EQ(sent / ShardedTask::kSteps, (traffic.all * all - traffic.last * last) * (ranks - 1) / ranks);
      });
    }
  }
}

// A backward ends at the first unit that trains something: those before it are gathered for the forward only.
TEST(ShardedTraffic, OfFrozenWeightsIsTheirGathers) {
  ShardedTask task{"Convnet", test::convnet, 32, adam({})};
  task.trains = [](const std::string& name) { return name.starts_with("fc"); };
  constexpr int kRanks = 2;
  struct Case {
    ShardedSettings settings;
    double frozen;
    double trained;
    double last;  // the last unit's weights stay for the backward
  };
  for (const Case& of : {Case{{.shard = Sharded::optimizer}, 0, 2, 0}, Case{{.shard = Sharded::gradients}, 0, 2, 0},
                         Case{{}, 1, 3, 1}, Case{{.reshard_after_forward = false}, 1, 2, 0}}) {
    SCOPED_TRACE(text_of(of.settings.shard));
    launch({.ranks = kRanks}, [&](Rank& rank) {
      ShardedDataParallel sharded(*task.make(), rank.comm, task.with(of.settings));
      double frozen = 0;
      double trained = 0;
      double last = 0;
      sharded.for_each_unit([&](const NamedTensors& parameters) {
        std::int64_t count = 0;
        for (const auto& [name, parameter] : parameters) {
          EXPECT_EQ(parameter.requires_grad(), task.trains(name)) << name;
          count += parameter.numel();
        }
        last = static_cast<double>((count + kRanks - 1) / kRanks * kRanks) * sizeof(float);
        (task.trains(parameters.front().first) ? trained : frozen) += last;
      });
      const auto optimizer = task.optimizer(sharded.shards());
      for (const auto& [name, state] : optimizer->state()) {
        EXPECT_TRUE(name.starts_with("fc") || name == "steps_done") << name;
      }
      train_sharded(task, sharded, *optimizer, rank);
      const double before = rank.comm.bytes_sent()[1 - rank.index];
      train_sharded(task, sharded, *optimizer, rank);
      const double sent = rank.comm.bytes_sent()[1 - rank.index] - before;
      EXPECT_DOUBLE_EQ(sent / ShardedTask::kSteps, (of.frozen * frozen + of.trained * trained - of.last * last) / 2);
    });
  }
}

}  // namespace
}  // namespace stagecoach
