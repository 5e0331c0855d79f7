// Threads change no result, and a sample's result does not depend on the rest of its batch.

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fresh_device;
using test::random_tensor;
using test::same_bytes;
using test::ThreadsFor;

/// An operation on tensors of these shapes. Each shape gives every one of 7 threads something to do.
struct Case {
  std::string name;
  std::vector<Shape> inputs;
  std::function<Tensor(const std::vector<Tensor>& in)> call;
};

/// batch_norm with running statistics of its own.
Tensor normalised(const std::vector<Tensor>& in, bool training) {
  const Tensor& weight = in[1];
  return batch_norm(in[0], weight, in[2], Tensor::zeros(weight.shape(), weight.dtype(), weight.device()),
                    Tensor::full(weight.shape(), 1, weight.dtype(), weight.device()), {.training = training});
}

const Shape kElements{2, 3, 50'001};  // elementwise loops go in pieces of 32 768
const Case kCases[] = {
    {"Add", {kElements, kElements}, [](const auto& in) { return add(in[0], in[1]); }},
    {"Scale", {kElements}, [](const auto& in) { return scale(in[0], 0.3); }},
    {"Relu", {kElements}, [](const auto& in) { return relu(in[0]); }},
    {"SumOfUses", {kElements}, [](const auto& in) { return add(scale(in[0], 2), scale(in[0], 3)); }},
    {"Linear", {{131, 70}, {45, 70}, {45}}, [](const auto& in) { return linear(in[0], in[1], in[2]); }},
    {"LinearFewSamples", {{3, 131}, {97, 131}}, [](const auto& in) { return linear(in[0], in[1]); }},
    {"LinearOfTokens", {{13, 9, 70}, {45, 70}}, [](const auto& in) { return linear(in[0], in[1]); }},
    {"Matmul", {{20, 17, 9}, {20, 9, 33}}, [](const auto& in) { return matmul(in[0], in[1]); }},
    {"GeluExact", {kElements}, [](const auto& in) { return gelu(in[0], GeluForm::exact); }},
    {"GeluTanh", {kElements}, [](const auto& in) { return gelu(in[0], GeluForm::tanh); }},
    {"LayerNorm", {{40, 5, 250}, {250}, {250}}, [](const auto& in) { return layer_norm(in[0], in[1], in[2]); }},
    {"Attention", {{5, 70, 36}}, [](const auto& in) { return attention(in[0], 4); }},
    {"CausalAttention", {{5, 70, 36}}, [](const auto& in) { return attention(in[0], 4, AttentionMask::causal); }},
    {"Transpose", {{40, 17, 9}}, [](const auto& in) { return transpose(in[0]); }},
    {"Dropout",
     {{40, 17, 9}},
     [](const auto& in) {
       return dropout(in[0], {0.3, Philox(1), 2});
     }},
    {"AddBroadcast", {{40, 17, 9}, {17, 9}}, [](const auto& in) { return add_broadcast(in[0], in[1]); }},
    {"TokenMean", {{40, 17, 9}}, [](const auto& in) { return token_mean(in[0]); }},
    {"Conv2d",
     {{115, 3, 9, 10}, {13, 3, 3, 3}, {13}},
     [](const auto& in) {
       return conv2d(in[0], in[1], in[2], {1, 1});
     }},
    {"Conv2dStride",
     {{115, 5, 9, 10}, {7, 5, 3, 3}},
     [](const auto& in) {
       return conv2d(in[0], in[1], {}, {2, 1});
     }},
    {"Conv2dOneImage",
     {{1, 3, 33, 32}, {8, 3, 5, 5}},
     [](const auto& in) {
       return conv2d(in[0], in[1], {}, {1, 2});
     }},
    {"MaxPool2x2",
     {{40, 5, 9, 10}},
     [](const auto& in) {
       return max_pool2d(in[0], {2, 2, 0});
     }},
    {"MaxPool3x3",
     {{40, 5, 9, 10}},
     [](const auto& in) {
       return max_pool2d(in[0], {3, 2, 1});
     }},
    {"GlobalAveragePool", {{40, 5, 9, 10}}, [](const auto& in) { return global_average_pool(in[0]); }},
    {"Flatten", {{40, 5, 9, 10}}, [](const auto& in) { return flatten(in[0]); }},
    {"Narrow", {{40, 5, 9, 10}}, [](const auto& in) { return in[0].narrow(3, 30); }},
    {"Softmax", {{200, 33}}, [](const auto& in) { return softmax(in[0]); }},
    {"LogSoftmax", {{200, 33}}, [](const auto& in) { return log_softmax(in[0]); }},
    {"CrossEntropy",
     {{200, 33}},
     [](const auto& in) { return cross_entropy(in[0], test::random_labels(200, 33, in[0].device())); }},
    {"MeanSquaredError", {kElements, kElements}, [](const auto& in) { return mean_squared_error(in[0], in[1]); }},
    {"BatchNormInTraining", {{20, 17, 9, 5}, {17}, {17}}, [](const auto& in) { return normalised(in, true); }},
    {"BatchNormInInference", {{20, 17, 9, 5}, {17}, {17}}, [](const auto& in) { return normalised(in, false); }},
};

/// What gtest prints for a parameter; else it prints the bytes.
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class EveryOperation : public ::testing::TestWithParam<Case> {
 protected:
  /// The output, and the gradients of all inputs.
  std::vector<Tensor> results(DType dtype, int threads) const {
    const ThreadsFor held(device_, threads);
    std::vector<Tensor> inputs;
    for (const Shape& shape : GetParam().inputs) {
      inputs.push_back(test::random_leaf(shape, "input " + std::to_string(inputs.size()), dtype, device_));
    }
    const Tensor output = GetParam().call(inputs);
    backward(output, random_tensor(output.shape(), "upstream", dtype, device_));
    std::vector<Tensor> all{output};
    for (const Tensor& input : inputs) {
      all.push_back(input.grad());
    }
    return all;
  }

  Device device_ = fresh_device();
};
std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Threads, EveryOperation, ::testing::ValuesIn(kCases), name_of_case);

