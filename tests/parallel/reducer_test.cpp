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
#include "parallel/data_parallel/same_model.h"
#include "parallel/launch.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;

constexpr int kSteps = 5;
constexpr std::int64_t kBatch = 13;  // uneven shards on most worlds; the batch after it has five pictures
constexpr std::size_t kEverything = std::numeric_limits<std::size_t>::max();

/// A batch of `count` pictures [count, 3, 8, 8] with labels.
struct Pictures {
  Pictures(int step, std::int64_t count, Device device)
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

std::int64_t batch_of(int step) { return step == kSteps - 1 ? 5 : kBatch; }

/// Gives the shard's part of the whole batch's mean loss, and adds its gradient: each sample's share is one in `all`.
double run_backward(Module& model, const Pictures& batch, const Share& share, std::int64_t all) {
  const Tensor scores = model.forward(batch.images.narrow(share.first, share.count));
  const Tensor loss = cross_entropy(scores, batch.labels.narrow(share.first, share.count), Reduction::sum);
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

/// What a training leaves behind, step by step.
struct Record {
  std::vector<NamedTensors> gradients;
  std::vector<NamedTensors> weights;
  std::vector<double> losses = std::vector<double>(kSteps);
};

NamedTensors copies(const NamedTensors& tensors, const std::function<Tensor(const Tensor&)>& what) {
  NamedTensors all;
  for (const auto& [name, tensor] : tensors) {
    const Tensor one = what(tensor);
    all.emplace_back(name, one.defined() ? one.to(Device{}).clone() : one);
  }
  return all;
}

void note(Record& record, Optimizer& optimizer) {
  record.gradients.push_back(copies(optimizer.parameters(), [](const Tensor& p) { return p.grad(); }));
  optimizer.step();
  optimizer.zero_grad();
  record.weights.push_back(copies(optimizer.parameters(), [](const Tensor& p) { return p; }));
}

bool equal(const NamedTensors& a, const NamedTensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].second.defined() != b[i].second.defined() ||
        (a[i].second.defined() && !same_bytes(a[i].second, b[i].second))) {
      ADD_FAILURE() << "'" << a[i].first << "' differs";
      return false;
    }
  }
  return a.size() == b.size();
}

