// A Pipe whose model has several inputs, values that skip stages, or tied weights, trains what one device trains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "parallel/parallel.h"
#include "parallel/schedule/schedule_kinds.h"
#include "tests/parallel/own_task.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::expect_equal;
using test::expect_pipe_trains_as_one_device;
using test::fails_with;
using test::kTaskSteps;
using test::OwnTask;
using test::random_tensor;

/// Adds an embedding of the tokens [N, 2] that are given beside the input.
class AddTokens final : public Module {
 public:
  AddTokens() { add_child("embedding", embedding_); }
  Tensor forward(const Tensor& x) override {
    return add(x, embedding_->forward(NamedValues::get("tokens")).reshape(x.shape()));
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Embedding> embedding_ = std::make_shared<Embedding>(5, 4);
};

std::shared_ptr<Sequential> model_of_two_inputs() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("gelu1", std::make_shared<GELU>());
  model->add("fc2", std::make_shared<Linear>(8, 8)).add("tokens", std::make_shared<AddTokens>());
  model->add("gelu2", std::make_shared<GELU>()).add("fc3", std::make_shared<Linear>(8, 3));
  return model;
}

NamedTensors two_tokens() {
  return {{"tokens", Tensor::from(std::vector<std::int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4, 4, 1, 1}, {7, 2})}};
}

/// Two values skip layers, one of them over the other.
std::shared_ptr<Sequential> model_with_skips() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("keep long", std::make_shared<Stash>("long"));
  model->add("fc2", std::make_shared<Linear>(8, 6)).add("keep short", std::make_shared<Stash>("short"));
  model->add("gelu", std::make_shared<GELU>()).add("fc3", std::make_shared<Linear>(6, 6));
  model->add("add short", std::make_shared<AddStashed>("short")).add("fc4", std::make_shared<Linear>(6, 8));
  model->add("add long", std::make_shared<AddStashed>("long")).add("fc5", std::make_shared<Linear>(8, 3));
  return model;
}

/// Predicts tokens; the head has the weight of the embedding.
std::shared_ptr<Sequential> model_with_tied_head() {
  auto model = std::make_shared<Sequential>();
  model->add("embedding", std::make_shared<Embedding>(3, 4)).add("fc1", std::make_shared<Linear>(4, 4));
  model->add("gelu", std::make_shared<GELU>()).add("fc2", std::make_shared<Linear>(4, 4));
  model->add("head", std::make_shared<Linear>(4, 3, Bias::no));
  return model;
}

OwnTask task_with_tied_head() {
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{0, 1, 2, 2, 1, 0, 0, 1, 2, 1, 2, 0, 1, 1}, {7, 2});
  return {.make = model_with_tied_head,
          .x = tokens,
          .target = random_tensor({7, 2, 3}, "targets", DType::float32),
          .max_norm = 0.05,
          .tied = {{"embedding.weight", "head.weight"}}};
}

/// The weights after training with any schedule are those of one device.
void expect_any_schedule_trains_as_one_device(OwnTask task) {
  task.chunks = 4;
  const auto wanted = task.on_one_device();
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, recompute {}", kind.name, recompute));
      const auto model = task.make();
      Pipe pipe = task.pipe(model, {.schedule = kind.name, .ranks = 2, .recompute = recompute});
      for (int step = 0; step < kTaskSteps; ++step) {
        pipe.train_step(task.input(), task.target);
      }
      expect_equal(wanted->named_parameters(), model->named_parameters());
    }
  }
}

TEST(PipeValues, MoreInputsAreFoundOnAnyRank) {
  const OwnTask task{.make = model_of_two_inputs, .values = two_tokens()};
  expect_pipe_trains_as_one_device(task);
  expect_any_schedule_trains_as_one_device(task);
}

TEST(PipeValues, SkipStages) {
  const OwnTask task{.make = model_with_skips};
  expect_pipe_trains_as_one_device(task);
  expect_any_schedule_trains_as_one_device(task);
  const auto wanted = task.on_one_device();
  const auto model = task.make();
  Pipe pipe = task.pipe(model, {.ranks = 10, .split = std::vector<int>(10, 1)});
  for (int step = 0; step < kTaskSteps; ++step) {
    pipe.train_step(task.x, task.target);
  }
  expect_equal(wanted->named_parameters(), model->named_parameters());
  EXPECT_EQ(pipe.forward(task.x).shape(), (Shape{7, 3}));
}