TEST_P(EveryOperation, GivesTheSameBytesWithAnyNumberOfThreads) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const std::vector<Tensor> expected = results(dtype, 1);
    for (const int threads : {2, 3, 7}) {
      const std::vector<Tensor> got = results(dtype, threads);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(same_bytes(got[i], expected[i]))
            << (i == 0 ? "the output" : "gradient " + std::to_string(i - 1)) << ", " << threads << " threads";
      }
    }
  }
}

TEST(Threads, RunningStatisticsAreTheSameBytes) {
  const Device device = fresh_device();
  const Tensor x = random_tensor({20, 17, 9, 5}, "x", DType::float32, device);
  const Tensor ones = Tensor::full({17}, 1, DType::float32, device);
  const auto statistics = [&](int threads) {
    const ThreadsFor held(device, threads);
    const Tensor mean = Tensor::zeros({17}, DType::float32, device);
    const Tensor variance = ones.clone();
    batch_norm(x, ones, ones, mean, variance);
    return std::pair{mean, variance};
  };
  const auto [mean, variance] = statistics(1);
  for (const int threads : {2, 3, 7}) {
    EXPECT_TRUE(same_bytes(statistics(threads).first, mean)) << threads << " threads";
    EXPECT_TRUE(same_bytes(statistics(threads).second, variance)) << threads << " threads";
  }
}

TEST(Threads, NormalizeAndCountCorrectAreTheSame) {
  const Device device = fresh_device();
  std::vector<std::uint8_t> pixels(20 * 3 * 7 * 5);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(i * 11);
  }
  const Tensor images = Tensor::from(pixels, {20, 3, 7, 5}, device);
  const Tensor logits = random_tensor({200, 5}, "logits", DType::float32, device);
  const Tensor labels = test::random_labels(200, 5, device);
  const auto results = [&](int threads) {
    const ThreadsFor held(device, threads);
    Tensor count = Tensor::zeros({}, DType::int32, device);
    count_correct(logits, labels, count);
    return std::pair{normalize(images), count};
  };
  const auto [expected, count] = results(1);
  for (const int threads : {2, 3, 7}) {
    EXPECT_TRUE(same_bytes(results(threads).first, expected)) << threads << " threads";
    EXPECT_TRUE(same_bytes(results(threads).second, count)) << threads << " threads";
  }
}

/// A copy of `batch` in which all samples but `kept` are not numbers: any trace of them in a result is seen.
template <class T>
Tensor only_sample(const Tensor& batch, std::int64_t kept) {
  Tensor copy = batch.clone();
  T* values = copy.mutable_data<T>();
  const std::int64_t row = batch.numel() / batch.size(0);
  for (std::int64_t i = 0; i < batch.numel(); ++i) {
    if (i / row != kept) {
      values[i] = std::numeric_limits<T>::quiet_NaN();
    }
  }
  return copy;
}

