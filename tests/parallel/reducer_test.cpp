// Gradients summed bucket by bucket during the backward: the oracle is one device that runs the ranks' shards one after
// the other and adds up their gradients, bit for bit.

#include "parallel/data_parallel/reducer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/training_record.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::copies;
using test::equal;
using test::expect_equal;
using test::fails_with;
using test::kSteps;
using test::note;
using test::random_tensor;
using test::Record;

constexpr std::int64_t kUnevenBatch = 13;  // uneven shards on most worlds; the batch after it has five images
constexpr std::size_t kEverything = std::numeric_limits<std::size_t>::max();

/// A batch of `count` images [count, 3, 8, 8] with labels.
struct Images {
  Images(int step, std::int64_t count, Device device)
      : images(random_tensor({count, 3, 8, 8}, fmt::format("images {}", step), DType::float32, device)) {
    std::vector<std::int32_t> classes;
    for (std::int64_t i = 0; i < count; ++i) {
      classes.push_back(static_cast<std::int32_t>((i * 7 + step) % 10));
    }
    labels = Tensor::from(classes, {count}, device);
  }
  Tensor images;
  Tensor labels;
};

std::int64_t batch_of(int step) { return step == kSteps - 1 ? 5 : kUnevenBatch; }

/// Gives the shard's part of the whole batch's mean loss, and adds its gradient: each sample's share is one in `all`.
double run_backward(Module& model, const Images& batch, const Share& share, std::int64_t all) {
  const Tensor logits = model.forward(batch.images.narrow(share.first, share.count));
  const Tensor loss = cross_entropy(logits, batch.labels.narrow(share.first, share.count), Reduction::sum);
  backward(loss, Tensor::full({}, 1.0 / static_cast<double>(all), DType::float32, loss.device()));
  return loss.item() / static_cast<double>(all);
}

/// Layers of many sizes: 75 KB and 80 KB in two of them.
std::shared_ptr<Sequential> make_layers(Device device) {
  auto model = std::make_shared<Sequential>();
  model
      ->add("conv", std::make_shared<Conv2d>(3, 4, 3))  // [N, 4, 6, 6]
      .add("pool", std::make_shared<MaxPool2d>(2))      // [N, 4, 3, 3]
      .add("flatten", std::make_shared<Flatten>())      // [N, 36]
      .add("fc1", std::make_shared<Linear>(36, 500))
      .add("relu1", std::make_shared<ReLU>())
      .add("fc2", std::make_shared<Linear>(500, 40))
      .add("relu2", std::make_shared<ReLU>())
      .add("fc3", std::make_shared<Linear>(40, 10));
  model->materialize(7, device);
  return model;
}

double norm(const NamedTensors& tensors) {
  double sum = 0;
  for (const auto& [name, tensor] : tensors) {
    sum += sum_of_squares(tensor);
  }
  return std::sqrt(sum);
}

/// One device, the batch in `shards` parts.
Record train_on_one_device(int shards) {
  const auto model = make_layers({});
  const auto optimizer = make_optimizer(OptimizerKind::sgd, model->named_parameters(), 0.1, 0.9);
  Record record;
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t all = batch_of(step);
    const Images batch(step, all, {});
    for (int r = 0; r < shards; ++r) {
      if (const Share share = share_of(all, r, shards); share.count > 0) {
        record.losses[static_cast<std::size_t>(step)] += run_backward(*model, batch, share, all);
      }
    }
    note(record, *optimizer);
  }
  return record;
}

Record train_on_ranks(int world, const BucketCaps& caps) {
  std::vector<Record> records(static_cast<std::size_t>(world));
  launch({.ranks = world}, [&](Rank& rank) {
    const auto model = make_layers(rank.device);
    const auto optimizer = make_optimizer(OptimizerKind::sgd, model->named_parameters(), 0.1, 0.9);
    Reducer reducer(model->named_parameters(), rank.comm, {.caps = caps});
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t all = batch_of(step);
      const Share share = share_of(all, rank.index, rank.world);
      if (share.count > 0) {
        reducer.begin(Reducer::Sync::yes);
        records[static_cast<std::size_t>(rank.index)].losses[static_cast<std::size_t>(step)] =
            run_backward(*model, Images(step, all, rank.device), share, all);
      } else {
        reducer.begin(Reducer::Sync::no);
        reducer.reduce_accumulated(model->named_parameters());  // of nothing
      }
      reducer.finish();
      note(records[static_cast<std::size_t>(rank.index)], *optimizer);
    }
    EXPECT_EQ(reducer.is_rebuilt(), true);
  });
  for (int r = 1; r < world; ++r) {
    const Record& record = records[static_cast<std::size_t>(r)];
    expect_equal(record, records[0]);
    std::transform(record.losses.begin(), record.losses.end(), records[0].losses.begin(), records[0].losses.begin(),
                   std::plus<>());
  }
  return records[0];
}

class ReducerRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(World, ReducerRanks, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(ReducerRanks, EqualOneDeviceThatAddsUpTheShards) {
  const Record wanted = train_on_one_device(GetParam());
  for (const std::size_t cap : {std::size_t{1}, std::size_t{64} << 10, std::size_t{25} << 20, kEverything}) {
    SCOPED_TRACE(cap);
    expect_equal(train_on_ranks(GetParam(), {cap, cap}), wanted);
  }
}

TEST_P(ReducerRanks, AreCloseToOneDeviceOnTheWholeBatch) {
  const Record whole = train_on_one_device(1);
  const Record shared = train_on_ranks(GetParam(), {});
  for (int step = 0; step < kSteps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    EXPECT_NEAR(shared.losses[at] / whole.losses[at], 1, 1e-5) << "step " << step;
    EXPECT_NEAR(norm(shared.gradients[at]) / norm(whole.gradients[at]), 1, 1e-5) << "step " << step;
    EXPECT_NEAR(norm(shared.weights[at]) / norm(whole.weights[at]), 1, 1e-5) << "step " << step;
  }
}

TEST(Reducer, LaunchesFullBucketsInTheirOrder) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = make_layers(rank.device);
    std::vector<std::string> order;
    Reducer reducer(model->named_parameters(), rank.comm,
                    {.caps = {1, 1}, .reduce = [&](Bucket& bucket, Communicator& comm) {
                       order.push_back(bucket.names.front());
                       comm.all_reduce(bucket.flat);
                     }});
    ASSERT_EQ(reducer.buckets().size(), 8U);
    EXPECT_EQ(reducer.buckets().front().names.front(), "fc3.bias");
    for (int step = 0; step < 2; ++step) {
      order.clear();
      std::vector<std::string> wanted;
      reducer.begin(Reducer::Sync::yes);
      for (const Bucket& bucket : reducer.buckets()) {
        wanted.push_back(bucket.names.front());
      }
      run_backward(*model, Images(step, 4, rank.device), {0, 4}, 8);
      reducer.finish();
      EXPECT_EQ(order, wanted);
      for (auto [name, parameter] : model->named_parameters()) {
        parameter.zero_grad();
      }
    }
    // Autograd gives a layer's weight before its bias; the guess was the other way round.
    EXPECT_EQ(reducer.buckets().front().names.front(), "fc3.weight");
  });
}

// A pipeline's rank reduces the gradients of one stage while those of another still change.
TEST(Reducer, GradientsThatAreReducedApartShareNoBucket) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = make_layers(rank.device);
    NamedTensors first;
    NamedTensors second;
    for (const auto& named : model->named_parameters()) {
      (named.first.starts_with("fc3") ? second : first).push_back(named);
    }
    Reducer reducer(model->named_parameters(), rank.comm);
    EXPECT_EQ(reducer.buckets().size(), 1U);
    for (int step = 0; step < 2; ++step) {
      reducer.begin(Reducer::Sync::no);
      run_backward(*model, Images(step, 4, rank.device), {0, 4}, 8);
      reducer.reduce_accumulated(first);
      reducer.reduce_accumulated(second);
      reducer.finish();
      for (auto [name, parameter] : model->named_parameters()) {
        parameter.zero_grad();
      }
    }
    ASSERT_EQ(reducer.buckets().size(), 2U);
    EXPECT_EQ(reducer.buckets()[0].names.size(), first.size()) << "they are reduced first";
    EXPECT_EQ(reducer.buckets()[1].names, (std::vector<std::string>{"fc3.weight", "fc3.bias"}));
  });
}

TEST(Reducer, MovesGradientsThatWereThereBeforeIt) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = make_layers(rank.device);
    run_backward(*model, Images(0, 4, rank.device), {0, 4}, 8);
    const auto gradients = [&] { return copies(model->named_parameters(), [](const Tensor& p) { return p.grad(); }); };
    const NamedTensors before = gradients();
    const Reducer reducer(model->named_parameters(), rank.comm, {.caps = {2000, 2000}});
    EXPECT_TRUE(equal(before, gradients()));
    for (const Bucket& bucket : reducer.buckets()) {
      Tensor(bucket.flat).fill(0);  // the gradients are views of it
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      EXPECT_EQ(sum_of_squares(parameter.grad()), 0) << name;
    }
  });
}

