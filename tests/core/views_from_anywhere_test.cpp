// Tensors that begin anywhere in their storage, as parts of a bucket do: kernels that read or write several neighbours
// at once must see that these do not begin where such a group may.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/cuda_backend.h"
#include "core/kernels/kernels.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using Tensors = std::vector<Tensor>;
using Call = std::function<void(const Kernels& on, Tensors& tensors)>;

/// A copy of `tensor` whose first element is number `offset` of its storage.
Tensor shifted(const Tensor& tensor, std::int64_t offset) {
  Tensor buffer = Tensor::zeros({tensor.numel() + offset}, tensor.dtype(), tensor.device());
  Tensor view = buffer.narrow(offset, tensor.numel()).reshape(tensor.shape());
  view.copy_from(tensor);
  return view;
}

class ViewsFromAnywhere : public ::testing::TestWithParam<Device> {
 protected:
  static Tensor some(const Shape& shape, const char* name) {
    return test::random_tensor(shape, name, DType::float32, GetParam());
  }
  /// The last tensor is the result.
  static void check(const Tensors& tensors, const Call& call) {
    const Kernels& on = kernels(GetParam());
    Tensors whole = tensors;
    call(on, whole);
    for (std::int64_t offset = 1; offset <= 4; ++offset) {
      Tensors views;
      for (const Tensor& tensor : tensors) {
        views.push_back(shifted(tensor, offset));
      }
      call(on, views);
      EXPECT_TRUE(test::same_bytes(views.back(), whole.back())) << "from element " << offset << " on";
    }
  }
  static void check_products() {
    Tensor none;
    check({some({20, 6}, "x"), some({40, 6}, "weight"), some({20, 40}, "y")},
          [](const Kernels& on, Tensors& t) { on.linear(t[0], t[1], {}, t[2]); });
    check({some({20, 40}, "grad_y"), some({40, 6}, "weight"), some({20, 6}, "grad_x")},
          [](const Kernels& on, Tensors& t) { on.linear_grad_input(t[0], t[1], t[2]); });
    check({some({20, 40}, "grad_y"), some({20, 6}, "x"), some({40, 6}, "grad_weight")},
          [&](const Kernels& on, Tensors& t) { on.linear_grad_weight(t[0], t[1], t[2], none); });
    const Window window{3, 1, 1};
    check({some({2, 3, 4, 6}, "x"), some({20, 3, 3, 3}, "weight"), some({2, 20, 4, 6}, "y")},
          [&](const Kernels& on, Tensors& t) { on.conv2d(t[0], t[1], {}, window, t[2]); });
    check({some({2, 3, 4, 6}, "grad_y"), some({3, 20, 3, 3}, "weight"), some({2, 20, 4, 6}, "grad_x")},
          [&](const Kernels& on, Tensors& t) { on.conv2d_grad_input(t[0], t[1], window, t[2]); });
    check({some({2, 20, 4, 6}, "grad_y"), some({2, 3, 4, 6}, "x"), some({20, 3, 3, 3}, "grad_weight")},
          [&](const Kernels& on, Tensors& t) { on.conv2d_grad_weight(t[0], t[1], window, t[2], none); });
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ViewsFromAnywhere, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(ViewsFromAnywhere, Products) { check_products(); }

TEST_P(ViewsFromAnywhere, ProductsInTf32) {
  if (GetParam().type != DeviceType::cuda) {
    GTEST_SKIP() << "a CPU has no tensor cores";
  }
  cuda::allow_tf32(true);
  check_products();
  cuda::allow_tf32(false);
}

TEST_P(ViewsFromAnywhere, Elementwise) {
  const Shape shape{4, 6};
  check({some(shape, "y")}, [](const Kernels& on, Tensors& t) { on.fill(0.5, t[0]); });
  check({some(shape, "a"), some(shape, "b"), some(shape, "sum")},
        [](const Kernels& on, Tensors& t) { on.add(t[0], t[1], t[2]); });
  check({some(shape, "x"), some(shape, "y")}, [](const Kernels& on, Tensors& t) { on.relu(t[0], t[1]); });
  check({some(shape, "grad_y"), some(shape, "y"), some(shape, "grad_x")},
        [](const Kernels& on, Tensors& t) { on.relu_grad(t[0], t[1], t[2]); });
}

TEST_P(ViewsFromAnywhere, BatchNorm) {
  const Shape channels{3};
  const Shape planes{2, 3, 4, 4};
  check({some(planes, "x"), some(channels, "mean"), some(channels, "deviation"), some(channels, "weight"),
         some(channels, "bias"), some(planes, "y")},
        [](const Kernels& on, Tensors& t) { on.batch_norm(t[0], t[1], t[2], t[3], t[4], {}, Activation::none, t[5]); });
  check({some(planes, "grad_y"), some(channels, "deviation"), some(channels, "weight"), some(planes, "grad_x")},
        [](const Kernels& on, Tensors& t) { on.batch_norm_grad_input(t[0], t[1], t[2], t[3]); });
  check({some(planes, "grad_y"), some(planes, "x"), some(channels, "mean"), some(channels, "deviation"),
         some(channels, "weight"), some(channels, "bias"), some(channels, "grad_weight"), some(channels, "grad_bias"),
         some(planes, "grad_x")},
        [](const Kernels& on, Tensors& t) {
          on.batch_norm_grad_input_of_batch(t[0], t[1], t[2], t[3], t[4], t[5], Activation::relu, t[6], t[7], 32, t[8]);
        });
  check({some({33, 3, 8, 8}, "x"), some(channels, "mean"), some(channels, "variance")},
        [](const Kernels& on, Tensors& t) { on.batch_statistics(t[0], t[1], t[2]); });
}

}  // namespace
}  // namespace stagecoach