void expect_equal(const Record& a, const Record& b) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (std::size_t step = 0; step < a.weights.size(); ++step) {
    EXPECT_TRUE(equal(a.gradients[step], b.gradients[step])) << "gradients of step " << step;
    EXPECT_TRUE(equal(a.weights[step], b.weights[step])) << "weights after step " << step;
  }
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
  const auto optimizer = make_optimizer("sgd", model->named_parameters(), 0.1, 0.9);
  Record record;
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t all = batch_of(step);
    const Pictures batch(step, all, {});
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
    const auto optimizer = make_optimizer("sgd", model->named_parameters(), 0.1, 0.9);
    Reducer reducer(model->named_parameters(), rank.comm, {.caps = caps});
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t all = batch_of(step);
      const Share share = share_of(all, rank.index, rank.world);
      if (share.count > 0) {
        reducer.begin(Reducer::Sync::yes);
        records[static_cast<std::size_t>(rank.index)].losses[static_cast<std::size_t>(step)] =
            run_backward(*model, Pictures(step, all, rank.device), share, all);
      } else {
        reducer.reduce_accumulated();  // of nothing
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
      run_backward(*model, Pictures(step, 4, rank.device), {0, 4}, 8);
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

/// Three branches behind a common layer; which of them run is chosen before each forward. `a` and `b` may share their
/// weights.
class Branches final : public Module {
 public:
  explicit Branches(bool tied) {
    add_child("trunk", trunk_);
    add_child("a", a_);
    b_ = tied ? a_ : std::make_shared<Linear>(6, 6);
    add_child("b", b_);
    add_child("c", c_);
    add_child("head", head_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = trunk_->forward(x);
    if (use.find('a') != std::string::npos) {
      y = add(y, a_->forward(y));
    }
    if (use.find('b') != std::string::npos) {
      y = add(y, b_->forward(relu(y)));
    }
    if (use.find('c') != std::string::npos) {
      y = add(y, c_->forward(y));
    }
    return head_->forward(y);
  }
  std::string use = "abc";

 private:
  std::shared_ptr<Module> trunk_ = std::make_shared<Linear>(5, 6);
  std::shared_ptr<Module> a_ = std::make_shared<Linear>(6, 6);
  std::shared_ptr<Module> b_;
  std::shared_ptr<Module> c_ = std::make_shared<Linear>(6, 6);
  std::shared_ptr<Module> head_ = std::make_shared<Linear>(6, 3);
};

/// For gtest, which would show the bytes.
struct Special;
void PrintTo(const Special& special, std::ostream* out);

/// A training with something special about it: `backwards` a step, and what is set before each.
struct Special {
  const char* name;
  bool tied = false;
  bool find_unused = false;
  int backwards = 1;
  BucketCaps caps = {1, 1};
  /// The branches that a rank uses in a step's backward.
  std::string (*use)(int rank, int step, int backward) = [](int, int, int) { return std::string("abc"); };
  /// Whether a rank trains the parameter.
  bool (*trains)(int rank, const std::string& parameter) = [](int, const std::string&) { return true; };
};

void PrintTo(const Special& special, std::ostream* out) { *out << special.name; }

constexpr int kWorld = 3;

std::string different_branches(int rank, int step, int) {
  constexpr const char* kUses[] = {"a", "b", "ab", ""};  // nobody uses c
  return kUses[(rank + step) % 4];
}

const Special kSpecials[] = {
    {.name = "OtherBranchesOnEachRank", .find_unused = true, .use = different_branches},
    {.name = "OtherBranchesInOneBucket",
     .find_unused = true,
     .caps = {kEverything, kEverything},
     .use = different_branches},
    {.name = "TiedWeights", .tied = true},
    {.name = "TiedWeightsOfWhichOneIsUsed", .tied = true, .find_unused = true, .use = different_branches},
    {.name = "AFrozenHalf", .trains = [](int, const std::string& name) { return name[0] == 'b' || name[0] == 'h'; }},
    {.name = "OtherHalvesFrozenOnEachRank",
     .trains = [](int rank, const std::string& name) { return (name.back() + rank) % 2 == 0 || name[0] == 'h'; }},
    {.name = "Accumulation", .backwards = 3},
    {.name = "AccumulationInLargeBuckets", .backwards = 3, .caps = {100, 400}},
    {.name = "AccumulationOverOtherBranches",
     .find_unused = true,
     .backwards = 2,
     .use = [](int rank, int step, int backward) { return different_branches(rank, step + backward, 0); }},
};

/// The loss of one backward: a rank has four samples of twelve in each.
void run_special(Branches& model, const Special& special, int rank, int step, int part,
                 const std::function<void(const Tensor& loss)>& before_backward, Device device) {
  model.use = special.use(rank, step, part);
  const Tensor x = random_tensor({4, 5}, fmt::format("x {} {} {}", rank, step, part), DType::float32, device);
  const Tensor target = random_tensor({4, 3}, fmt::format("y {} {} {}", rank, step, part), DType::float32, device);
  const Tensor loss = mean_squared_error(model.forward(x), target, Reduction::sum);
  before_backward(loss);
  backward(loss, Tensor::full({}, 1.0 / (12 * special.backwards), DType::float32, device));
}

void freeze(const Module& model, const Special& special, int rank) {
  for (auto [name, parameter] : model.named_parameters()) {
    parameter.set_requires_grad(special.trains(rank, name));
  }
}

/// The gradients that one device gets if it runs the ranks' parts one after the other, each rank's summed first.
Record special_on_one_device(const Special& special) {
  Branches model(special.tied);
  model.materialize(3);
  const NamedTensors parameters = without_repeats(model.named_parameters());
  const auto optimizer = make_optimizer("sgd", parameters, 0.1, 0.9);
  Record record;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Tensor> sums(parameters.size());
    for (int r = 0; r < kWorld; ++r) {
      freeze(model, special, r);
      for (int part = 0; part < special.backwards; ++part) {
        run_special(model, special, r, step, part, [](const Tensor&) {}, {});
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        Tensor parameter = parameters[i].second;
        if (const Tensor mine = parameter.grad(); mine.defined()) {
          sums[i] = sums[i].defined() ? add(sums[i], mine) : mine;
        }
        parameter.zero_grad();
      }
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor parameter = parameters[i].second;
      parameter.set_grad(sums[i]);
    }
    note(record, *optimizer);
  }
  return record;
}

class ReducerOn : public ::testing::TestWithParam<Special> {};
INSTANTIATE_TEST_SUITE_P(Model, ReducerOn, ::testing::ValuesIn(kSpecials),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ReducerOn, EqualsOneDevice) {
  const Special& special = GetParam();
  const Record wanted = special_on_one_device(special);
  launch({.ranks = kWorld}, [&](Rank& rank) {
    Branches model(special.tied);
    model.materialize(3, rank.device);
    const auto optimizer = make_optimizer("sgd", without_repeats(model.named_parameters()), 0.1, 0.9);
    freeze(model, special, rank.index);
    Reducer reducer(model.named_parameters(), rank.comm, {.caps = special.caps, .find_unused = special.find_unused});
    Record record;
    for (int step = 0; step < kSteps; ++step) {
      for (int part = 0; part < special.backwards; ++part) {
        const auto sync = part + 1 == special.backwards ? Reducer::Sync::yes : Reducer::Sync::no;
        run_special(
            model, special, rank.index, step, part,
            [&](const Tensor& loss) {
              reducer.begin(sync, {&loss, 1});
            },
            rank.device);
      }
      reducer.finish();
      note(record, *optimizer);
    }
    expect_equal(record, wanted);
  });
}

TEST(Reducer, MovesAccumulatedGradientsWhenItRebuilds) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = make_layers(rank.device);
    Reducer reducer(model->named_parameters(), rank.comm, {.caps = {2000, 2000}});
    const Pictures batch(0, 4, rank.device);
    reducer.begin(Reducer::Sync::no);
    run_backward(*model, batch, {0, 4}, 8);
    EXPECT_FALSE(reducer.is_rebuilt());
    const NamedTensors before = copies(model->named_parameters(), [](const Tensor& p) { return p.grad(); });
    reducer.begin(Reducer::Sync::no);
    EXPECT_TRUE(reducer.is_rebuilt());
    EXPECT_TRUE(equal(before, copies(model->named_parameters(), [](const Tensor& p) { return p.grad(); })));
    std::size_t gradients = 0;
    for (const Bucket& bucket : reducer.buckets()) {
      gradients += bucket.gradients.size();
    }
    EXPECT_EQ(gradients, model->named_parameters().size());
  });
}

