#pragma once
/// @file
/// Optimizers, which update parameters in place from their gradients.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "nn/named_tensors.h"

namespace stagecoach {

class Optimizer {
 public:
  /// Every parameter must be a leaf that requires a gradient and must appear once. They may be on several devices.
  explicit Optimizer(NamedTensors parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates each parameter that has a gradient, in order. Leaves the others and their state unchanged.
  void step();
  /// Clears all gradients.
  void zero_grad();
  /// Returns the number of calls of step(), including those before a loaded state was saved. The count is on the
  /// device, beside the parameters, so a replayed step (core/replay.h) counts too.
  std::int64_t steps_done() const { return static_cast<std::int64_t>(steps_done_.item()); }

  /// Returns all that resumed training needs: "<parameter>.<part>", "<parameter>.updates" (int32 [], how many times the
  /// parameter was updated) and "steps_done" (int32 []). These are handles on the live tensors: save them before the
  /// next step.
  NamedTensors state() const;
  /// Restores a saved state. If it does not fit, changes nothing and throws DataError that lists the mismatches.
  void load_state(const NamedTensors& state);

  const NamedTensors& parameters() const { return parameters_; }
  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double rate) = 0;

 protected:
  /// Adds a zero-filled state tensor of each parameter's shape, named "<parameter>.<part>". Call it only in
  /// constructors.
  void add_state(const std::string& part);
  /// Updates the parameters of `device` that have a gradient (at least one). The state tensors of each are in the order
  /// of the calls of add_state.
  virtual void update(Device device, std::span<ParameterUpdate> updates) = 0;

 private:
  NamedTensors parameters_;
  std::vector<std::string> parts_;
  std::vector<std::vector<Tensor>> states_;  // [parameter][part]
  std::vector<Tensor> updates_;              // [] int32, one per parameter
  Tensor steps_done_;                        // [] int32
};

/// Stochastic gradient descent: v = momentum v + (g + weight_decay p), p = p - learning_rate v.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(NamedTensors parameters, const SgdSettings& settings = {});
  double learning_rate() const override { return settings_.learning_rate; }
  void set_learning_rate(double rate) override;

 private:
  void update(Device device, std::span<ParameterUpdate> updates) override;
  SgdSettings settings_;
};

/// Adam with bias correction; see AdamSettings.
class Adam final : public Optimizer {
 public:
  explicit Adam(NamedTensors parameters, const AdamSettings& settings = {});
  double learning_rate() const override { return settings_.learning_rate; }
  void set_learning_rate(double rate) override;

 private:
  void update(Device device, std::span<ParameterUpdate> updates) override;
  AdamSettings settings_;
};

enum class OptimizerKind { sgd, adam };

/// Makes an optimizer. Throws UsageError for momentum with adam, which has its own.
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, NamedTensors parameters, double learning_rate,
                                          double momentum = 0, double weight_decay = 0);

/// Returns the sum of the squares of all elements, in float64 and in the order of the elements. If such sums are added
/// parameter by parameter, the norm of a model has the same bits however the model is split.
double sum_of_squares(const Tensor& tensor);

}  // namespace stagecoach
