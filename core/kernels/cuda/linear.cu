/// @file
/// Linear layers: three matrix products, which differ in where their operands lie. The kernels, from plain to tensor
/// cores, are in matrix_product.cuh, which names the page of their measured speeds.

#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/matrix_product.cuh"

namespace stagecoach::cuda {

/// y[n, o] = sum over i of x[n, i] weight[o, i], + bias[o]
template <class T>
void linear(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, const T* x, const T* weight,
            const T* bias, T* y, T* partial) {
  const MatrixOperand<T, true> a{x, e.samples, e.inputs, 1};
  const MatrixOperand<T, true> b{weight, e.outputs, e.inputs, 1};
  multiply(stream, plan, a, b, MatrixResult<T>{y, e.outputs, bias}, e.forward(), partial);
}

/// grad_x[n, i] = sum over o of grad_y[n, o] weight[o, i]
template <class T>
void linear_grad_input(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, const T* grad_y,
                       const T* weight, T* grad_x, T* partial) {
  const MatrixOperand<T, true> a{grad_y, e.samples, e.outputs, 1};
  const MatrixOperand<T, false> b{weight, e.inputs, 1, e.inputs};
  multiply(stream, plan, a, b, MatrixResult<T>{grad_x, e.inputs, nullptr}, e.grad_input(), partial);
}

/// x [N, I] seen from the inputs, and behind the last one from a column of ones, along the samples.
template <class T>
struct InputsAndOnes {
  static constexpr bool kDepthInARow = false;
  static constexpr int kOnes = kOutside + 1;
  using Outer = int;
  using Depth = int;  // where the sample begins
  const T* x;
  int inputs;
  __device__ Outer outer(int index) const { return index < inputs ? index : index == inputs ? kOnes : kOutside; }
  __device__ Depth depth(int n, int end) const { return n < end ? n * inputs : kOutside; }
  __device__ T load(Outer input, Depth sample) const {
    return load_at(x, input + sample, input == kOnes ? T(1) : T(0));
  }
};

/// grad_weight[o, i] = sum over n of grad_y[n, o] x[n, i], and grad_bias[o] = sum over n of grad_y[n, o]
template <class T>
void linear_grad_weight(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, bool and_bias,
                        const T* grad_y, const T* x, T* grad_weight, T* grad_bias, T* partial) {
  const MatrixOperand<T, false> a{grad_y, e.outputs, 1, e.outputs};
  const InputsAndOnes<T> b{x, e.inputs};
  multiply(stream, plan, a, b, WeightResult<T>{grad_weight, grad_bias, e.inputs}, e.grad_weight(and_bias), partial);
}

#define STAGECOACH_INSTANTIATE(T)                                                                                    \
  template void linear<T>(cudaStream_t, const ProductPlan&, const LinearExtents&, const T*, const T*, const T*, T*,  \
                          T*);                                                                                       \
  template void linear_grad_input<T>(cudaStream_t, const ProductPlan&, const LinearExtents&, const T*, const T*, T*, \
                                     T*);                                                                            \
  template void linear_grad_weight<T>(cudaStream_t, const ProductPlan&, const LinearExtents&, bool, const T*,        \
                                      const T*, T*, T*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
