#pragma once
/// @file
/// The CUDA backend as the rest of the core sees it: from tensors to the functions of functions.h.

#include "core/kernels/kernels.h"

namespace stagecoach {

class CudaKernels final : public Kernels {
 public:
  void fill(double value, Tensor& out) const override;
  void copy(const Tensor& source, Tensor& out) const override;
  void convert(const Tensor& source, Tensor& out) const override;
  void add(const Tensor& a, const Tensor& b, Tensor& out) const override;
  void add_scaled(const Tensor& x, double factor, Tensor& sum) const override;
  void scale(const Tensor& x, double factor, Tensor& out) const override;
  void accumulate(const Tensor& x, Tensor& sum) const override;
  void increment(std::span<Tensor> counters) const override;
  void relu(const Tensor& x, Tensor& out) const override;
  void relu_grad(const Tensor& grad_y, const Tensor& y, Tensor& out) const override;

  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) const override;
  void linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) const override;
  void linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight) const override;
  void linear_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight,
                                   Tensor& grad_bias) const override;

  void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window,
              Tensor& y) const override;
  void conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window,
                         Tensor& grad_x) const override;
  void conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window,
                          Tensor& grad_weight) const override;
  void conv2d_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                                   Tensor& grad_bias) const override;

  void channel_sums(const Tensor& x, Tensor& out) const override;

  void max_pool2d(const Tensor& x, const Window& window, Tensor& y, Tensor& picked) const override;
  void max_pool2d_grad(const Tensor& grad_y, const Tensor& picked, const Window& window, Tensor& grad_x) const override;
  void global_average_pool(const Tensor& x, Tensor& y) const override;
  void global_average_pool_grad(const Tensor& grad_y, Tensor& grad_x) const override;

  void softmax(const Tensor& x, Tensor& y) const override;
  void softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const override;
  void log_softmax(const Tensor& x, Tensor& y) const override;
  void log_softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const override;

  void cross_entropy(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss,
                     Tensor& probabilities) const override;
  void cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels, double factor,
                          Tensor& grad_logits) const override;
  void squared_error(const Tensor& a, const Tensor& b, double factor, Tensor& loss) const override;
  void squared_error_grad(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor,
                          Tensor& grad_a) const override;

  void batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) const override;
  void squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) const override;
  void update_running_statistics(const Tensor& mean, const Tensor& variance, double momentum, std::int64_t count,
                                 Tensor& running_mean, Tensor& running_variance) const override;
  void inverse_deviation(const Tensor& variance, double epsilon, Tensor& out) const override;
  void batch_norm(const Tensor& x, const Tensor& mean, const Tensor& inverse_deviation, const Tensor& weight,
                  const Tensor& bias, Tensor& y) const override;
  void batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                              const Tensor& inverse_deviation, Tensor& grad_weight, Tensor& grad_bias) const override;
  void batch_norm_grad_input(const Tensor& grad_y, const Tensor& inverse_deviation, const Tensor& weight,
                             Tensor& grad_x) const override;
  void batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                                      const Tensor& inverse_deviation, const Tensor& weight, const Tensor& grad_weight,
                                      const Tensor& grad_bias, std::int64_t count, Tensor& grad_x) const override;

  void sgd_step(std::span<ParameterUpdate> updates, const SgdSettings& settings) const override;
  void adam_step(std::span<ParameterUpdate> updates, const AdamSettings& settings) const override;

  void normalize(const Tensor& images, const Normalization& normalization, Tensor& out) const override;
  void count_correct(const Tensor& scores, const Tensor& labels, Tensor& count) const override;
};

}  // namespace stagecoach
