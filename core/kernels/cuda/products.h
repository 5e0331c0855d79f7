#pragma once
/// @file
/// Linear layers and convolutions as matrix products, with a plan chosen by the caller: for tests and measurements of
/// each kernel of matrix_product.cuh. The rows of the kernel table take the same arguments, and use `fastest_plan`.

#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach::cuda {

/// Chooses how a product of two matrices of `dtype` is computed.
using Planner = ProductPlan (*)(const ProductExtents& e, DType dtype, Device device);

/// Returns a plan for the fastest kernel that the settings allow.
ProductPlan fastest_plan(const ProductExtents& e, DType dtype, Device device);

// x [N, I], weight [O, I], bias [O] or undefined, y [N, O]
void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y, Planner planner);
void linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x, Planner planner);
void linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias, Planner planner);

// x [N, C, H, W], weight [O, C, K, K], bias [O] or undefined, y [N, O, P, Q]
void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y,
            Planner planner);
void conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x,
                       Planner planner);
void conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                        Tensor& grad_bias, Planner planner);

// ---- Convolutions by shifts of the pixels in shared memory, in TF32

/// Returns whether the functions below compute the convolution of x [N, C, H, W] to y [N, O, P, Q]: the settings and
/// the GPU allow TF32 by warpgroups, C is a multiple of 8, O one of 64, and a line of x fits into shared memory.
bool takes_shifted_conv2d(const Tensor& x, const Tensor& y, const Window& window);
/// `columns` are those of a tile: 128, 192, 224 or 256, or 0 for what fills the GPU best.
void shifted_conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y, int columns = 0);
void shifted_conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x, int columns = 0);

/// Returns whether the function below computes the convolution: 3 x 3 taps, stride 2, padding 1, C is a multiple of 8,
/// O one of 128, H and W are twice those of y, and y is 4, 8 or 16 wide.
bool takes_strided_conv2d(const Tensor& x, const Tensor& y, const Window& window);
void strided_conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y);

/// Likewise for the gradient of x, also with 1 x 1 taps and no padding; C is a multiple of 64, O one of 16.
bool takes_strided_grad_input(const Tensor& grad_y, const Tensor& grad_x, const Window& window);
void strided_conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x);

/// Returns whether the function below computes the gradient: 3 x 3 taps, padding 1, C and O are multiples of 64, and y
/// is 4, 8, 16 or (with stride 1) 32 wide.
bool takes_shifted_weight_gradient(const Tensor& grad_y, const Tensor& x, const Window& window);
void shifted_conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight);

}  // namespace stagecoach::cuda
