#pragma once
/// @file
/// Optimizers, which update parameters in place from their gradients.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "nn/clip_grad_norm.h"
#include "nn/named_tensors.h"

namespace stagecoach {

class Optimizer {
 public:
  /// Every parameter must be a leaf that requires a gradient and must appear once. They may be on several devices.
  explicit Optimizer(NamedTensors parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Clips the gradients, if clip_norm() was called. Then updates each parameter that has a gradient, in order, and
  /// leaves the others and their state unchanged. See also tie().
  void step();
  /// The same for parameters on several devices, where `run` calls the function that it is given once per device,
  /// perhaps on several threads: it updates the parameters of that device.
  using UpdateDevice = std::function<void(Device device)>;
  void step(const std::function<void(const UpdateDevice& update)>& run);
  /// Clears all gradients.
  void zero_grad();
  /// From now on adds up the seconds that calls of step() take by `clock`.
  void time_with(std::function<double()> clock) { clock_ = std::move(clock); }
  /// Returns their sum.
  double seconds_in_steps() const { return seconds_in_steps_; }
  /// Returns the number of calls of step(), including those before a loaded state was saved. The count is on the
  /// device, beside the parameters, so a replayed step (core/replay.h) counts too.
  std::int64_t steps_done() const { return static_cast<std::int64_t>(steps_done_.item()); }

  /// Returns all that resumed training needs: "<parameter>.<part>", "<parameter>.updates" (int32 [], how many times the
  /// parameter was updated) and "steps_done" (int32 []). These are handles on the live tensors: save them before the
  /// next step. Throws UsageError in the middle of a step (samples_since_step), as gradients are no part of the state.
  NamedTensors state() const;
  /// Restores a saved state. If it does not fit, changes nothing and throws DataError that lists the mismatches.
  void load_state(const NamedTensors& state);

  const NamedTensors& parameters() const { return parameters_; }
  /// Returns the names of the tensors of each parameter's state that have its shape: "first_moment", …
  const std::vector<std::string>& parts() const { return parts_; }
  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double rate) = 0;

  /// From now on clips the gradients in each step (see clip_grad_norm). Throws UsageError unless `max_norm` is
  /// positive.
  void clip_norm(double max_norm);
  bool clips() const { return max_norm_ > 0; }
  /// The squares are added by `sums`, for a model on several ranks; all of them then call step() together.
  void sum_squares_with(SumsOfSquares sums) { sums_ = std::move(sums); }
  bool sums_over_ranks() const { return sums_ != nullptr; }
  /// `count` returns how many samples have added to the gradients since the last step: for a program that adds up those
  /// of several batches.
  void count_samples_with(std::function<std::int64_t()> count) { count_samples_ = std::move(count); }
  /// Returns that number; 0 if nobody counts.
  std::int64_t samples_since_step() const { return count_samples_ ? count_samples_() : 0; }
  /// From now on step() begins with `sum_gradients` and ends with `copy_values`, for parameters that stay the same as
  /// others, which are not this optimizer's (nn/tied_weights.h). What several calls give runs in their order.
  void tie(std::function<void()> sum_gradients, std::function<void()> copy_values);
  /// From now on weight decay applies only to the parameters for which `decays` returns true.
  void decay_only(const std::function<bool(const std::string& name, const Tensor& parameter)>& decays);
  /// The same for parameters of two or more dimensions: not for biases, nor for the weights of norms.
  void decay_weights_only();

 protected:
  /// Adds a zero-filled state tensor of each parameter's shape, named "<parameter>.<part>". Call it only in
  /// constructors.
  void add_state(const std::string& part);
  /// Updates the parameters of `device` that have a gradient (at least one). The state tensors of each are in the order
  /// of the calls of add_state. Several threads may call it at a time, each for another device.
  virtual void update(Device device, std::span<ParameterUpdate> updates) = 0;

 private:
  void update_device(Device device);

  NamedTensors parameters_;
  std::vector<std::string> parts_;
  std::vector<std::vector<Tensor>> states_;  // [parameter][part]
  std::vector<Tensor> updates_;              // [] int32, one per parameter
  Tensor steps_done_;                        // [] int32
  double max_norm_ = 0;                      // 0: gradients are not clipped
  SumsOfSquares sums_;                       // of a model on several ranks
  std::function<std::int64_t()> count_samples_;
  std::function<void()> sum_gradients_ = [] {};  // of tied parameters
  std::function<void()> copy_values_ = [] {};
  std::function<double()> clock_ = [] { return 0.0; };
  double seconds_in_steps_ = 0;
  std::vector<bool> decays_;  // one per parameter
};

/// An optimizer whose kernel, a row of Kernels, takes `Settings`.
template <class Settings>
class OptimizerWith : public Optimizer {
 public:
  double learning_rate() const override { return settings_.learning_rate; }
  void set_learning_rate(double rate) override;

 protected:
  /// Throws UsageError for a learning rate or weight decay that is negative or not finite.
  OptimizerWith(NamedTensors parameters, const Settings& settings);
  Settings settings_;
};

/// Stochastic gradient descent: v = momentum v + (g + weight_decay p), p = p - learning_rate v.
class Sgd final : public OptimizerWith<SgdSettings> {
 public:
  explicit Sgd(NamedTensors parameters, const SgdSettings& settings = {});

 private:
  void update(Device device, std::span<ParameterUpdate> updates) override;
};

/// Adam with bias correction, or AdamW; see AdamSettings.
class Adam final : public OptimizerWith<AdamSettings> {
 public:
  explicit Adam(NamedTensors parameters, const AdamSettings& settings = {});

 private:
  void update(Device device, std::span<ParameterUpdate> updates) override;
};

/// See AdagradSettings.
class Adagrad final : public OptimizerWith<AdagradSettings> {
 public:
  explicit Adagrad(NamedTensors parameters, const AdagradSettings& settings = {});

 private:
  void update(Device device, std::span<ParameterUpdate> updates) override;
};

/// adamw is Adam with decoupled weight decay.
enum class OptimizerKind { sgd, adam, adamw, adagrad };

/// Makes an optimizer. Throws UsageError for a momentum unless it is sgd: adam has its own, and adagrad none.
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, NamedTensors parameters, double learning_rate,
                                          double momentum = 0, double weight_decay = 0);

/// Returns the sum of the squares of all elements, in float64 and in the order of the elements. If such sums are added
/// parameter by parameter, the norm of a model has the same bits however the model is split.
double sum_of_squares(const Tensor& tensor);

}  // namespace stagecoach
