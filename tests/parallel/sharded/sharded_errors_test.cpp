// What sharded data parallelism refuses.
#include <gtest/gtest.h>

#include "nn/layers.h"
#include "tests/parallel/sharded/sharded_task.h"
#include "tests/parallel/small_model.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::small_model;

Tensor points(const Rank& rank) { return test::random_tensor({4, 4}, "points", DType::float32, rank.device); }

Tensor loss_of(ShardedDataParallel& sharded, Rank& rank) {
  return cross_entropy(sharded.forward(points(rank)), test::random_labels(4, 3, rank.device), Reduction::sum);
}

TEST(ShardedDataParallel, RefusesSettingsThatDoNotFit) {
  const auto refuses = [](const ShardedSettings& settings, const char* text) {
    EXPECT_TRUE(fails_with<UsageError>({text}, [&] {
      launch({.ranks = 1}, [&](Rank& rank) { ShardedDataParallel(*small_model(), rank.comm, settings); });
    }));
  };
  refuses({.prefetch = -1}, "`prefetch` of 0 or more units, got -1");
  refuses({.copies = 2}, "copies of the weights that 1 ranks can share evenly, got 2");
  refuses({.shard = Sharded::optimizer, .accumulation = Accumulation::sharded}, "needs sharded gradients");
  const char* of_two = "expected `unit_layers` of 2 layers in all, each unit with parameters, got '";
  refuses({.unit_layers = {1}}, of_two);
  refuses({.unit_layers = {1, 2}}, of_two);
  refuses({.unit_layers = {2, 0}}, of_two);
  refuses({.unit_layers = {-1, 3}}, of_two);
}

TEST(ShardedDataParallel, RefusesAModelThatAlreadyHasWeights) {
  EXPECT_TRUE(fails_with<Error>({"already has memory"}, [] {
    launch({.ranks = 1}, [](Rank& rank) {
      const auto model = small_model();
      model->materialize(1, rank.device);
      ShardedDataParallel(*model, rank.comm);
    });
  }));
}

TEST(ShardedDataParallel, NamesTheLayerInWhichTheRanksDiffer) {
  EXPECT_TRUE(fails_with<Error>({"ranks train different models", "fc3.weight"}, [] {
    launch({.ranks = 2}, [](Rank& rank) {
      const auto model = small_model();
      if (rank.index == 1) {
        model->add("fc3", std::make_shared<Linear>(3, 3));
      }
      ShardedDataParallel(*model, rank.comm);
    });
  }));
}

// Not by a hang, nor by a mistake of shapes later on.
TEST(ShardedDataParallel, NamesTheSettingInWhichTheRanksDiffer) {
  const auto refuses = [](const ShardedSettings& of_rank_1, const char* theirs, const char* ours) {
    EXPECT_TRUE(fails_with<Error>({"ranks train different models", "rank 0 has ", ours, "rank 1 has ", theirs}, [&] {
      launch({.ranks = 2, .timeout = 60}, [&](Rank& rank) {
        const auto model = small_model();
        ShardedDataParallel(*model, rank.comm, rank.index == 1 ? of_rank_1 : ShardedSettings{});
      });
    }));
  };
  refuses({.unit_layers = {2}}, "unit_layers 2", "unit_layers 1,1");
  refuses({.shard = Sharded::gradients}, "shard gradients", "shard parameters");
  refuses({.reshard_after_forward = false}, "reshard_after_forward false", "reshard_after_forward true");
  refuses({.prefetch = 2}, "prefetch 2", "prefetch 1");
  refuses({.accumulation = Accumulation::sharded}, "accumulation sharded", "accumulation whole");
  refuses({.compress = CompressionKind::half}, "compress half", "compress none");
  refuses({.copies = 2}, "copies 2", "copies 1");
  refuses({.seed = 7}, "seed 7", "seed 0");
  refuses({.trains = [](const std::string& name) { return name != "fc1.bias"; }}, "'fc1.bias' [8] frozen",
          "'fc1.bias' [8]");
}

