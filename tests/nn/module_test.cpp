#include "nn/module.h"

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/sequential.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::same_bytes;

std::shared_ptr<Sequential> small_model() {
  auto inner = std::make_shared<Sequential>();
  inner->add("conv", std::make_shared<Conv2d>(2, 3, 3)).add("bn", std::make_shared<BatchNorm2d>(3));
  auto model = std::make_shared<Sequential>();
  model->add("body", inner).add("flatten", std::make_shared<Flatten>()).add("fc", std::make_shared<Linear>(12, 5));
  return model;
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
  }
  return names;
}

TEST(Module, NamesParametersAndBuffersInRegistrationOrder) {
  const auto model = small_model();
  model->materialize(1);
  EXPECT_EQ(names_of(model->named_parameters()),
            (std::vector<std::string>{"body.conv.weight", "body.conv.bias", "body.bn.weight", "body.bn.bias",
                                      "fc.weight", "fc.bias"}));
  EXPECT_EQ(names_of(model->named_buffers()),
            (std::vector<std::string>{"body.bn.running_mean", "body.bn.running_var"}));
  EXPECT_EQ(names_of(model->layer(2)->named_parameters("fc.")), (std::vector<std::string>{"fc.weight", "fc.bias"}));
}

TEST(Module, HandlesNameTheLiveParameters) {
  Linear layer(2, 1);
  layer.materialize(1);
  layer.named_parameters()[0].second.fill(1);
  layer.named_parameters()[1].second.fill(0.5);
  const Tensor y = layer.forward(Tensor::from<float>({2, 3}, {1, 2}));
  EXPECT_EQ(y.item(), 5.5);
}

TEST(Module, OnlyParametersRequireGradients) {
  const auto model = small_model();
  model->materialize(1);
  for (const auto& [name, tensor] : model->named_parameters()) {
    EXPECT_TRUE(tensor.requires_grad() && tensor.is_leaf()) << name;
  }
  for (const auto& [name, tensor] : model->named_buffers()) {
    EXPECT_FALSE(tensor.requires_grad()) << name;
  }
}

TEST(Module, CountsParametersWithOrWithoutMemory) {
  const auto model = small_model();
  const std::int64_t expected = (3 * 2 * 9 + 3) + (3 + 3) + (5 * 12 + 5);
  EXPECT_EQ(parameter_count(*model), expected);
  model->materialize(1);
  EXPECT_EQ(parameter_count(*model), expected);
}

TEST(Module, SaysSoWhenItHasNoMemory) {
  const auto model = small_model();
  EXPECT_TRUE(fails_with<Error>({"has no memory yet; call materialize(seed)"}, [&] {
    model->forward(Tensor::zeros({1, 2, 4, 4}));
  }));
  EXPECT_TRUE(fails_with<Error>({"body.conv.weight"}, [&] { model->named_parameters(); }));
}

TEST(Module, RefusesToBeMaterializedTwice) {
  const auto model = small_model();
  model->layer(2)->materialize(1, {}, DType::float32, "fc.");
  EXPECT_TRUE(fails_with<Error>({"already has memory"}, [&] { model->materialize(1); }));
  EXPECT_THROW(model->layer(0)->named_parameters(), Error);  // the refusal allocated nothing
}

TEST(Module, SaysBeforeItAllocatesThatItsWeightsDoNotFit) {
  const auto vit = make_model("vit", {.sizes = {.depth = 256, .width = 8192}});
  EXPECT_TRUE(
      fails_with<Error>({"its weights need 8", "are available", "smaller model"}, [&] { vit->materialize(1); }));
}

TEST(Module, RefusesANameGivenTwiceAndAnEmptyOne) {
  auto model = small_model();
  EXPECT_TRUE(fails_with<Error>({"'fc' is taken"}, [&] { model->add("fc", std::make_shared<ReLU>()); }));
  EXPECT_THROW(model->add("", std::make_shared<ReLU>()), Error);
  EXPECT_THROW(model->add("null", nullptr), Error);
}

TEST(Module, TrainReachesAllChildren) {
  const auto model = small_model();
  EXPECT_TRUE(model->is_training());
  model->train(false);
  EXPECT_FALSE(model->is_training());
  EXPECT_FALSE(model->layer(0)->children()[1].second->is_training());
  model->train();
  EXPECT_TRUE(model->layer(0)->children()[1].second->is_training());
}

TEST(Module, MaterializesInTheWantedTypeAndOnTheWantedDevice) {
  const auto model = small_model();
  model->materialize(1, Device{DeviceType::cpu, 3}, DType::float64);
  for (const auto& [name, tensor] : model->named_parameters()) {
    EXPECT_EQ(tensor.dtype(), DType::float64) << name;
    EXPECT_EQ(tensor.device(), (Device{DeviceType::cpu, 3})) << name;
  }
}

TEST(Init, DependsOnSeedAndNameAndIndexAlone) {
  const Init init = Init::uniform(0.5);
  const Tensor values = init.make({4, 3}, DType::float32, 7, "fc.weight");
  EXPECT_TRUE(same_bytes(values, init.make({4, 3}, DType::float32, 7, "fc.weight")));
  EXPECT_FALSE(same_bytes(values, init.make({4, 3}, DType::float32, 8, "fc.weight")));
  EXPECT_FALSE(same_bytes(values, init.make({4, 3}, DType::float32, 7, "fc.bias")));
  const Philox random(7, "fc.weight");
  for (std::uint64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(values.data<float>()[i], static_cast<float>(random.uniform(i) - 0.5));
  }
}

TEST(Init, Float32IsFloat64Rounded) {
  const Init init = Init::uniform(1 / std::sqrt(3.0));
  const auto wide = init.make({1000}, DType::float64, 7, "w").to_vector<double>();
  const auto narrow = init.make({1000}, DType::float32, 7, "w").to_vector<float>();
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(narrow[i], static_cast<float>(wide[i]));
  }
}

TEST(Init, LinearAndConvolutionFillTheirBoundsEvenly) {
  const Linear linear(100, 300);
  const Conv2d conv(4, 300, 5);  // fan-in 100 too
  for (const Module* layer : {static_cast<const Module*>(&linear), static_cast<const Module*>(&conv)}) {
    const_cast<Module*>(layer)->materialize(3);
    for (const auto& [name, tensor] : layer->named_parameters()) {
      const auto values = tensor.to_vector<float>();
      const auto count = static_cast<double>(values.size());
      const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
      double variance = 0;
      for (const float value : values) {
        EXPECT_LE(std::abs(value), 0.1F);
        variance += (value - mean) * (value - mean) / count;
      }
      // The standard errors are 0.0577 / sqrt(count) and 0.00298 / sqrt(count); five of them are allowed.
      EXPECT_NEAR(mean, 0, 5 * 0.0578 / std::sqrt(count)) << name;
      EXPECT_NEAR(variance, 0.01 / 3, 5 * 0.00299 / std::sqrt(count)) << name;
    }
  }
}

}  // namespace
}  // namespace stagecoach
