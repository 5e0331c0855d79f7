#pragma once
/// @file
/// Optimizers: they turn the gradients of parameters into new values, in place.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "nn/named_tensors.h"

namespace stagecoach {

class Optimizer {
 public:
  /// Every parameter must be a leaf that requires a gradient, and appear once; all are on one device.
  explicit Optimizer(NamedTensors parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates each parameter that has a gradient, in order; the others, and their state, stay as they are.
  void step();
  /// Forgets all gradients.
  void zero_grad();
  /// How often step() was called, also before a load_state. The count lives on the device, beside the parameters: a
  /// step that is replayed (core/replay.h) counts too.
  std::int64_t steps_done() const { return static_cast<std::int64_t>(steps_done_.item()); }

  /// All that a resumed training needs: "<parameter>.<part>", "<parameter>.updates" (int32 [], how often it had a
  /// gradient) and "steps_done" (int32 []). Handles on the live tensors: save them before the next step.
  NamedTensors state() const;
  /// Continues from a saved state. Throws DataError that lists what does not fit; then nothing was changed.
  void load_state(const NamedTensors& state);

  const NamedTensors& parameters() const { return parameters_; }
  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double rate) = 0;

 protected:
  /// Gives each parameter a zero-filled state tensor of its shape; `part` is its name's end. Constructors only.
  void add_state(const std::string& part);
  /// Updates the parameters that have a gradient; each one's state is in the order of add_state.
  virtual void update(std::span<ParameterUpdate> updates) = 0;
  /// The device of the parameters.
  Device device() const { return steps_done_.device(); }

 private:
  NamedTensors parameters_;
  std::vector<std::string> parts_;
  std::vector<std::vector<Tensor>> states_;  // a parameter, then a part
  std::vector<Tensor> updates_;              // a parameter: [] int32
  Tensor steps_done_;                        // [] int32
};

/// Stochastic gradient descent: v = momentum v + (g + weight_decay p), p = p - learning_rate v.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(NamedTensors parameters, const SgdSettings& settings = {});
  double learning_rate() const override { return settings_.learning_rate; }
  void set_learning_rate(double rate) override;

 private:
  void update(std::span<ParameterUpdate> updates) override;
  SgdSettings settings_;
};

/// Adam with bias correction; see AdamSettings.
class Adam final : public Optimizer {
 public:
  explicit Adam(NamedTensors parameters, const AdamSettings& settings = {});
  double learning_rate() const override { return settings_.learning_rate; }
  void set_learning_rate(double rate) override;

 private:
  void update(std::span<ParameterUpdate> updates) override;
  AdamSettings settings_;
};

enum class OptimizerKind { sgd, adam };

/// Throws UsageError for momentum with adam, which has its own.
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, NamedTensors parameters, double learning_rate,
                                          double momentum = 0, double weight_decay = 0);

/// The sum of the squares of all elements, in float64 and in the order of the elements: part of a norm over a model,
/// which has the same bits however the model is split, as long as the sums are added parameter by parameter.
double sum_of_squares(const Tensor& tensor);

}  // namespace stagecoach
