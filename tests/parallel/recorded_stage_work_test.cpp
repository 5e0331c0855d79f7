// What a GPU is given by a stage that replays recordings.

#include <gtest/gtest.h>

#include "parallel/pipeline/stage.h"
#include "tests/emulation/machine.h"
#include "tests/parallel/pipeline_training.h"
#include "tests/support/devices.h"

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

}  // namespace
}  // namespace stagecoach
