// A stage on a GPU that replays recordings does what one does that launches each operation.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "nn/batch_position.h"
#include "nn/optimizer.h"
#include "parallel/pipeline/stage.h"
#include "tests/parallel/pipeline_training.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::kCuda;
using test::random_tensor;
using test::same_bytes;

/// An action of a stage on a micro-batch: F, B, I or W as in schedules.
struct Step {
  char operation;
  int microbatch;
};

/// A stage that trains: the last one of a model with batch norm, or an earlier one of two linear layers' kind.
class TrainedStage {
 public:
  TrainedStage(bool is_last, Stage::Record record)
      : is_last_(is_last),
        layers_(test::image_model()),
        stage_(materialized(), Stage::Recompute::no, loss_of_whole_logits, record),
        optimizer_(make_optimizer(OptimizerKind::sgd, layers_->named_parameters(), 0.05, 0.9)) {}

  /// Performs the action and returns what it returns: an output, a loss, a gradient, or an undefined tensor.
  Tensor perform(const Step& step, int round, Tensor* logits) {
    const auto [operation, i] = step;
    const std::int64_t count = i == 2 ? 1 : 2;  // a ragged batch
    const std::string name = std::to_string(round) + "/" + std::to_string(i);
    switch (operation) {
      case 'F': {
        const Tensor x = random_tensor({count, 3, 8, 8}, "x " + name, DType::float32, kCuda);
        return is_last_ ? stage_.forward_with_loss(i, x, test::random_labels(count, 4, kCuda), true, logits)
                        : stage_.forward(i, x, true);
      }
      case 'B':
        return stage_.backward(i, gradient(count, name));
      case 'I':
        return stage_.backward_input(i, gradient(count, name));
      default:
        stage_.backward_weight(i);
        return {};
    }
  }
  void update() {
    optimizer_->step();
    optimizer_->zero_grad();
  }
  NamedTensors tensors() const {
    NamedTensors all = layers_->named_parameters();
    const NamedTensors buffers = layers_->named_buffers();
    all.insert(all.end(), buffers.begin(), buffers.end());
    return all;
  }
  Stage& stage() { return stage_; }

 private:
  std::shared_ptr<Sequential> materialized() {
    layers_->materialize(test::kSeed, kCuda);
    return layers_;
  }
  Tensor gradient(std::int64_t count, const std::string& name) const {
    return is_last_ ? Tensor::full({}, 0.2, DType::float32, kCuda)
                    : random_tensor({count, 4}, "grad " + name, DType::float32, kCuda);
  }

  bool is_last_;
  std::shared_ptr<Sequential> layers_;
  Stage stage_;
  std::unique_ptr<Optimizer> optimizer_;
};

void expect_same(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bytes(a[i].second, b[i].second)) << a[i].first;
  }
}

/// The orders of a batch's actions.
const std::map<std::string, std::vector<Step>> kOrders{
    {"gpipe", {{'F', 0}, {'F', 1}, {'F', 2}, {'B', 0}, {'B', 1}, {'B', 2}}},
    {"one_forward_one_backward", {{'F', 0}, {'F', 1}, {'B', 0}, {'F', 2}, {'B', 1}, {'B', 2}}},
    {"zero_bubble", {{'F', 0}, {'F', 1}, {'I', 0}, {'F', 2}, {'I', 1}, {'W', 0}, {'W', 1}, {'B', 2}}},
    {"descending", {{'F', 0}, {'F', 1}, {'F', 2}, {'B', 2}, {'B', 1}, {'B', 0}}},
    {"in_turn", {{'F', 0}, {'I', 0}, {'W', 0}, {'F', 1}, {'B', 1}, {'F', 2}, {'B', 2}}},
};

class RecordedStageCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda()) {
      GTEST_SKIP() << test::why_no_cuda();
    }
  }
};

class RecordedStageOrdersCuda : public RecordedStageCuda,
                                public ::testing::WithParamInterface<std::tuple<std::string, bool>> {};
INSTANTIATE_TEST_SUITE_P(
    Stages, RecordedStageOrdersCuda,
    ::testing::Combine(::testing::Values("gpipe", "one_forward_one_backward", "zero_bubble", "descending", "in_turn"),
                       ::testing::Bool()),
    [](const auto& tested) { return std::get<0>(tested.param) + (std::get<1>(tested.param) ? "_last" : "_middle"); });

