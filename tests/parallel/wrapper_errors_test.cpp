// The wrappers tell the caller what is wrong, and leave weights that can be trusted.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "core/autograd/node.h"
#include "core/ops.h"
#include "parallel/parallel.h"
#include "tests/parallel/small_model.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_labels;
using test::random_tensor;
using test::same_bytes;
using test::small_model;

TEST(Pipe, RefusesWhatCannotRun) {
  EXPECT_TRUE(fails_with<UsageError>({"Pipe: expected a model with layers"},
                                     [] { Pipe pipe(std::make_shared<Sequential>()); }));
  EXPECT_TRUE(fails_with<UsageError>({"2 layers cannot be split into 3 stages"},
                                     [] { Pipe pipe(small_model(), {.ranks = 3}); }));
  EXPECT_TRUE(
      fails_with<UsageError>({"unknown schedule", "1f1b"}, [] { Pipe pipe(small_model(), {.schedule = "fast"}); }));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate", "got -1"},
                                     [] { Pipe pipe(small_model(), {.optimizer = adam({.learning_rate = -1})}); }));
  EXPECT_TRUE(fails_with<UsageError>({"Pipe: expected a split into 2 stages", "got 1"},
                                     [] { Pipe pipe(small_model(), {.ranks = 2, .split = {2}}); }));
  EXPECT_TRUE(fails_with<UsageError>({"or `chunks` 2 or 4 with groups"}, [] {
    Pipe pipe(small_model(), {.chunks = 3, .schedule = "interleaved", .ranks = 2, .stages_per_rank = 2});
  }));
  const auto full = small_model();
  full->materialize(1);
  EXPECT_TRUE(fails_with<Error>({"already has memory"}, [&] {
    Pipe pipe(full, {.ranks = 2});
    pipe.place({4, 4});
  }));
}

TEST(Pipe, RefusesTwoDropoutsThatWouldDropTheSame) {
  const auto model = small_model();
  model->add("drop1", std::make_shared<Dropout>(0.5, 1, "drop"));
  model->add("drop2", std::make_shared<Dropout>(0.5, 1, "drop"));
  EXPECT_TRUE(fails_with<UsageError>({"a name of its own for each Dropout", "'drop'"}, [&] { Pipe pipe(model); }));
}

TEST(Pipe, SaysHowWeightsGetMemory) {
  const auto model = small_model();
  const Pipe pipe(model);
  EXPECT_TRUE(
      fails_with<Error>({"'fc1.weight' has no memory yet", "place(shape)"}, [&] { model->named_parameters(); }));
}

TEST(DistributedDataParallel, SaysThatAnInputIsOnAnotherDevice) {
  launch({.ranks = 2}, [](Rank& rank) {
    const auto model = small_model();
    model->materialize(1, rank.device);
    DistributedDataParallel ddp(*model, rank.comm);
    const Tensor x = Tensor::zeros({4, 4}, DType::float32, {DeviceType::cpu, 1 - rank.index});
    EXPECT_TRUE(fails_with<Error>({"this rank's device", "use x.to(rank.device)"}, [&] { ddp.forward(x); }));
  });
}

TEST(Pipe, RefusesABatchOfAnotherShapeAndGoesOn) {
  Pipe pipe(small_model(), {.ranks = 2});
  const Tensor x = random_tensor({4, 4}, "points", DType::float32);
  const Tensor labels = random_labels(4, 3);
  EXPECT_TRUE(fails_with<Error>({"layer 'fc1'"}, [&] { pipe.train_step(Tensor::zeros({4, 5}), labels); }));
  pipe.train_step(x, labels);
  EXPECT_TRUE(
      fails_with<UsageError>({"expected inputs of shape [N, …] with float32[1, 4] for one", "got float32[4, 5]"}, [&] {
        pipe.train_step(Tensor::zeros({4, 5}), labels);
      }));
  EXPECT_TRUE(fails_with<UsageError>({"expected inputs float32", "float64"}, [&] {
    pipe.forward(Tensor::zeros({4, 4}, DType::float64));
  }));
  EXPECT_TRUE(fails_with<UsageError>({"expected labels int32[4]", "int32[3]"},
                                     [&] { pipe.train_step(x, random_labels(3, 3)); }));
  EXPECT_TRUE(fails_with<UsageError>({"expected labels int32[4]", "undefined"}, [&] { pipe.train_step(x, {}); }));
  pipe.train_step(x, labels);
}

