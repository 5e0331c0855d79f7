// How much a GPU is given in one training step. On a model this small each kernel takes a few microseconds, whatever it
// computes, so their number is what a step costs.

#include <gtest/gtest.h>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "tests/emulation/machine.h"
#include "tests/support/devices.h"

namespace stagecoach {
namespace {

TEST(PiecesOfWork, AStepOfTheConvNetHas38) {
  const auto model = make_model("convnet");
  model->materialize(0, test::kCuda);
  const auto optimizer = make_optimizer(OptimizerKind::adam, model->named_parameters(), 0.001);
  const Tensor images = Tensor::zeros({64, 3, 32, 32}, DType::uint8, test::kCuda);
  const Tensor labels = Tensor::zeros({64}, DType::int32, test::kCuda);
  long before = 0;
  for (int step = 0; step < 2; ++step) {  // the first one also makes what is made once
    before = cuda::emulation::pieces_of_work();
    backward(cross_entropy(model->forward(normalize(images)), labels));
    optimizer->step();
    optimizer->zero_grad();
  }
  EXPECT_EQ(cuda::emulation::pieces_of_work() - before, 38);
}

}  // namespace
}  // namespace stagecoach
