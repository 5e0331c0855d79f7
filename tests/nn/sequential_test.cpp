#include "nn/sequential.h"

#include "core/base/error.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

TEST(Sequential, RunsItsLayersInOrder) {
  Sequential model;
  model.add("pool", std::make_shared<MaxPool2d>(2)).add("flatten", std::make_shared<Flatten>());
  EXPECT_EQ(model.forward(Tensor::zeros({2, 3, 4, 4})).shape(), (Shape{2, 12}));
  EXPECT_EQ(model.size(), 2);
  EXPECT_EQ(model.name(1), "flatten");
  EXPECT_EQ(model.layer(0), model.children()[0].second);
  EXPECT_THROW(model.layer(2), Error);
  EXPECT_THROW(model.name(-1), Error);
}

TEST(Sequential, SlicesShareLayersAndNames) {
  const auto model = make_model("convnet");
  model->materialize(1);
  const auto head = model->slice(7, 12);
  EXPECT_EQ(head->name(0), "fc1");
  EXPECT_EQ(head->layer(0), model->layer(7));
  EXPECT_EQ(head->named_parameters()[0].first, "fc1.weight");
  head->train(false);
  EXPECT_FALSE(model->layer(7)->is_training());
  EXPECT_TRUE(model->layer(6)->is_training());
}

TEST(Sequential, AnEmptySlicePassesItsInputOn) {
  const auto model = make_model("toy");
  const Tensor x = random_tensor({1, 4}, "x", DType::float32);
  EXPECT_TRUE(model->slice(1, 1)->forward(x).is_same(x));
  EXPECT_THROW(model->slice(2, 1), Error);
  EXPECT_THROW(model->slice(-1, 1), Error);
  EXPECT_THROW(model->slice(0, 4), Error);
}

/// Idea 6 of the design: first values do not depend on how a model is cut.
TEST(Sequential, SlicesStartWithTheWeightsOfTheWhole) {
  for (const char* name : {"toy", "convnet", "resnet18"}) {
    const auto whole = make_model(name);
    whole->materialize(42);
    const NamedTensors expected = whole->named_parameters();
    for (int stages = 1; stages <= 3; ++stages) {
      const auto cut = make_model(name);
      NamedTensors found;
      for (int stage = stages - 1; stage >= 0; --stage) {  // last stage first: the order must not matter either
        const auto part = cut->slice(cut->size() * stage / stages, cut->size() * (stage + 1) / stages);
        part->materialize(42);
        const NamedTensors parameters = part->named_parameters();
        found.insert(found.begin(), parameters.begin(), parameters.end());
      }
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].first, expected[i].first);
        EXPECT_TRUE(same_bytes(found[i].second, expected[i].second)) << found[i].first;
      }
    }
  }
}

TEST(Sequential, SlicesInTurnGiveTheOutputOfTheWhole) {
  const auto model = make_model("convnet");
  model->materialize(3);
  const Tensor x = random_tensor({2, 3, 32, 32}, "x", DType::float32);
  const Tensor y = model->slice(5, 12)->forward(model->slice(0, 5)->forward(x));
  EXPECT_TRUE(same_bytes(y, model->forward(x)));
}

}  // namespace
}  // namespace stagecoach
