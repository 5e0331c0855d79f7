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

}  // namespace stagecoach::cuda