/// Checks that `call` gives sample i of `batch` the bytes that it gives it in a batch of its own, in any company.
template <class T>
void check_samples_alone(const Tensor& batch, const std::function<Tensor(const Tensor&)>& call) {
  const Tensor whole = call(batch);
  for (std::int64_t i = 0; i < batch.size(0); ++i) {
    const Tensor expected = call(batch.narrow(i, 1).clone());
    ASSERT_TRUE(same_bytes(whole.narrow(i, 1), expected)) << "sample " << i << " in the whole batch";
    ASSERT_TRUE(same_bytes(call(only_sample<T>(batch, i)).narrow(i, 1), expected)) << "sample " << i << " beside NaN";
    ASSERT_TRUE(same_bytes(call(batch.narrow(i, batch.size(0) - i)).narrow(0, 1), expected))
        << "sample " << i << " at the front of the rest";
  }
}

/// The batch sizes around the widths at which kernels take another path.
class SamplesOfABatch : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, SamplesOfABatch, ::testing::Values(2, 7, 16, 17, 37));

template <class T>
void check_linear(std::int64_t samples) {
  const DType dtype = dtype_of<T>;
  const Tensor weight = random_tensor({9, 21}, "weight", dtype);
  const Tensor bias = random_tensor({9}, "bias", dtype);
  check_samples_alone<T>(random_tensor({samples, 21}, "x", dtype),
                         [&](const Tensor& x) { return linear(x, weight, bias); });
  check_samples_alone<T>(random_tensor({samples, 9}, "upstream", dtype), [&](const Tensor& upstream) {
    Tensor x = Tensor::zeros({upstream.size(0), 21}, dtype).set_requires_grad(true);
    backward(linear(x, weight), upstream);
    return x.grad();
  });
}

TEST_P(SamplesOfABatch, AreAloneInLinear) {
  check_linear<float>(GetParam());
  check_linear<double>(GetParam());
}

template <class T>
void check_conv2d(std::int64_t samples, const Conv2dSettings& settings) {
  const DType dtype = dtype_of<T>;
  const Tensor weight = random_tensor({5, 2, 3, 3}, "weight", dtype);
  const Tensor bias = random_tensor({5}, "bias", dtype);
  const Tensor x = random_tensor({samples, 2, 5, 4}, "x", dtype);
  const auto forward = [&](const Tensor& in) { return conv2d(in, weight, bias, settings); };
  check_samples_alone<T>(x, forward);
  check_samples_alone<T>(random_tensor(forward(x).shape(), "upstream", dtype), [&](const Tensor& upstream) {
    Tensor in = Tensor::zeros({upstream.size(0), 2, 5, 4}, dtype).set_requires_grad(true);
    backward(forward(in), upstream);
    return in.grad();
  });
}

TEST_P(SamplesOfABatch, AreAloneInConv2d) {
  for (const Conv2dSettings& settings : {Conv2dSettings{1, 1}, Conv2dSettings{2, 0}}) {
    check_conv2d<float>(GetParam(), settings);
    check_conv2d<double>(GetParam(), settings);
  }
}

/// One transformer block without its residual additions.
template <class T>
void check_tokens(std::int64_t samples) {
  const DType dtype = dtype_of<T>;
  const Tensor ones = Tensor::full({6}, 1, dtype);
  const Tensor weight = random_tensor({18, 6}, "weight", dtype);
  const Tensor x = random_tensor({samples, 5, 6}, "x", dtype);
  const auto forward = [&](const Tensor& in) {
    return gelu(attention(linear(layer_norm(in, ones, ones), weight), 2), GeluForm::tanh);
  };
  check_samples_alone<T>(x, forward);
  const Tensor sample = random_tensor({5, 6}, "sample", dtype);
  check_samples_alone<T>(random_tensor(x.shape(), "upstream", dtype), [&](const Tensor& upstream) {
    Tensor in = add_broadcast(Tensor::zeros(upstream.shape(), dtype), sample).set_requires_grad(true);
    backward(forward(in), upstream);
    return in.grad();
  });
}

TEST_P(SamplesOfABatch, AreAloneInTransformers) {
  check_tokens<float>(GetParam());
  check_tokens<double>(GetParam());
}

}  // namespace
}  // namespace stagecoach
