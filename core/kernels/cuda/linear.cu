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

/// grad_weight[o, i] = sum over n of grad_y[n, o] x[n, i]
template <class T>
void linear_grad_weight(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, const T* grad_y,
                        const T* x, T* grad_weight, T* partial) {
  const MatrixOperand<T, false> a{grad_y, e.outputs, 1, e.outputs};
  const MatrixOperand<T, false> b{x, e.inputs, 1, e.inputs};
  multiply(stream, plan, a, b, MatrixResult<T>{grad_weight, e.inputs, nullptr}, e.grad_weight(), partial);
}

#define STAGECOACH_INSTANTIATE(T)                                                                                     \
  template void linear<T>(cudaStream_t, const ProductPlan&, const LinearExtents&, const T*, const T*, const T*, T*,   \
                          T*);                                                                                        \
  template void linear_grad_input<T>(cudaStream_t, const ProductPlan&, const LinearExtents&, const T*, const T*, T*,  \
                                     T*);                                                                             \
  template void linear_grad_weight<T>(cudaStream_t, const ProductPlan&, const LinearExtents&, const T*, const T*, T*, \
                                      T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
