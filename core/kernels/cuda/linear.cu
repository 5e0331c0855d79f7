/// @file
/// Linear layers: three matrix products, which differ in the layout of their operands. The kernels, from plain to
/// tensor cores, are in matrix_product.cuh, which names the page with their measured speeds.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/matrix_product.cuh"
#include "core/kernels/cuda/products.h"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

struct LinearExtents {
  LinearExtents(const Tensor& x, const Tensor& y)
      : samples(to_int(x.size(0))), inputs(to_int(x.size(1))), outputs(to_int(y.size(1))) {
    to_int(x.numel(), kMaxElements);
    to_int(y.numel(), kMaxElements);
    to_int(x.size(1) * y.size(1), kMaxElements);  // of the weight
  }
  int samples;
  int inputs;
  int outputs;
};

/// y[n, o] = sum over i of x[n, i] weight[o, i], + bias[o]
void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y, Planner planner) {
  dispatch_floating(x.dtype(), "linear", [&]<class T>() {
    const LinearExtents e(x, y);
    const ProductExtents product{e.samples, e.outputs, e.inputs};
    const MatrixOperand<T, true> a{x.data<T>(), e.samples, e.inputs, 1};
    const MatrixOperand<T, true> b{weight.data<T>(), e.outputs, e.inputs, 1};
    const MatrixResult<T> result{y.mutable_data<T>(), e.outputs, data_or_null<T>(bias)};
    multiply<T>(x.device(), planner(product, x.dtype(), x.device()), a, b, result, product);
  });
}

/// grad_x[n, i] = sum over o of grad_y[n, o] weight[o, i]
void linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x, Planner planner) {
  dispatch_floating(grad_y.dtype(), "linear_grad_input", [&]<class T>() {
    const LinearExtents e(grad_x, grad_y);
    const ProductExtents product{e.samples, e.inputs, e.outputs};
    const MatrixOperand<T, true> a{grad_y.data<T>(), e.samples, e.outputs, 1};
    const MatrixOperand<T, false> b{weight.data<T>(), e.inputs, 1, e.inputs};
    const MatrixResult<T> result{grad_x.mutable_data<T>(), e.inputs, nullptr};
    multiply<T>(grad_y.device(), planner(product, grad_y.dtype(), grad_y.device()), a, b, result, product);
  });
}

/// x [N, I] as the second operand [N, I + 1], whose additional last column is ones.
template <class T>
struct InputsAndOnes {
  static constexpr bool kContiguousK = false;
  static constexpr int kOnes = kOutside + 1;
  using Mn = int;
  using K = int;  // offset of the sample
  const T* x;
  int inputs;
  __device__ Mn mn(int index) const { return index < inputs ? index : index == inputs ? kOnes : kOutside; }
  __device__ K k(int n, int end) const { return n < end ? n * inputs : kOutside; }
  __device__ T load(Mn input, K sample) const { return load_at(x, input + sample, input == kOnes ? T(1) : T(0)); }
  VectorOperand<false> vectors() const { return {x, inputs, inputs}; }
};

/// grad_weight[o, i] = sum over n of grad_y[n, o] x[n, i], and in an additional column grad_bias[o] = sum over n of
/// grad_y[n, o]. The plan is the same with or without that column.
void linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias,
                        Planner planner) {
  dispatch_floating(x.dtype(), "linear_grad_weight", [&]<class T>() {
    const LinearExtents e(x, grad_y);
    ProductExtents product{e.outputs, e.inputs, e.samples};
    const ProductPlan plan = planner(product, x.dtype(), x.device());
    product.n += grad_bias.defined() ? 1 : 0;
    const MatrixOperand<T, false> a{grad_y.data<T>(), e.outputs, 1, e.outputs};
    const InputsAndOnes<T> b{x.data<T>(), e.inputs};
    const WeightResult<T> result{mutable_data_or_null<T>(grad_weight), mutable_data_or_null<T>(grad_bias), e.inputs};
    multiply<T>(x.device(), plan, a, b, result, product);
  });
}

void add_linear(Kernels& table) {
  table.linear = [](const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
    linear(x, weight, bias, y, fastest_plan);
  };
  table.linear_grad_input = [](const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) {
    linear_grad_input(grad_y, weight, grad_x, fastest_plan);
  };
  table.linear_grad_weight = [](const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias) {
    linear_grad_weight(grad_y, x, grad_weight, grad_bias, fastest_plan);
  };
}

}  // namespace stagecoach::cuda