/// Two ranks of which rank 1 does not use branch c.
void run_with_an_unused_branch(bool find_unused) {
  launch({.ranks = 2, .timeout = 60}, [&](Rank& rank) {
    Branches model(false);
    model.materialize(3, rank.device);
    model.use = rank.index == 0 ? "abc" : "ab";
    Reducer reducer(model.named_parameters(), rank.comm, {.caps = {1, 1}, .find_unused = find_unused});
    const Tensor y = model.forward(random_tensor({4, 5}, "x", DType::float32, rank.device));
    reducer.begin(Reducer::Sync::yes, {&y, 1});
    backward(y, Tensor::full(y.shape(), 1, DType::float32, rank.device));
    reducer.finish();
  });
}

TEST(Reducer, NamesAParameterThatIsNotUsed) {
  EXPECT_TRUE(fails_with<Error>({"rank 1", "no gradient came for", "'c.weight'", "'c.bias'", "--find-unused"},
                                [] { run_with_an_unused_branch(false); }));
  run_with_an_unused_branch(true);
}

TEST(Reducer, RefusesOtherModelsAndForgottenCalls) {
  EXPECT_TRUE(fails_with<Error>({"rank 1 has 'a' float32[3] where rank 0 has 'a' float32[2]"}, [] {
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
  EXPECT_TRUE(fails_with<Error>({"not announced", "begin()"},
                                [&] { run([](Reducer&, const Tensor& loss) { backward(loss); }); }));
  EXPECT_TRUE(fails_with<Error>({"'a'", "zero_grad()"}, [&] {
    run([](Reducer& reducer, const Tensor& loss) {
      reducer.begin(Reducer::Sync::yes);
      backward(loss);
      reducer.finish();
      reducer.begin(Reducer::Sync::yes);
    });
  }));
  EXPECT_TRUE(fails_with<Error>({"second gradient for 'a'", "Sync::no"}, [&] {
    run([](Reducer& reducer, const Tensor& loss) {
      reducer.begin(Reducer::Sync::yes);
      backward(loss, {}, Graph::keep);
      backward(loss, {}, Graph::keep);
    });
  }));
}

TEST(BucketLayout, ClosesABucketWithTheTensorThatReachesTheCap) {
  NamedTensors parameters;
  for (const std::int64_t count : {10, 20, 30, 40}) {
    parameters.emplace_back(fmt::format("p{}", count), Tensor::zeros({count}));
  }
  const auto order = reverse_order(4);
  EXPECT_EQ(bucket_layout(parameters, order, {1, 1}), (BucketLayout{{3}, {2}, {1}, {0}}));
  EXPECT_EQ(bucket_layout(parameters, order, {160, 161}), (BucketLayout{{3}, {2, 1}, {0}}));
  EXPECT_EQ(bucket_layout(parameters, order, {161, 1}), (BucketLayout{{3, 2}, {1}, {0}}));
  EXPECT_EQ(bucket_layout(parameters, order, {kEverything, 1}), (BucketLayout{{3, 2, 1, 0}}));
  parameters[2].second = Tensor::zeros({30}, DType::float64);
  EXPECT_EQ(bucket_layout(parameters, order, {kEverything, kEverything}), (BucketLayout{{3, 1, 0}, {2}}));
}

TEST(StartAlike, GivesAllRanksTheValuesOfTheFirst) {
  launch({.ranks = 3}, [](Rank& rank) {
    auto model = std::make_shared<Sequential>();
    model->add("conv", std::make_shared<Conv2d>(3, 2, 3)).add("bn", std::make_shared<BatchNorm2d>(2));
    model->materialize(static_cast<std::uint64_t>(rank.index), rank.device);
    model->named_buffers()[0].second.fill(rank.index);
    start_alike(*model, rank.comm);
    auto first = std::make_shared<Sequential>();
    first->add("conv", std::make_shared<Conv2d>(3, 2, 3)).add("bn", std::make_shared<BatchNorm2d>(2));
    first->materialize(0);
    EXPECT_TRUE(equal(copies(model->named_parameters(), [](const Tensor& p) { return p; }), first->named_parameters()));
    EXPECT_TRUE(equal(copies(model->named_buffers(), [](const Tensor& p) { return p; }), first->named_buffers()));
  });
}

}  // namespace
}  // namespace stagecoach