// In "descending" gradients that are not next wait for their turn.
TEST_P(RecordedStageOrdersCuda, GiveTheBytesOfLaunches) {
  const auto& [order, is_last] = GetParam();
  TrainedStage recorded(is_last, Stage::Record::yes);
  TrainedStage launched(is_last, Stage::Record::no);
  for (int round = 0; round < 5; ++round) {
    for (TrainedStage* each : {&recorded, &launched}) {
      each->stage().add_gradients_in_order({0, 1, 2});
    }
    for (const Step& step : kOrders.at(order)) {
      Tensor logits[2];
      const Tensor here = recorded.perform(step, round, &logits[0]);
      const Tensor there = launched.perform(step, round, &logits[1]);
      ASSERT_EQ(here.defined(), there.defined());
      EXPECT_TRUE(!here.defined() || same_bytes(here, there)) << round << step.operation << step.microbatch;
      EXPECT_TRUE(!logits[0].defined() || same_bytes(logits[0], logits[1])) << round << step.microbatch;
    }
    recorded.update();
    launched.update();
    expect_same(recorded.tensors(), launched.tensors());
    EXPECT_EQ(recorded.stage().alive(), 0U);
  }
}

// Outputs, gradients of inputs and of weights: what a caller keeps is his, whatever the stage does next.
TEST_F(RecordedStageCuda, LeavesWhatACallerKeeps) {
  TrainedStage stage(false, Stage::Record::yes);
  std::vector<std::pair<Tensor, std::vector<float>>> kept;
  const auto keep = [&](const Tensor& tensor) { kept.emplace_back(tensor, tensor.to_vector<float>()); };
  for (int round = 0; round < 6; ++round) {
    keep(stage.perform({'F', 0}, round, nullptr));
    keep(stage.perform({'B', 0}, round, nullptr));
    keep(stage.tensors().front().second.grad());
    stage.update();
  }
  for (const auto& [tensor, values] : kept) {
    EXPECT_EQ(tensor.to_vector<float>(), values);
  }
}

TEST_F(RecordedStageCuda, RefusesABackwardWhoseWeightsHaveChanged) {
  TrainedStage stage(false, Stage::Record::yes);
  for (int round = 0; round < 4; ++round) {
    stage.perform({'F', 0}, round, nullptr);
    stage.perform({'B', 0}, round, nullptr);
    stage.update();
  }
  for (const char operation : {'B', 'I'}) {
    const int microbatch = operation == 'B' ? 0 : 1;
    stage.perform({'F', microbatch}, 4, nullptr);
    stage.tensors().front().second.fill(0.5);
    EXPECT_TRUE(fails_with<Error>({"was modified after the forward"}, [&] {
      stage.perform({operation, microbatch}, 4, nullptr);
    }));
  }
}

// As versions of weights do, each with memory of its own.
TEST_F(RecordedStageCuda, FollowsWeightsThatMove) {
  TrainedStage recorded(false, Stage::Record::yes);
  TrainedStage launched(false, Stage::Record::no);
  for (int round = 0; round < 6; ++round) {
    for (TrainedStage* each : {&recorded, &launched}) {
      each->perform({'F', 0}, round, nullptr);
      if (round >= 3) {
        for (auto& [name, parameter] : each->stage().layers().named_parameters()) {
          Tensor(parameter).rebind(parameter.clone());
        }
      }
      each->perform({'B', 0}, round, nullptr);
      each->update();
    }
    expect_same(recorded.tensors(), launched.tensors());
  }
}

// A recording would repeat its own mask.
TEST_F(RecordedStageCuda, DrawsMasksAnewForEachStep) {
  const auto layers = test::model_with_dropout();
  layers->materialize(test::kSeed, kCuda);
  Stage stage(layers, Stage::Recompute::no, loss_of_whole_logits, Stage::Record::yes);
  const Tensor x = random_tensor({2, 6}, "x", DType::float32, kCuda);
  std::set<std::vector<float>> outputs;
  for (int step = 0; step < 5; ++step) {
    const BatchScope scope(BatchPosition{step, 0});
    const Tensor y = stage.forward(0, x, true);
    outputs.insert(y.to_vector<float>());
    stage.backward(0, Tensor::full(y.shape(), 1, y.dtype(), kCuda));
  }
  EXPECT_EQ(outputs.size(), 5U);
}

TEST_F(RecordedStageCuda, CallsGradientHooks) {
  TrainedStage stage(false, Stage::Record::yes);
  int calls = 0;
  stage.tensors().front().second.set_gradient_hook([&](Tensor&) { ++calls; });
  for (int round = 0; round < 5; ++round) {
    stage.perform({'F', 0}, round, nullptr);
    stage.perform({'B', 0}, round, nullptr);
    stage.update();
  }
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace stagecoach
