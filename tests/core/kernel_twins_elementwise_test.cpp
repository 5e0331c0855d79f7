// Fills, copies and elementwise kernels.

#include "tests/core/kernel_twins.h"

namespace stagecoach {
namespace {

using test::kCuda;
using test::same_bytes;
using test::Tensors;

class ElementwiseTwins : public test::KernelTwins {};
STAGECOACH_KERNEL_TWINS(ElementwiseTwins);

/// Copies between the devices, and fills of their memory.
class PartsTwins : public ElementwiseTwins {};
STAGECOACH_CUDA_TWINS(PartsTwins);

const DType kAllTypes[] = {DType::float32, DType::float64, DType::int32, DType::uint8, DType::float16};
// Around a warp and a block of threads, and primes.
const Shape kElementwiseShapes[] = {{},    {1},   {0},   {0, 3}, {3, 5},     {31},         {33},
                                    {255}, {256}, {257}, {1009}, {2, 3, 37}, {5, 1, 7, 3}, {3, 1021}};

/// Calls body(shape) for all of kElementwiseShapes.
template <class Body>
void for_each_shape(const Body& body) {
  for (const Shape& shape : kElementwiseShapes) {
    SCOPED_TRACE(to_string(shape));
    body(shape);
  }
}

/// 0, 1, 2, … as any type.
Tensor counted(std::int64_t count, DType dtype) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  std::vector<std::int32_t> integers(bytes.size());
  std::vector<Half> halves(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    integers[i] = static_cast<std::int32_t>(i);
    bytes[i] = static_cast<std::uint8_t>(i);
    halves[i] = to_half(static_cast<float>(i));
  }
  switch (dtype) {
    case DType::uint8:
      return Tensor::from(bytes, {count});
    case DType::int32:
      return Tensor::from(integers, {count});
    case DType::float16:
      return Tensor::from(halves, {count});
    default:
      return test::typed(integers, {count}, dtype);
  }
}

TEST_P(ElementwiseTwins, Fill) {
  for (const DType dtype : kAllTypes) {
    for_each_shape([&](const Shape& shape) {
      for (const double value : {0.0, 3.0, 200.0}) {
        expect_twins({test::unset(shape, dtype)}, [&](const Kernels& k, Tensors& t) { k.fill(value, t[0]); });
      }
    });
  }
  expect_twins({unset({37})}, [](const Kernels& k, Tensors& t) { k.fill(-0.1, t[0]); });
  expect_twins({test::unset({37}, DType::int32)}, [](const Kernels& k, Tensors& t) { k.fill(-123456789, t[0]); });
}

// Seven bytes at offset 3 begin and end within a word.
TEST_P(PartsTwins, FillOfPartsAtOddOffsets) {
  for (const DType dtype : kAllTypes) {
    for (std::int64_t offset = 0; offset < 9; ++offset) {
      for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 17, 300}) {
        const Tensor here = counted(320, dtype);
        Tensor there = here.to(kCuda);
        for (const Tensor& whole : {here, there}) {
          whole.alias({count}, offset).fill(99);
        }
        ASSERT_TRUE(same_bytes(there, here)) << name_of(dtype) << ", " << count << " from " << offset;
      }
    }
  }
}

TEST_P(ElementwiseTwins, CopyWithinTheDevice) {
  for_each_shape([](const Shape& shape) {
    expect_twins({random(shape, "x"), unset(shape)}, [](const Kernels& k, Tensors& t) { k.copy(t[0], t[1]); });
  });
}