TEST(ShardedDataParallel, RefusesTiedParametersThatDoNotFit) {
  const auto refuses = [](const ShardedSettings& settings, const char* text) {
    EXPECT_TRUE(fails_with<UsageError>({text}, [&] {
      launch({.ranks = 1}, [&](Rank& rank) { ShardedDataParallel(*test::tied_gpt(), rank.comm, settings); });
    }));
  };
  const std::string wte = "transformer.wte.weight";
  const std::string head = "lm_head.weight";
  refuses({.tied = {{wte, "none"}}}, "got 'transformer.wte.weight' and 'none'; parameter_shapes() lists them");
  refuses({.tied = {{wte, "transformer.wpe.weight"}}}, "two parameters of one shape");
  refuses({.tied = {{wte, wte}}}, "no copy of a copy");
  refuses({.tied = {{wte, head}}, .trains = [&](const std::string& name) { return name != head; }}, "both trained");
  refuses({.unit_layers = {5, 1}, .tied = {{wte, head}}}, "and a tied copy no unit of its own");
}

TEST(ShardedDataParallel, SaysThatWeightsAreThereOnlyWhileTheyAreUsed) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = small_model();
    const ShardedDataParallel sharded(*model, rank.comm);
    EXPECT_TRUE(fails_with<Error>({"its memory is dropped"}, [&] { model->forward(points(rank)); }));
  });
}

TEST(ShardedDataParallel, SaysThatGradientsWereNotCleared) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = small_model();
    ShardedDataParallel sharded(*model, rank.comm);
    sharded.backward(loss_of(sharded, rank), 8);
    EXPECT_TRUE(fails_with<Error>({"still has the last step's gradient"}, [&] { loss_of(sharded, rank); }));
  });
}

TEST(ShardedDataParallel, RefusesTheGraphOfAForwardBeforeTheUpdate) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = small_model();
    ShardedDataParallel sharded(*model, rank.comm);
    Sgd optimizer(sharded.shards());
    const Tensor early = loss_of(sharded, rank);
    sharded.backward(loss_of(sharded, rank), 8);
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_TRUE(fails_with<Error>({"was modified after the forward"}, [&] { sharded.backward(early, 8); }));
    EXPECT_TRUE(fails_with<Error>({"an earlier backward failed"}, [&] { sharded.backward(early, 8); }));
  });
}

TEST(ShardedDataParallel, RefusesAnotherBackward) {
  launch({.ranks = 1}, [](Rank& rank) {
    const auto model = small_model();
    ShardedDataParallel sharded(*model, rank.comm);
    const Tensor loss = loss_of(sharded, rank);
    EXPECT_TRUE(fails_with<Error>({"expected a backward by backward() or accumulate()"}, [&] { backward(loss); }));
  });
}

/// Does not use its weight.
class Unused final : public Module {
 public:
  Unused() { add_parameter("weight", {3}, Init::constant(1)); }
  Tensor forward(const Tensor& x) override { return x; }
  Shape output_shape(const Shape& input) const override { return input; }
};

TEST(ShardedDataParallel, NamesAParameterWithoutAGradient) {
  EXPECT_TRUE(fails_with<Error>({"got none for 'unused.weight'"}, [] {
    launch({.ranks = 2}, [](Rank& rank) {
      const auto model = small_model();
      model->add("unused", std::make_shared<Unused>());
      ShardedDataParallel sharded(*model, rank.comm);
      sharded.backward(loss_of(sharded, rank), 8);
    });
  }));
}

// A rank that fails ends the wait of the others for its part of the weights.
TEST(ShardedDataParallel, EndsWhenAnotherRankFails) {
  EXPECT_TRUE(fails_with<Error>({"the disk is on fire"}, [] {
    launch({.ranks = 2, .timeout = 60}, [](Rank& rank) {
      const auto model = small_model();
      ShardedDataParallel sharded(*model, rank.comm);
      if (rank.index == 1) {
        throw Error("the disk is on fire");
      }
      loss_of(sharded, rank);
    });
  }));
}

}  // namespace
}  // namespace stagecoach
