#pragma once
/// @file
/// What the `.cu` files offer, as functions on plain arrays in the GPU's memory: the table of contents of this folder.
/// cuda_kernels.cpp calls them. Each gives its work to `stream` and returns at once. T is float or double unless said
/// otherwise; arrays are row-major, with the shapes beside them; results are wholly overwritten.

#include <cuda_runtime.h>

#include <cstdint>

#include "core/half.h"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/settings.h"

namespace stagecoach::cuda {

// ---- elementwise.cu: whole arrays of `count` elements

/// T is any element type.
template <class T>
void fill(cudaStream_t stream, T value, T* out, std::int64_t count);
template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* out, std::int64_t count);
template <class T>
void relu(cudaStream_t stream, const T* x, T* out, std::int64_t count);
template <class T>
void relu_grad(cudaStream_t stream, const T* grad_y, const T* y, T* out, std::int64_t count);

// ---- thrust_passes.cu: likewise

void convert(cudaStream_t stream, const float* x, Half* out, std::int64_t count);
void convert(cudaStream_t stream, const Half* x, float* out, std::int64_t count);
/// sum += factor * x
template <class T>
void add_scaled(cudaStream_t stream, const T* x, T factor, T* sum, std::int64_t count);
template <class T>
void scale(cudaStream_t stream, const T* x, T factor, T* out, std::int64_t count);
/// out = factor * (a - b) * *weight
template <class T>
void scaled_difference(cudaStream_t stream, const T* a, const T* b, T factor, const T* weight, T* out,
                       std::int64_t count);

// ---- counters.cu: single numbers

/// *sum += *x
template <class T>
void accumulate(cudaStream_t stream, const T* x, double* sum);
/// Addresses of counters, handed to the kernel by value.
struct Counters {
  static constexpr int kMost = 128;
  std::int32_t* at[kMost];
  int count;
};
void increment(cudaStream_t stream, const Counters& counters);

// ---- linear.cu: x [N, I], weight [O, I], bias [O] or null, y [N, O]

struct LinearExtents {
  int samples;
  int inputs;
  int outputs;
  // The matrix product behind each function.
  ProductExtents forward() const { return {samples, outputs, inputs}; }
  ProductExtents grad_input() const { return {samples, inputs, outputs}; }
  ProductExtents grad_weight(bool and_bias) const { return {outputs, inputs + (and_bias ? 1 : 0), samples}; }
};
/// `partial` has as many elements as the plan says.
template <class T>
void linear(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, const T* x, const T* weight,
            const T* bias, T* y, T* partial);
template <class T>
void linear_grad_input(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, const T* grad_y,
                       const T* weight, T* grad_x, T* partial);
/// With `and_bias` the gradient of the bias is one more column of the product, with ones in place of inputs. Results
/// may be null.
template <class T>
void linear_grad_weight(cudaStream_t stream, const ProductPlan& plan, const LinearExtents& e, bool and_bias,
                        const T* grad_y, const T* x, T* grad_weight, T* grad_bias, T* partial);

// ---- conv2d.cu: x [N, C, H, W], weight [O, C, K, K], bias [O] or null, y [N, O, P, Q]

struct ConvExtents {
  static constexpr int kWidestKernel = 63;  ///< beyond, conv2d is refused on a GPU
  int samples;                              // N
  int channels;                             // C
  int height;                               // H
  int width;                                // W
  int outputs;                              // O
  int kernel;                               // K
  int stride;
  int padding;
  int rows;     // P
  int columns;  // Q
  constexpr int taps() const { return kernel * kernel; }
  constexpr int pixels() const { return height * width; }
  constexpr int positions() const { return rows * columns; }
  // The matrix product behind each function.
  ProductExtents forward() const { return {outputs, samples * positions(), channels * taps()}; }
  ProductExtents grad_input() const { return {channels, samples * pixels(), outputs * taps()}; }
  ProductExtents grad_weight(bool and_bias) const {
    return {outputs, channels * taps() + (and_bias ? 1 : 0), samples * positions()};
  }
};
template <class T>
void conv2d(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* x, const T* weight,
            const T* bias, T* y, T* partial);
template <class T>
void conv2d_grad_input(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, const T* grad_y,
                       const T* weight, T* grad_x, T* partial);
/// As for linear layers.
template <class T>
void conv2d_grad_weight(cudaStream_t stream, const ProductPlan& plan, const ConvExtents& e, bool and_bias,
                        const T* grad_y, const T* x, T* grad_weight, T* grad_bias, T* partial);

// ---- channels.cu: x [N, C, S]; the others [C] unless said otherwise

struct ChannelExtents {
  int samples;   // N
  int channels;  // C
  int plane;     // S
  /// Parts into which the values of a channel are dealt: each is summed by a block, then the parts in their order.
  int parts() const;
};
/// `partial` has channels * parts elements.
template <class T>
void channel_sums(cudaStream_t stream, const ChannelExtents& e, const T* x, T* out, T* partial);
template <class T>
void channel_means(cudaStream_t stream, const ChannelExtents& e, const T* x, T* mean, T* partial);
/// out = (the sum of (x - mean)^2) / divisor
template <class T>
void squared_deviations(cudaStream_t stream, const ChannelExtents& e, const T* x, const T* mean, T divisor, T* out,
                        T* partial);
