// A stage by itself, without other ranks.

#include "parallel/pipeline/stage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/base/error.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

// Also where the gradients of an earlier micro-batch are still to come.
TEST(Stage, SaysThatABackwardHasNoGraph) {
  const auto layers = std::make_shared<Sequential>();
  layers->add("fc", std::make_shared<Linear>(3, 2));
  layers->materialize(0);
  Stage stage(layers);
  const Tensor x = Tensor::full({4, 3}, 1);
  const Tensor grad = Tensor::full({4, 2}, 1);
  stage.add_gradients_in_order({0, 1});
  for (const int microbatch : {1, 0}) {
    const auto backward = [&] { stage.backward(microbatch, grad); };
    const auto what = fmt::format("backward of micro-batch {} was called, but there is no graph of it", microbatch);
    EXPECT_TRUE(fails_with<Error>({what.c_str(), "its forward has not run"}, backward));
    stage.forward(microbatch, x, false);
    backward();
    EXPECT_TRUE(fails_with<Error>({what.c_str(), "or its backward has run already"}, backward));
  }
}

/// Returns its input: the same tensor.
class Identity final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  Shape output_shape(const Shape& input) const override { return input; }
};

TEST(Stage, MayReturnItsInput) {
  const auto layers = std::make_shared<Sequential>();
  layers->add("identity", std::make_shared<Identity>());
  const Tensor x = Tensor::full({4, 3}, 1);
  const Tensor grad = Tensor::full({4, 3}, 2);
  for (const auto recompute : {Stage::Recompute::no, Stage::Recompute::yes}) {
    Stage stage(layers, recompute);
    for (const int microbatch : {0, 1}) {
      const Tensor y = stage.forward(microbatch, x, true);
      EXPECT_FALSE(y.requires_grad()) << "the graph is cut at the border";
      EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
    }
    EXPECT_EQ(stage.backward(0, grad).to_vector<float>(), grad.to_vector<float>());
    EXPECT_EQ(stage.backward_input(1, grad).to_vector<float>(), grad.to_vector<float>());
    stage.backward_weight(1);
    EXPECT_EQ(stage.alive(), 0U);

    stage.forward(2, x, false);  // the first stage of a model
    EXPECT_FALSE(stage.backward(2, grad).defined());
  }
}

}  // namespace
}  // namespace stagecoach