TEST(PipeValues, TiedWeightsStayTheSame) {
  const OwnTask task = task_with_tied_head();
  expect_pipe_trains_as_one_device(task);
  expect_any_schedule_trains_as_one_device(task);
  const auto trained = task.on_one_device();
  EXPECT_TRUE(test::same_bytes(trained->named_parameters().front().second, trained->named_parameters().back().second));
  const OwnTask untied{.make = task.make, .x = task.x, .target = task.target};
  EXPECT_FALSE(test::same_bytes(untied.on_one_device()->named_parameters().front().second,
                                trained->named_parameters().front().second));
}

/// Two pipes with an optimizer each: a generator [N, 4] to [N, 4], and a discriminator [N, 4] to [N, 1] whose gradient
/// goes back into the generator. Returns the parameters of both after training (Mao and others, "Least squares
/// generative adversarial networks", 2017).
NamedTensors trained_against_each_other(int generator_ranks, int discriminator_ranks) {
  const auto make = [](std::int64_t outputs) {
    auto model = std::make_shared<Sequential>();
    model->add("fc1", std::make_shared<Linear>(4, 8)).add("gelu", std::make_shared<GELU>());
    model->add("fc2", std::make_shared<Linear>(8, outputs));
    return model;
  };
  Pipe generator(make(4),
                 {.chunks = 3, .ranks = generator_ranks, .optimizer = adam({.learning_rate = 0.01}), .seed = 1});
  Pipe discriminator(make(1), {.chunks = 2, .ranks = discriminator_ranks, .optimizer = sgd(), .seed = 2});
  const auto distance = [](const Tensor& judged, double wanted) {
    return mean_squared_error(judged, Tensor::full(judged.shape(), wanted, DType::float32, judged.device()));
  };
  for (int step = 0; step < kTaskSteps; ++step) {
    const Tensor real = random_tensor({7, 4}, fmt::format("real {}", step), DType::float32);
    const Tensor made =
        generator.forward_for_loss(random_tensor({7, 4}, fmt::format("noise {}", step), DType::float32));
    backward(add(distance(discriminator.forward_for_loss(real), 1),
                 distance(discriminator.forward_for_loss(made.detach()), 0)));
    discriminator.step();
    discriminator.zero_grad();
    backward(distance(discriminator.forward_for_loss(made), 1));
    discriminator.zero_grad();
    generator.step();
    generator.zero_grad();
  }
  NamedTensors parameters = generator.model().named_parameters();
  for (const auto& [name, parameter] : discriminator.model().named_parameters()) {
    parameters.emplace_back("discriminator." + name, parameter);
  }
  return parameters;
}

TEST(PipeForLoss, TrainsTwoPipesAgainstEachOther) {
  const NamedTensors wanted = trained_against_each_other(1, 1);
  expect_equal(wanted, trained_against_each_other(3, 2));
  expect_equal(wanted, trained_against_each_other(2, 3));
}

TEST(PipeValues, SayWhatIsMissing) {
  const OwnTask task{.make = model_of_two_inputs, .values = two_tokens()};
  EXPECT_TRUE(fails_with<Error>({"'tokens'", "got none", "give it to the Pipe"},
                                [&] { Pipe(task.make(), {.loss = task.loss}).train_step(task.x, task.target); }));
  EXPECT_TRUE(fails_with<UsageError>({"'tokens' [7, …]", "got int32[6, 2]"}, [&] {
    const Tensor fewer = task.values[0].second.narrow(0, 6);
    Pipe(task.make(), {.loss = task.loss}).train_step({task.x, {{"tokens", fewer}}}, task.target);
  }));
  EXPECT_TRUE(fails_with<UsageError>({"one Stash of 'short'"}, [&] {
    const auto model = model_with_skips();
    const auto rest = model->slice(4, model->size());
    Pipe(rest, {.split = {3, 3}}).place({7, 6});
  }));
  EXPECT_TRUE(fails_with<Error>({"construct NamedValues"}, [] {
    const auto model = model_with_skips();
    model->materialize(1);
    model->forward(Tensor::zeros({1, 4}));
  }));
}

TEST(PipeValues, SayWhatCannotBeTied) {
  const auto tie = [](const TiedWeights::Names& names) {
    OwnTask task = task_with_tied_head();
    task.tied = names;
    task.pipe(task.make(), {.ranks = 2});
  };
  EXPECT_TRUE(fails_with<UsageError>({"got 'head'", "named_parameters()"}, [&] {
    tie({{"embedding.weight", "head"}});
  }));
  EXPECT_TRUE(fails_with<UsageError>({"two parameters of one shape", "float32[4, 4]"}, [&] {
    tie({{"embedding.weight", "fc1.weight"}});
  }));
  EXPECT_TRUE(fails_with<UsageError>({"in another pair already"}, [&] {
    tie({{"fc1.weight", "fc2.weight"}, {"fc2.weight", "fc1.weight"}});
  }));
}

}  // namespace
}  // namespace stagecoach