TEST(Pipe, SaysThatPlaceNeedsTheTypeOfTheInputs) {
  const auto model_of_tokens = [] {
    auto model = std::make_shared<Sequential>();
    model->add("embedding", std::make_shared<Embedding>(5, 4)).add("flatten", std::make_shared<Flatten>());
    model->add("fc", std::make_shared<Linear>(8, 3));
    return model;
  };
  const Tensor tokens = Tensor::zeros({4, 2}, DType::int32);
  EXPECT_TRUE(fails_with<Error>({"for inputs float32[4, 2]", "expected tokens int32", "call place(shape, type)"},
                                [&] { Pipe(model_of_tokens()).place(tokens.shape()); }));
  EXPECT_TRUE(fails_with<UsageError>({"got int32[4, 2]", "begin with place([4, 2], DType::int32)"}, [&] {
    Pipe pipe(model_of_tokens(), {.split = {2, 1}});
    pipe.place(tokens.shape());
    pipe.train_step(tokens, random_labels(4, 3));
  }));
}

/// Doubles the columns, and says that it does not.
class Widens final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return cat_columns({x, x}); }
  Shape output_shape(const Shape& input) const override { return input; }
};

/// Passes tokens on, of another type than what stages send.
class Tokens final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return Tensor::zeros(x.shape(), DType::int32, x.device()); }
  Shape output_shape(const Shape& input) const override { return input; }
};

TEST(Pipe, NamesTheLayerWhoseOutputShapeIsWrong) {
  const auto train = [](const std::shared_ptr<Module>& layer) {
    auto model = std::make_shared<Sequential>();
    model->add("fc1", std::make_shared<Linear>(4, 4)).add("own", layer).add("relu", std::make_shared<ReLU>());
    model->add("fc2", std::make_shared<Linear>(4, 3));
    Pipe(model, {.split = {3, 1}}).train_step(Tensor::zeros({8, 4}), random_labels(8, 3));
  };
  EXPECT_TRUE(fails_with<Error>({"layer 'own'", "output [2, 4]", "got [2, 8]", "correct its output_shape"},
                                [&] { train(std::make_shared<Widens>()); }));
}

TEST(Pipe, SaysThatStagesPassOnFloats) {
  auto model = std::make_shared<Sequential>();
  model->add("tokens", std::make_shared<Tokens>()).add("embedding", std::make_shared<Embedding>(5, 4));
  model->add("flatten", std::make_shared<Flatten>()).add("fc", std::make_shared<Linear>(8, 3));
  EXPECT_TRUE(fails_with<Error>({"stage 0", "float32[2, 2]", "got int32[2, 2]", "split the model after"}, [&] {
    Pipe(model, {.split = {1, 3}}).train_step(Tensor::zeros({8, 2}), random_labels(8, 3));
  }));
}

/// A layer that fails when it gets a large number.
class Fuse final : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    if (x.to_vector<float>()[0] > 1000) {
      throw Error("the fuse has blown");
    }
    return relu(x);
  }
  Shape output_shape(const Shape& input) const override { return input; }
};

std::shared_ptr<Sequential> model_with_fuse() {
  auto model = std::make_shared<Sequential>();
  model->add("relu", std::make_shared<ReLU>()).add("fuse", std::make_shared<Fuse>());
  model->add("fc", std::make_shared<Linear>(4, 3));
  return model;
}

template <class Wrapper>
void expect_error_of_a_rank(Wrapper& wrapper) {
  const Tensor labels = random_labels(4, 3);
  EXPECT_GT(wrapper.train_step(Tensor::full({4, 4}, 1), labels), 0);
  const auto blow = [&] { wrapper.train_step(Tensor::full({4, 4}, 1e6), labels); };
  EXPECT_TRUE(fails_with<Error>({"rank ", "the fuse has blown"}, blow));
  EXPECT_TRUE(fails_with<Error>({"earlier error", "the fuse has blown"}, blow));
}

