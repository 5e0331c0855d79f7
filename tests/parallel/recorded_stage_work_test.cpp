// What a GPU is given by a stage that replays recordings.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "nn/layers.h"
#include "parallel/pipeline/stage.h"
#include "tests/emulation/machine.h"
#include "tests/parallel/pipeline_training.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

TEST(RecordedStageWork, OfAMicroBatchIsTwoCopiesAndTwoGraphs) {
  const auto layers = test::image_model();
  layers->materialize(0, test::kCuda);
  Stage stage(layers, Stage::Recompute::no, loss_of_whole_logits, Stage::Record::yes);
  const Tensor x = Tensor::full({2, 3, 8, 8}, 1, DType::float32, test::kCuda);
  const Tensor grad = Tensor::full({2, 4}, 1, DType::float32, test::kCuda);
  constexpr int kMicrobatches = 3;
  long before = 0;
  for (int step = 0; step < 3; ++step) {  // the first launches operations, the second records
    before = cuda::emulation::pieces_of_work();
    for (int i = 0; i < kMicrobatches; ++i) {
      stage.forward(i, x, true);
    }
    for (int i = 0; i < kMicrobatches; ++i) {
      stage.backward(i, grad);
    }
    for (auto& [name, parameter] : layers->named_parameters()) {
      Tensor(parameter).zero_grad();
    }
  }
  EXPECT_EQ(cuda::emulation::pieces_of_work() - before, 4 * kMicrobatches);
}

/// Stages of three ranks that share a GPU, each in a slot of its own: two linear layers, and a layer between them.
class Chain {
 public:
  static constexpr int kStages = 3;
  static constexpr int kMicrobatches = 3;

  Chain(const std::shared_ptr<Module>& middle, Stage::Record record) {
    for (int s = 0; s < kStages; ++s) {
      const auto layers = std::make_shared<Sequential>();
      layers->add("layer", s == 1 ? middle : std::make_shared<Linear>(8, 8));
      layers->materialize(test::kSeed, slot(s));
      stages_.emplace_back(layers, Stage::Recompute::no, loss_of_whole_logits, record);
    }
  }

  /// Returns the gradients of the inputs and of the parameters.
  std::vector<Tensor> step() {
    std::vector<Tensor> gradients = forwards_and_backwards();
    for (Stage& stage : stages_) {
      for (auto& [name, parameter] : stage.layers().named_parameters()) {
        gradients.push_back(parameter.grad().clone());
        Tensor(parameter).zero_grad();
      }
    }
    return gradients;
  }
  /// Returns the waits that the streams were given in the last step's backwards.
  long waits_in_backwards() const { return waits_; }

 private:
  std::vector<Tensor> forwards_and_backwards() {
    std::vector<Tensor> gradients;
    for (int i = 0; i < kMicrobatches; ++i) {
      Tensor x = test::random_tensor({2, 8}, "x " + std::to_string(i), DType::float32, slot(0));
      for (int s = 0; s < kStages; ++s) {
        x = stage(s).forward(i, x.seen_from(slot(s)), true);
      }
    }
    const long before = cuda::emulation::stream_waits();
    for (int i = 0; i < kMicrobatches; ++i) {
      Tensor grad = test::random_tensor({2, 8}, "grad " + std::to_string(i), DType::float32, slot(2));
      for (int s = kStages - 1; s >= 0; --s) {
        grad = stage(s).backward(i, grad.seen_from(slot(s)));
      }
      gradients.push_back(grad.clone());
    }
    waits_ = cuda::emulation::stream_waits() - before;
    return gradients;
  }
  static Device slot(int number) { return {test::kCuda.type, test::kCuda.index, number}; }
  Stage& stage(int s) { return stages_[static_cast<std::size_t>(s)]; }

  std::vector<Stage> stages_;
  long waits_ = 0;
};

/// Returns the pieces of work of a step, after checking that the steps are those of launched operations.
long pieces_of_a_step(const std::shared_ptr<Module>& middle) {
  Chain recorded(middle, Stage::Record::yes);
  Chain launched(middle, Stage::Record::no);
  long pieces = 0;
  for (int step = 0; step < 6; ++step) {
    const std::vector<Tensor> wanted = launched.step();
    const long before = cuda::emulation::pieces_of_work();
    const std::vector<Tensor> got = recorded.step();
    pieces = cuda::emulation::pieces_of_work() - before;
    EXPECT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
      EXPECT_TRUE(test::same_bytes(got[i], wanted[i])) << step << " " << i;
    }
  }
  return pieces;
}

// Each micro-batch's x and gradient go to the GPU and into the first recording; its last gradient is cloned, and so are
// the gradients of the four parameters.
constexpr long kOthers = Chain::kMicrobatches * 5 + 4;
constexpr long kGraphs = Chain::kMicrobatches * Chain::kStages * 2;

TEST(RecordedStageWork, ReadsWhatAnotherStageHasRecordedInPlace) {
  EXPECT_EQ(pieces_of_a_step(std::make_shared<ReLU>()), kGraphs + kOthers);
}

// A stage that has lent a result goes on at once; it waits for its readers when it overwrites the result.
TEST(RecordedStageWork, WaitsForReadersWhenItOverwrites) {
  Chain stages(std::make_shared<ReLU>(), Stage::Record::yes);
  for (int step = 0; step < 6; ++step) {
    stages.step();
  }
  EXPECT_EQ(stages.waits_in_backwards(), 0);
  const long before = cuda::emulation::stream_waits();
  stages.step();
  constexpr int kBorders = Chain::kStages - 1;
  EXPECT_EQ(cuda::emulation::stream_waits() - before, 2 * kBorders * Chain::kMicrobatches);
}

// A view of the input is in memory that belongs to the stage before, so the stage after gets a copy, and copies that.
// (The gradient of an input is no view.)
TEST(RecordedStageWork, CopiesViewsOfWhatItReadsInPlace) {
  EXPECT_EQ(pieces_of_a_step(std::make_shared<Flatten>()), kGraphs + kOthers + Chain::kMicrobatches * 2);
}

}  // namespace
}  // namespace stagecoach