// A rank whose part of the batch is smaller may have fewer micro-batches. All rebuild at the same place all the same.
TEST(Reducer, RebuildsBetweenStepsHoweverManyMicroBatchesARankHas) {
  const auto one = make_layers(Device{});
  for (const Share& share : {Share{0, 2}, Share{2, 2}, Share{4, 4}}) {
    run_backward(*one, Images(0, 8, Device{}), share, 8);
  }
  const auto gradients = [](const Module& model) {
    return copies(model.named_parameters(), [](const Tensor& p) { return p.grad(); });
  };
  const NamedTensors wanted = gradients(*one);
  launch({.ranks = 2}, [&](Rank& rank) {
    const auto model = make_layers(rank.device);
    Reducer reducer(model->named_parameters(), rank.comm, {.caps = {2000, 2000}});
    const std::vector<Share> shares = rank.index == 0 ? std::vector<Share>{{0, 2}, {2, 2}} : std::vector<Share>{{4, 4}};
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < shares.size(); ++i) {
        reducer.begin(i + 1 == shares.size() ? Reducer::Sync::yes : Reducer::Sync::no);
        EXPECT_EQ(reducer.is_rebuilt(), step > 0);
        run_backward(*model, Images(0, 8, rank.device), shares[i], 8);
      }
      reducer.finish();
      EXPECT_TRUE(equal(gradients(*model), wanted)) << "step " << step;
      for (auto [name, parameter] : model->named_parameters()) {
        parameter.zero_grad();
      }
    }
  });
}

TEST(Reducer, RefusesOtherModelsAndForgottenCalls) {
  EXPECT_TRUE(fails_with<Error>({"rank 0 has 'a' float32[2], rank 1 has 'a' float32[3]"}, [] {
    launch({.ranks = 2}, [](Rank& rank) {
      Tensor a = Tensor::zeros({2 + rank.index}, DType::float32, rank.device).set_requires_grad(true);
      Reducer reducer({{"a", a}}, rank.comm);
    });
  }));
  const auto run = [](const std::function<void(Reducer&, const Tensor& loss)>& body) {
    launch({.ranks = 1}, [&](Rank& rank) {
      Tensor a = Tensor::zeros({2}, DType::float32, rank.device).set_requires_grad(true);
      Reducer reducer({{"a", a}}, rank.comm);
      body(reducer, mean_squared_error(a, Tensor::full({2}, 1, DType::float32, rank.device)));
    });
  };
  EXPECT_TRUE(fails_with<Error>({"a backward ran before begin()"},
                                [&] { run([](Reducer&, const Tensor& loss) { backward(loss); }); }));
  EXPECT_TRUE(fails_with<Error>({"'a'", "zero_grad()"}, [&] {
    run([](Reducer& reducer, const Tensor& loss) {
      reducer.begin(Reducer::Sync::yes);
      backward(loss);
      reducer.finish();
      reducer.begin(Reducer::Sync::yes);
    });
  }));
  EXPECT_TRUE(fails_with<Error>({"one gradient of 'a' per step", "Sync::no"}, [&] {
    run([](Reducer& reducer, const Tensor& loss) {
      reducer.begin(Reducer::Sync::yes);
      backward(loss, {}, RetainGraph::yes);
      backward(loss, {}, RetainGraph::yes);
    });
  }));
}

/// It meets the others one step behind, and comes to the end first.
TEST(Reducer, ARankThatSkipsAStepEndsAll) {
  EXPECT_TRUE(fails_with<CommError>({"no answer within 0.3 s", "still missing: rank"}, [] {
    launch({.ranks = 2, .timeout = 0.3}, [](Rank& rank) {
      Tensor a = Tensor::zeros({2}, DType::float32, rank.device).set_requires_grad(true);
      Reducer reducer({{"a", a}}, rank.comm);
      for (int step = 0; step < 3; ++step) {
        if (rank.index == 1 && step == 1) {
          continue;
        }
        reducer.begin(Reducer::Sync::yes);
        backward(mean_squared_error(a, Tensor::full({2}, 1, DType::float32, rank.device)));
        reducer.finish();
        a.zero_grad();
      }
      rank.comm.barrier();
    });
  }));
}

}  // namespace
}  // namespace stagecoach