template <class T>
void update_running_statistics(cudaStream_t stream, int channels, const T* mean, const T* variance, T share, T unbiased,
                               T* running_mean, T* running_variance);
template <class T>
void inverse_deviation(cudaStream_t stream, int channels, const T* variance, T epsilon, T* out);
/// y [N, C, S] = (x - mean) * inverse_deviation * weight + bias
template <class T>
void batch_norm(cudaStream_t stream, const ChannelExtents& e, const T* x, const T* mean, const T* inverse_deviation,
                const T* weight, const T* bias, T* y);
/// `partial` has 2 * channels * parts elements.
template <class T>
void batch_norm_grad_weight(cudaStream_t stream, const ChannelExtents& e, const T* grad_y, const T* x, const T* mean,
                            const T* inverse_deviation, T* grad_weight, T* grad_bias, T* partial);
template <class T>
void batch_norm_grad_input(cudaStream_t stream, const ChannelExtents& e, const T* grad_y, const T* inverse_deviation,
                           const T* weight, T* grad_x);
/// `count` values a channel gave the statistics.
template <class T>
void batch_norm_grad_input_of_batch(cudaStream_t stream, const ChannelExtents& e, const T* grad_y, const T* x,
                                    const T* mean, const T* inverse_deviation, const T* weight, const T* grad_weight,
                                    const T* grad_bias, T count, T* grad_x);

// ---- pool.cu: planes [H, W] to planes [P, Q]

struct PoolExtents {
  int planes;
  int height;   // H
  int width;    // W
  int rows;     // P
  int columns;  // Q
  int kernel;
  int stride;
  int padding;
};
template <class T>
void max_pool2d(cudaStream_t stream, const PoolExtents& e, const T* x, T* y, std::int32_t* picked);
template <class T>
void max_pool2d_grad(cudaStream_t stream, const PoolExtents& e, const T* grad_y, const std::int32_t* picked, T* grad_x);
/// x [planes, size] to y [planes]
template <class T>
void plane_means(cudaStream_t stream, int planes, int size, const T* x, T* y);
template <class T>
void plane_means_grad(cudaStream_t stream, int planes, int size, const T* grad_y, T* grad_x);

// ---- softmax.cu: rows [N, C]

template <class T>
void softmax(cudaStream_t stream, int rows, int classes, const T* x, T* y);
template <class T>
void log_softmax(cudaStream_t stream, int rows, int classes, const T* x, T* y);
template <class T>
void softmax_grad(cudaStream_t stream, int rows, int classes, const T* grad_y, const T* y, T* grad_x);
template <class T>
void log_softmax_grad(cudaStream_t stream, int rows, int classes, const T* grad_y, const T* y, T* grad_x);

// ---- losses.cu

/// Probabilities [N, C]; row_losses [N] are for a while only; loss [] = factor * their sum. A label that is no class
/// makes the loss not a number.
template <class T>
void cross_entropy(cudaStream_t stream, int rows, int classes, const T* logits, const std::int32_t* labels,
                   double factor, double* row_losses, T* loss, T* probabilities);
template <class T>
void cross_entropy_grad(cudaStream_t stream, int rows, int classes, const T* grad_loss, const T* probabilities,
                        const std::int32_t* labels, double factor, T* grad_logits);
/// How many parts squared_error needs room for.
int squared_error_parts(std::int64_t count);
/// loss [] = factor * sum of (a - b)^2
template <class T>
void squared_error(cudaStream_t stream, const T* a, const T* b, std::int64_t count, double factor, double* parts,
                   T* loss);

// ---- optimizer_steps.cu: many parameters in one launch

/// Addresses of parameters and their state, handed to the kernel by value.
template <class T>
struct OptimizerTable {
  static constexpr int kMost = 48;
  struct Entry {
    const T* grad;
    T* parameter;
    T* state[2];
    const std::int32_t* step;  // counts from 1
    std::int64_t size;
    int first_block;
  };
  Entry entries[kMost];
  int count = 0;
  int blocks = 0;
  /// Appends a parameter and deals its elements to blocks.
  void add(const T* grad, T* parameter, T* first_state, T* second_state, const std::int32_t* step, std::int64_t size);
};
template <class T>
void sgd_step(cudaStream_t stream, const OptimizerTable<T>& table, const SgdSettings& settings);
template <class T>
void adam_step(cudaStream_t stream, const OptimizerTable<T>& table, const AdamSettings& settings);

// ---- pictures.cu

/// pixels [N, 3, S] to (pixel / 255 - mean) / deviation
void normalize(cudaStream_t stream, int samples, int plane, const std::uint8_t* pixels,
               const Normalization& normalization, float* out);
/// *count += the rows of scores [N, C] that are largest (the first among equals) at their label
template <class T>
void count_correct(cudaStream_t stream, int rows, int classes, const T* scores, const std::int32_t* labels,
                   std::int32_t* count);

}  // namespace stagecoach::cuda