// From and to every offset within a word, there, within the device, and back.
TEST_P(PartsTwins, CopyOfPartsAtOddOffsets) {
  for (const DType dtype : kAllTypes) {
    const Tensor source = counted(300, dtype);
    const Tensor there = source.to(kCuda);
    for (const std::int64_t count : {0, 1, 7, 64, 251}) {
      for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {3, 0}, {0, 5}, {3, 5}, {1, 4}}) {
        SCOPED_TRACE(fmt::format("{}, {} from {} to {}", name_of(dtype), count, from, to));
        const auto copied = [&, n = count, a = from, b = to](const Tensor& x, Device device) {
          Tensor out = Tensor::full({300}, 42, dtype, device);
          out.alias({n}, b).copy_from(x.alias({n}, a));
          return out;
        };
        const Tensor expected = copied(source, {});
        EXPECT_TRUE(same_bytes(copied(source, kCuda), expected)) << "to the GPU";
        EXPECT_TRUE(same_bytes(copied(there, kCuda), expected)) << "within the GPU";
        EXPECT_TRUE(same_bytes(copied(there, {}), expected)) << "from the GPU";
      }
    }
  }
}

TEST_P(ElementwiseTwins, ConvertToHalvesAndBack) {
  for_each_shape([](const Shape& shape) {
    const Tensor x = test::random_tensor(shape, "x", DType::float32);
    expect_twins({x, test::unset(shape, DType::float16), test::unset(shape, DType::float32)},
                 [](const Kernels& k, Tensors& t) {
                   k.convert(t[0], t[1]);
                   k.convert(t[1], t[2]);
                 });
  });
}

TEST_P(ElementwiseTwins, Add) {
  for_each_shape([](const Shape& shape) {
    expect_twins({random(shape, "a"), random(shape, "b"), unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.add(t[0], t[1], t[2]); });
  });
}

TEST_P(ElementwiseTwins, AddScaled) {
  for_each_shape([](const Shape& shape) {
    expect_twins({random(shape, "x"), random(shape, "sum")},
                 [](const Kernels& k, Tensors& t) { k.add_scaled(t[0], -0.3, t[1]); });
  });
}

TEST_P(ElementwiseTwins, Scale) {
  for_each_shape([](const Shape& shape) {
    expect_twins({random(shape, "x"), unset(shape)}, [](const Kernels& k, Tensors& t) { k.scale(t[0], 1.7, t[1]); });
  });
}

// As the backward of relu does with a gradient that nobody else sees.
TEST_P(ElementwiseTwins, ReluGradInPlace) {
  expect_twins({random({1009}, "grad"), random({1009}, "y")},
               [](const Kernels& k, Tensors& t) { k.relu_grad(t[0], t[1], t[0]); });
}

TEST_P(ElementwiseTwins, Accumulate) {
  expect_twins({random({}, "x"), Tensor::full({}, 1e6, DType::float64)}, [](const Kernels& k, Tensors& t) {
    for (int i = 0; i < 5; ++i) {
      k.accumulate(t[0], t[1]);
    }
  });
}

TEST_P(ElementwiseTwins, Increment) {
  for (const int count : {0, 1, 2, 31, 70, 300}) {
    SCOPED_TRACE(count);
    Tensors counters;
    for (int i = 0; i < count; ++i) {
      counters.push_back(Tensor::full({}, i, DType::int32));
    }
    expect_twins(counters, [](const Kernels& k, Tensors& t) { k.increment(t); });
  }
}

TEST_P(ElementwiseTwins, Relu) {
  for_each_shape([](const Shape& shape) {
    expect_twins({random(shape, "x"), unset(shape)}, [](const Kernels& k, Tensors& t) { k.relu(t[0], t[1]); });
  });
  const double none = std::numeric_limits<double>::quiet_NaN();
  const Tensor special = test::typed(std::vector<double>{none, 0, -0.0, 1e30, -1e30}, {5}, type());
  expect_twins({special, unset({5})}, [](const Kernels& k, Tensors& t) { k.relu(t[0], t[1]); });
}

TEST_P(ElementwiseTwins, ReluGrad) {
  for_each_shape([](const Shape& shape) {
    Tensor y = random(shape, "y");
    kernels({}).relu(random(shape, "y"), y);
    expect_twins({random(shape, "grad"), y, unset(shape)},
                 [](const Kernels& k, Tensors& t) { k.relu_grad(t[0], t[1], t[2]); });
  });
}

}  // namespace
}  // namespace stagecoach