TEST(Pipe, GivesTheErrorOfARankToTheCaller) {
  Pipe pipe(model_with_fuse(), {.ranks = 3, .split = {1, 1, 1}});
  expect_error_of_a_rank(pipe);
}

TEST(DataParallel, GivesTheErrorOfARankToTheCaller) {
  DataParallel parallel(model_with_fuse, {.ranks = 3});
  expect_error_of_a_rank(parallel);
}

TEST(DataParallel, RefusesWhatCannotRun) {
  const auto model = small_model();
  EXPECT_TRUE(fails_with<UsageError>({"returns a new model, got the same one twice"},
                                     [&] { DataParallel parallel([&] { return model; }); }));
  EXPECT_TRUE(fails_with<UsageError>({"learning rate", "got -1"}, [] {
    DataParallel parallel(small_model, {.optimizer = adam({.learning_rate = -1})});
  }));
  EXPECT_TRUE(fails_with<UsageError>({"ranks, got 0"}, [] { DataParallel parallel(small_model, {.ranks = 0}); }));
  EXPECT_TRUE(fails_with<UsageError>({"DataParallel: expected a function that returns a new model"},
                                     [] { DataParallel parallel([] { return std::shared_ptr<Module>(); }); }));
}

/// A layer whose backward takes a while and then fails.
class LateFailure final : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    Tensor y = x.detach();
    y.set_grad_node(std::make_shared<FailingNode>(x));
    return y;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  class FailingNode final : public Node {
   public:
    explicit FailingNode(const Tensor& x) : Node("late failure", {x}) {}
    Gradients backward(const Tensor&, const NeedsInputGrad&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      throw Error("the backward has failed");
    }
  };
};

std::shared_ptr<Sequential> model_with_late_failure() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("failure", std::make_shared<LateFailure>());
  model->add("fc2", std::make_shared<Linear>(8, 3));
  return model;
}

TEST(Pipe, MakesNoStepIfABackwardFails) {
  const auto model = model_with_late_failure();
  Pipe pipe(model, {.chunks = 1, .ranks = 2, .split = {2, 1}});
  pipe.place({4, 4});
  const Tensor weight = model->layer(2)->named_parameters()[0].second;  // of rank 1, whose backward succeeds
  const Tensor before = weight.clone();
  EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, [&] {
    pipe.train_step(random_tensor({4, 4}, "points", DType::float32), random_labels(4, 3));
  }));
  EXPECT_TRUE(same_bytes(before, weight));
}

TEST(Pipe, GoesOnAfterAFailedMeasurement) {
  auto model = std::make_shared<Sequential>();
  model->add("block", model_with_late_failure()).add("fc", std::make_shared<Linear>(3, 3));  // the block has weights
  Pipe pipe(model, {.ranks = 2});
  const auto place = [&] { pipe.place({4, 4}); };
  EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, place));
  EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, place)) << "and not that a layer has memory already";
}

TEST(DistributedDataParallel, SaysThatAnEarlierBackwardFailed) {
  const auto model = model_with_late_failure();
  model->materialize(1);
  launch({.ranks = 1}, [&](Rank& rank) {
    DistributedDataParallel parallel(*model, rank.comm);
    const auto step = [&] {
      const Tensor logits = parallel.forward(Tensor::full({4, 4}, 1));
      parallel.backward(cross_entropy(logits, random_labels(4, 3), Reduction::sum), 4);
    };
    EXPECT_TRUE(fails_with<Error>({"expected a loss []"}, [&] { parallel.backward(Tensor::full({}, 1), 4); }));
    EXPECT_TRUE(fails_with<Error>({"the backward has failed"}, step)) << "the refused loss has changed nothing";
    EXPECT_TRUE(fails_with<Error>({"an earlier backward failed", "resume"}, step));
  });
}

}  // namespace
}  // namespace stagecoach
